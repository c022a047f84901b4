import type { Millis } from "../model/message.ts";

/** How far the batches of a node have come: how many changed something, and the time of the last one. */
export type Progress = { counter: number; usedAt: Millis };

/** What a database has lost: `batches` at the most, of a node, from the time `from` (null: not known) to the time `to`. */
export type CommitLoss = { batches: number; from: Millis | null; to: Millis };

/** The row of a node is removed when the node has changed nothing for this long. */
export const nodeRetention: Millis = 30 * 24 * 3600 * 1000;

/**
 * Returns what the database has lost of the batches that it acknowledged to a node; null if it has lost nothing. `found` is the row of
 * the node now. A commit whose outcome is not known does not count as acknowledged, so its loss is no loss. A row that was removed
 * because of its age proves nothing.
 */
export function detectLoss(acknowledged: Progress | null, found: Progress | null, now: Millis): CommitLoss | null {
  if (acknowledged === null || (found?.counter ?? 0) >= acknowledged.counter) return null;
  if (found === null && acknowledged.usedAt < now - nodeRetention) return null;
  const batches = acknowledged.counter - (found?.counter ?? 0);
  return { batches, from: found?.usedAt ?? null, to: acknowledged.usedAt };
}
