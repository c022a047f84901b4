import type { Decision } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { Millis, NodeId } from "../model/message.ts";

// When the leases of a node end early: see docs/decisions/0051.

/** The hold of a node on its leases: a lock that goes with one of its connections, the `session`th. */
export type NodeSession = { node: NodeId; session: number };
/** What a look at the database shows. `server` is another one after every restart and failover. */
export type SessionSnapshot = { server: string; sessions: readonly (NodeSession & { isHeld: boolean })[]; at: Millis };
/**
 * Everything that a node has seen of the others, on one `server`. `heldAt`: since when a session was seen held in every look. `goneAt`: when it was first seen
 * gone, or taken over last; null: it was held. `times`: how often it was taken over.
 */
export type SessionHistory = { server: string; seen: ReadonlyMap<NodeId, SeenSession> };
type SeenSession = { session: number; heldAt: Millis; heldFor: Millis; goneAt: Millis | null; takeovers: number };

/**
 * A hold must have been seen for this long before its loss counts. In that time its node has looked, too, and knows that there is another one:
 * a node that has seen no other continues to send without its hold.
 */
const minSeenHeld: Millis = 1_500;
/** A hold must be gone for this long before the leases end. */
export const takeoverDelay: Millis = 2_000;
/** A node that has been without its hold for this long ends its deliveries. Shorter than `takeoverDelay` by the time they take to end. */
export const sessionLossTimeout: Millis = 1_500;

/**
 * Returns what a node has seen after a look, and the sessions whose leases end now: each was seen held on this very server for 1.5 s, and has been
 * gone in every look for 2 s. The leases of any other session end when they run out.
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

/** A session is taken over this often, 2 s apart: the first time, a row may be locked, or a last commit of the node under way. */
const maxTakeovers = 3;

/** Returns what a node has seen when it has taken a session over. The last time, the session is forgotten. */
export function recordTakeover({ server, seen }: SessionHistory, { node, session }: NodeSession, at: Millis): SessionHistory {
  const remaining = new Map(seen);
  const known = seen.get(node);
  if (known?.session !== session) return { server, seen };
  if (known.takeovers + 1 >= maxTakeovers) remaining.delete(node);
  else remaining.set(node, { ...known, goneAt: at, takeovers: known.takeovers + 1 });
  return { server, seen: remaining };
}

/** Returns how long until the next look: `usual`, or less if a session will have been gone for 2 s by then. */
export function nextCheckDelay(seen: SessionHistory | null, at: Millis, usual: Millis): Millis {
  const ends = [...(seen?.seen.values() ?? [])].flatMap(({ goneAt }) => (goneAt === null ? [] : [goneAt + takeoverDelay - at]));
  return Math.max(0, Math.min(usual, ...ends.filter((left) => left > 0)));
}

/** Reports whether a look or what was seen before shows another node. Only another node can end the leases of this one early. */
export const hasOtherNodes = (seen: SessionHistory | null): boolean => (seen?.seen.size ?? 0) > 0;

/** The end of a lease whose node ended: the message is due, whatever the time is. */
export const nodeEndedDueAt: Millis = 1;

/**
 * Makes what a node has leased due, if its session is still the one that was seen gone. The claim counts the attempt as lost. `now` may be
 * wrong by as long as a lease lasts: what it misses then is sent when its lease ends.
 */
export const takeOver: Decision<NodeSession & { now: Millis; limit: number }, { reclaimed: number }> = {
  needs: ({ node, session, now, limit }) => ({
    leasedByOthers: { node, limit, session: { number: session, after: now - spans.lease, until: now + 2 * spans.lease } },
  }),
  decide: ({ node }, draft) => {
    const states = draft.leasedByOthers().filter(({ leasedBy }) => leasedBy === node);
    for (const state of states) draft.put("messages", { ...state, dueAt: nodeEndedDueAt });
    return { reclaimed: states.length };
  },
};
