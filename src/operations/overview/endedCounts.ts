import { bucketRangeFrom } from "../../engine/core/accounts/usage.ts";
import { tagPrefix, toTag } from "../../engine/core/search/tags.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { hour } from "../../engine/core/values/time.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { CountUpTo } from "./situation.ts";

/** How many messages and runs have ended, by how they ended. */
export type EndedCounts = {
  messages: Readonly<Record<"delivered" | "failed" | "cancelled", CountUpTo>>;
  runs: Readonly<Record<"succeeded" | "cancelled", CountUpTo>>;
};

/** Messages and runs that have ended are counted up to this number. */
export const maxEndedCount = 1_000;
const bucketLength: Millis = 3 * hour;
const maxBuckets = 10_000;

/** The tags of what has ended. Delivered messages have none, because nearly all messages are delivered. */
const tagged = [
  tagPrefix("log", toTag.state("FAILED")),
  tagPrefix("log", toTag.state("CANCELLED")),
  tagPrefix("runs", toTag.state("RUN_SUCCESS")),
  tagPrefix("runs", toTag.state("RUN_CANCELED")),
];

/**
 * Returns how many messages and runs of an account have ended and are still listed. `logFrom`: when the log
 * begins. Delivered messages are counted from the beginning of its first 3 hours.
 */
export async function countEnded(
  storageReads: StorageReads,
  account: AccountId,
  logFrom: Millis,
): Promise<EndedCounts> {
  const from = Math.max(0, Math.floor(logFrom / bucketLength) * bucketLength);
  const [usage, [failed = 0, cancelled = 0, succeeded = 0, runsCancelled = 0]] = await Promise.all([
    storageReads.range("usage", { account, ...bucketRangeFrom("3h", from), limit: maxBuckets }),
    storageReads.countTags({
      account,
      ranges: tagged.map((prefix) => ({ after: prefix, before: `${prefix}~` })),
      limit: maxEndedCount + 1,
    }),
  ]);
  const delivered = usage.reduce((sum, one) => sum + one.delivered + one.workflowDelivered, 0);
  return {
    messages: {
      delivered: toCountUpTo(delivered),
      failed: toCountUpTo(failed),
      cancelled: toCountUpTo(cancelled),
    },
    runs: { succeeded: toCountUpTo(succeeded), cancelled: toCountUpTo(runsCancelled) },
  };
}

const toCountUpTo = (count: number): CountUpTo => ({
  count: Math.min(count, maxEndedCount),
  more: count > maxEndedCount,
});
