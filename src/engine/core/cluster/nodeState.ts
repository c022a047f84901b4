import type { Millis, NodeId } from "../values/basics.ts";

/**
 * A node as the database has it. `changedAt`: when it last changed something, or null if it never did.
 * `session`: the number of its session lease; 0 if it has ended, or has no session lease. `isAlive`: whether
 * it has the session lease now. See docs/decisions/0051.
 */
export type NodeRecord = {
  id: NodeId;
  version: string;
  startedAt: Millis;
  changedAt: Millis | null;
  session: number;
  isAlive: boolean;
};

/**
 * `running`: it has its session lease, or it responds. `stopped`: it has ended in an orderly way. `lost`:
 * it has lost its session lease, so other nodes take over its messages. `unknown`: nodes have no session
 * leases.
 */
export const nodeStates = ["running", "stopped", "lost", "unknown"] as const;
export type NodeState = (typeof nodeStates)[number];

/** Returns the states of the nodes of a database. `self` is the node that asks. */
export function readNodeStates(records: readonly NodeRecord[], self: NodeId): Map<NodeId, NodeState> {
  const hasLeases = records.some(({ id, session }) => id === self && session > 0);
  return new Map(records.map((record) => [record.id, readNodeState(record, { self, hasLeases })]));
}

function readNodeState(
  { id, session, isAlive }: NodeRecord,
  { self, hasLeases }: { self: NodeId; hasLeases: boolean },
): NodeState {
  if (id === self || isAlive) return "running";
  if (session > 0) return "lost";
  return hasLeases ? "stopped" : "unknown";
}
