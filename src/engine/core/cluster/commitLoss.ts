import type { Millis } from "../values/basics.ts";

/** The progress of a node: how many of its batches changed something, and the time of the last one. */
export type Progress = { counter: number; usedAt: Millis };

/**
 * The commits of a node that a database has lost. They are at most `batches`. The first was made after `from`
 * (null: not known), the last at `to`.
 */
export type CommitLoss = { batches: number; from: Millis | null; to: Millis };

/** The row of a node is removed when the node has changed nothing for this long. */
export const nodeRetention: Millis = 30 * 24 * 3600 * 1000;

/**
 * Returns the commits that the database acknowledged to a node and then lost, or null if it lost none.
 * `found` is the progress in the row of the node, as it is now. A commit whose outcome is not known does not
 * count as acknowledged, so its loss is not reported. A row that was removed because of its age proves
 * nothing.
 */
export function detectLoss(
  acknowledged: Progress | null,
  found: Progress | null,
  now: Millis,
): CommitLoss | null {
  if (acknowledged === null || (found?.counter ?? 0) >= acknowledged.counter) return null;
  if (found === null && acknowledged.usedAt < now - nodeRetention) return null;
  const batches = acknowledged.counter - (found?.counter ?? 0);
  return { batches, from: found?.usedAt ?? null, to: acknowledged.usedAt };
}
