import type { Decision } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { Millis, NodeId } from "../model/message.ts";

// When the leases of a node end early: see docs/decisions/0051.

/** A session lease of a node: an advisory lock that belongs to one of its connections, numbered `session`. */
export type NodeSession = { node: NodeId; session: number };
/**
 * The result of a check of the database. `server` changes with every restart and failover of the database.
 */
export type SessionSnapshot = {
  server: string;
  sessions: readonly (NodeSession & { isHeld: boolean })[];
  at: Millis;
};
/**
 * All that a node has seen of the others on one `server`. `heldAt`: the first check from which on a session
 * lease was always held. `heldFor`: how long it was seen held. `goneAt`: when it was first seen gone, or last
 * taken over; null if it is held. `takeovers`: how often it was taken over.
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
 * How long a session lease must have been seen held before its loss counts. In that time its node has checked
 * as well and knows that there is another node. A node that has seen no other node continues to send without
 * its session lease.
 */
const minSeenHeld: Millis = 1_500;
/** How long a session lease must be gone before the leases of its node end. */
export const takeoverDelay: Millis = 2_000;
/**
 * A node that has lost its session lease for this long ends its deliveries. This is shorter than
 * `takeoverDelay` by the time that ending them takes.
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
  for (const { node, session, isHeld } of sessions) {
    const known = before?.server === server ? before.seen.get(node) : undefined;
    if (isHeld) {
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
 * How often a session is taken over, 2 s apart. At the first time, a row may be locked, or the last commit of
 * the node may still be running.
 */
const maxTakeovers = 3;

/**
 * Returns what a node has seen after it has taken a session over. After the last time, the session is
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

/**
 * Makes the messages that a node has leased due, if its session is still the one that was seen gone. The
 * claim counts each attempt as lost. `now` may be wrong by the duration of a lease: messages that this misses
 * are sent when their leases expire.
 */
export const takeOver: Decision<NodeSession & { now: Millis; limit: number }, { reclaimed: number }> = {
  needs: ({ node, session, now, limit }) => ({
    leasedByOthers: {
      node,
      limit,
      session: { number: session, after: now - spans.lease, until: now + 2 * spans.lease },
    },
  }),
  decide: ({ node }, draft) => {
    const states = draft.leasedByOthers().filter(({ leasedBy }) => leasedBy === node);
    for (const state of states) draft.put("messages", { ...state, dueAt: nodeEndedDueAt });
    return { reclaimed: states.length };
  },
};
