import type { DeliveryCapacity, TakenCapacity } from "../../src/core/admission/capacity.ts";
import type { NodeCapacity } from "./cluster.ts";

type Counts = { calls: ReadonlyMap<string, number>; bytes: ReadonlyMap<string, number> };

/**
 * Returns the capacity that a node uses, in all, for a lane, and for an account, as the simulation has
 * counted it.
 */
export function readInUse(
  { calls, bytes }: Counts,
  { node, lane, account }: { node: string; lane: string; account: string },
): TakenCapacity {
  const read = (counts: ReadonlyMap<string, number>, name: string): number => counts.get(name) ?? 0;
  return {
    all: read(calls, node),
    lane: read(calls, `${node} ${lane}`),
    bytes: read(bytes, node),
    laneBytes: read(bytes, `${node} ${lane}`),
    account: read(calls, `${node} ${account}`),
    accountBytes: read(bytes, `${node} ${account}`),
  };
}

/** Returns the capacity of a node on which nothing runs. */
export const makeFreeCapacity = ({ total, perHost, bytes }: NodeCapacity): DeliveryCapacity => ({
  free: total,
  perHost,
  backlog: false,
  runningByLane: new Map(),
  bytes: { free: bytes.total, perBatch: bytes.perBatch, byLane: {} },
  heldByAccount: {
    deliveries: { total, byAccount: new Map() },
    bytes: { total: bytes.total, byAccount: new Map() },
  },
});
