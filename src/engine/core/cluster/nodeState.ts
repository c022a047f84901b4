import type { Millis, NodeId } from "../values/basics.ts";

/**
 * A node as the database has it. `changedAt`: when it last changed something, or null if it never did.
 * `membership`: the number of its membership; 0 if it has ended, or has no membership. `isAlive`: whether
 * it has the membership now. See docs/decisions/0051.
 */
export type NodeRecord = {
  id: NodeId;
  version: string;
  startedAt: Millis;
  changedAt: Millis | null;
  membership: number;
  isAlive: boolean;
};

/**
 * `running`: it has its membership, or it responds. `stopped`: it has shut down cleanly. `lost`:
 * it has lost its membership, so other nodes take over its messages. `unknown`: nodes have no
 * memberships.
 */
export const nodeStates = ["running", "stopped", "lost", "unknown"] as const;
export type NodeState = (typeof nodeStates)[number];

/** Returns the states of the nodes of a database. `self` is the node that asks. */
export function readNodeStates(records: readonly NodeRecord[], self: NodeId): Map<NodeId, NodeState> {
  const hasMemberships = records.some(({ id, membership }) => id === self && membership > 0);
  return new Map(records.map((record) => [record.id, readNodeState(record, { self, hasMemberships })]));
}

function readNodeState(
  { id, membership, isAlive }: NodeRecord,
  { self, hasMemberships }: { self: NodeId; hasMemberships: boolean },
): NodeState {
  if (id === self || isAlive) return "running";
  if (membership > 0) return "lost";
  return hasMemberships ? "stopped" : "unknown";
}
