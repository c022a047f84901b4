import type { NodeCapacity } from "../cluster.ts";

/** The calls, or the bytes of bodies, that run on a node, as the simulation has counted them. */
export type InUse = { onNode: number; toHost: number; ofAccount: number };

/** The bytes of bodies that run on a node, and the size of the body that is added. */
export type BytesInUse = InUse & { size: number };

/**
 * Returns the rule of docs/gates.md ("Fair capacity") that one more call breaks, or null. It is computed
 * from the simulation's own counts, before the call is added to them.
 */
export function findBrokenShare(
  capacity: NodeCapacity,
  { calls, bytes }: { calls: InUse; bytes: BytesInUse },
): string | null {
  if (calls.onNode + 1 > capacity.total) return "the calls of a node do not exceed its capacity";
  if (calls.toHost + 1 > capacity.perHost) return "the calls to a host do not exceed the maximum of a host";
  if (calls.toHost + 1 > capacity.total - calls.onNode)
    return "the calls to a host use at most as much as was still free";
  // The last body may be larger than the memory that is left, so only the bytes before it are compared.
  if (bytes.toHost + 1 > capacity.bytes.total - bytes.onNode)
    return "the bodies sent to a host use at most as much memory as was still free";
  if (takesLastEighth(capacity.total, calls)) return "an account leaves the last eighth of calls to others";
  if (takesLastEighth(capacity.bytes.total, bytes) || fillsLastEighth(capacity.bytes.total, bytes))
    return "an account leaves the last eighth of the memory to others";
  return null;
}

/** Reports whether an account with more than an eighth of a capacity takes one more from the last eighth. */
function takesLastEighth(total: number, { onNode, ofAccount }: InUse): boolean {
  const eighth = (total - (total % 8)) / 8;
  const holdsMore = ofAccount + 1 > eighth;
  const leaves = total - onNode - 1;
  return holdsMore && leaves < eighth;
}

/** Reports whether a body uses some of the last eighth, although its account holds an eighth already. */
function fillsLastEighth(total: number, { onNode, ofAccount, size }: BytesInUse): boolean {
  const eighth = (total - (total % 8)) / 8;
  return ofAccount >= eighth && total - onNode - size < eighth;
}
