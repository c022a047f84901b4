import type { Millis, NodeId } from "../values/basics.ts";

// When the leases of a node end early: see docs/decisions/0051.

/** A session lease of a node: an advisory lock that belongs to one of its connections, numbered `session`. */
export type NodeSession = { node: NodeId; session: number };
/**
 * The result of a check of the database. `server` changes with every restart and failover of the database.
 */
export type SessionSnapshot = {
  server: string;
  sessions: readonly (NodeSession & { isAlive: boolean })[];
  at: Millis;
};
/**
 * All that a node has seen of other nodes on one `server`. `heldAt`: the check from which on a session lease
 * was seen held without a break. `heldFor`: how long it was seen held. `goneAt`: when the session lease was
 * first seen gone, or when it was last taken over; null if it is alive. `takeovers`: how often it was taken
 * over.
 */
export type SessionHistory = { server: string; seen: ReadonlyMap<NodeId, SeenSession> };
type SeenSession = {
  session: number;
  heldAt: Millis;
  heldFor: Millis;
  goneAt: Millis | null;
  takeovers: number;
};

/**
 * How long a session lease must have been seen held before its loss counts. In that time, the other node has
 * also checked and has seen this node. A node that has seen no other node would continue to send without its
 * session lease.
 */
const minSeenHeld: Millis = 1_500;
/** How long a session lease must be gone before the leases of its node end. */
export const takeoverDelay: Millis = 2_000;
/**
 * A node that has lost its session lease for this long ends its deliveries. The difference to `takeoverDelay`
 * is the time in which the deliveries end.
 */
export const sessionLossTimeout: Millis = 1_500;

/**
 * Returns what a node has seen after a check, and the sessions whose leases end now. Each of these sessions
 * was seen held on this same server for 1.5 s, and was gone in every check for 2 s. The leases of any other
 * session end when they expire.
 */
export function observeSessions(
  before: SessionHistory | null,
  { server, sessions, at }: SessionSnapshot,
): { watch: SessionHistory; gone: NodeSession[] } {
  const seen = new Map<NodeId, SeenSession>();
  const gone: NodeSession[] = [];
  for (const { node, session, isAlive } of sessions) {
    const known = before?.server === server ? before.seen.get(node) : undefined;
    if (isAlive) {
      const heldAt = known?.session === session && known.goneAt === null ? known.heldAt : at;
      seen.set(node, { session, heldAt, heldFor: at - heldAt, goneAt: null, takeovers: 0 });
    } else if (known?.session === session && known.heldFor >= minSeenHeld) {
      const goneAt = known.goneAt ?? at;
      if (at - goneAt >= takeoverDelay) gone.push({ node, session });
      seen.set(node, { ...known, goneAt });
    }
  }
  return { watch: { server, seen }, gone };
}

/**
 * How often a session is taken over, at intervals of 2 s. The first takeover may miss messages, because a row
 * is locked or the last commit of the node is still running.
 */
const maxTakeovers = 3;

/**
 * Returns what a node has seen, after it has taken a session over. After the last takeover, the session is
 * forgotten.
 */
export function recordTakeover(
  { server, seen }: SessionHistory,
  { node, session }: NodeSession,
  at: Millis,
): SessionHistory {
  const remaining = new Map(seen);
  const known = seen.get(node);
  if (known?.session !== session) return { server, seen };
  if (known.takeovers + 1 >= maxTakeovers) remaining.delete(node);
  else remaining.set(node, { ...known, goneAt: at, takeovers: known.takeovers + 1 });
  return { server, seen: remaining };
}

/**
 * Returns the time until the next check: `usual`, or less if a session will have been gone for 2 s by then.
 */
export function nextCheckDelay(seen: SessionHistory | null, at: Millis, usual: Millis): Millis {
  const ends = [...(seen?.seen.values() ?? [])].flatMap(({ goneAt }) =>
    goneAt === null ? [] : [goneAt + takeoverDelay - at],
  );
  return Math.max(0, Math.min(usual, ...ends.filter((left) => left > 0)));
}

/** Reports whether another node has been seen. Only another node can end the leases of this one early. */
export const hasOtherNodes = (seen: SessionHistory | null): boolean => (seen?.seen.size ?? 0) > 0;

/** The `dueAt` of a lease whose node ended: the message is due at any time. */
export const nodeEndedDueAt: Millis = 1;
