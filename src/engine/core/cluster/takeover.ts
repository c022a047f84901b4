import type { Millis, NodeId } from "../values/basics.ts";

// When the leases of a node end early: see docs/decisions/0051.

/** A numbered membership of a node: an advisory lock that belongs to one of its connections. */
export type NodeMembership = { node: NodeId; membership: number };
/**
 * The result of a check of the database. `server` changes with every restart and failover of the database.
 */
export type MembershipSnapshot = {
  server: string;
  memberships: readonly (NodeMembership & { isAlive: boolean })[];
  at: Millis;
};
/**
 * All that a node has seen of other nodes on one `server`. `aliveSince`: the check from which on a membership
 * was seen alive without a break. `aliveFor`: how long it was seen alive. `goneAt`: when the membership was
 * first seen gone, or when it was last taken over; null if it is alive. `takeovers`: how often it was taken
 * over.
 */
export type MembershipHistory = { server: string; seen: ReadonlyMap<NodeId, SeenMembership> };
type SeenMembership = {
  membership: number;
  aliveSince: Millis;
  aliveFor: Millis;
  goneAt: Millis | null;
  takeovers: number;
};

/**
 * How long a membership must have been seen alive before its loss counts. In that time, the other node has
 * also checked and has seen this node. A node that has seen no other node would continue to send without its
 * membership.
 */
const minSeenAlive: Millis = 1_500;
/** How long a membership must be gone before the leases of its node end. */
export const takeoverDelay: Millis = 2_000;
/**
 * A node that has lost its membership for this long ends its deliveries. The difference to `takeoverDelay`
 * is the time in which the deliveries end.
 */
export const membershipLossTimeout: Millis = 1_500;

/**
 * Returns what a node has seen after a check, and the memberships whose leases end now. Each of these
 * memberships was seen alive on this same server for 1.5 s, and was gone in every check for 2 s. The leases
 * of any other membership end when they expire.
 */
export function observeMemberships(
  before: MembershipHistory | null,
  { server, memberships, at }: MembershipSnapshot,
): { watch: MembershipHistory; gone: NodeMembership[] } {
  const seen = new Map<NodeId, SeenMembership>();
  const gone: NodeMembership[] = [];
  for (const { node, membership, isAlive } of memberships) {
    const known = before?.server === server ? before.seen.get(node) : undefined;
    if (isAlive) {
      const aliveSince = known?.membership === membership && known.goneAt === null ? known.aliveSince : at;
      seen.set(node, { membership, aliveSince, aliveFor: at - aliveSince, goneAt: null, takeovers: 0 });
    } else if (known?.membership === membership && known.aliveFor >= minSeenAlive) {
      const goneAt = known.goneAt ?? at;
      if (at - goneAt >= takeoverDelay) gone.push({ node, membership });
      seen.set(node, { ...known, goneAt });
    }
  }
  return { watch: { server, seen }, gone };
}

/**
 * How often a membership is taken over, at intervals of 2 s. The first takeover may miss messages, because a
 * row is locked or the last commit of the node is still running.
 */
const maxTakeovers = 3;

/**
 * Returns what a node has seen, after it has taken a membership over. After the last takeover, the membership
 * is forgotten.
 */
export function recordTakeover(
  { server, seen }: MembershipHistory,
  { node, membership }: NodeMembership,
  at: Millis,
): MembershipHistory {
  const remaining = new Map(seen);
  const known = seen.get(node);
  if (known?.membership !== membership) return { server, seen };
  if (known.takeovers + 1 >= maxTakeovers) remaining.delete(node);
  else remaining.set(node, { ...known, goneAt: at, takeovers: known.takeovers + 1 });
  return { server, seen: remaining };
}

/**
 * Returns the time until the next check: `usual`, or less if a membership will have been gone for 2 s by
 * then.
 */
export function nextCheckDelay(seen: MembershipHistory | null, at: Millis, usual: Millis): Millis {
  const ends = [...(seen?.seen.values() ?? [])].flatMap(({ goneAt }) =>
    goneAt === null ? [] : [goneAt + takeoverDelay - at],
  );
  return Math.max(0, Math.min(usual, ...ends.filter((left) => left > 0)));
}

/** Reports whether another node has been seen. Only another node can end the leases of this one early. */
export const hasOtherNodes = (seen: MembershipHistory | null): boolean => (seen?.seen.size ?? 0) > 0;

/** The `dueAt` of a lease whose node ended: the message is due at any time. */
export const nodeEndedDueAt: Millis = 1;
