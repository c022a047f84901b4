import { readQuantile } from "../../engine/core/accounts/hostStatistics.ts";
import type { PointRange } from "../../engine/core/accounts/statistics.ts";
import { tagPrefix, toTag } from "../../engine/core/search/tags.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";
import { firstIdAt } from "../../engine/core/values/ids.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";

/**
 * The attempts of one point of time, from the log. `retried`: failed ones that the server planned to repeat;
 * null if the log does not go back that far. `p95`: the duration that 95 % of a sample did not exceed; null
 * if there is none.
 */
export type AttemptPoint = { retried: number | null; p95: Millis | null };

/** The retries of one point are counted up to this number. */
export const maxRetried = 2_000;
/** The log entries of all points together among which the attempts are whose durations are shown. */
export const sampledEntries = 6_000;

const retries = tagPrefix("log", toTag.state("RETRY"));

/** Returns the attempts of an account in each point of a range. `logFrom`: when the log begins. */
export async function readAttemptPoints(
  storageReads: StorageReads,
  account: AccountId,
  { from, step, points, logFrom }: PointRange & { logFrom: Millis },
): Promise<AttemptPoint[]> {
  const spans = Array.from({ length: points }, (_, at) => {
    const start = from + at * step;
    return { start, after: firstIdAt("log", start), before: firstIdAt("log", start + step) };
  });
  const kept = spans.filter(({ start }) => start >= logFrom);
  const counts = await storageReads.countTags({
    account,
    ranges: kept.map(({ after, before }) => ({ after: retries + after, before: retries + before })),
    limit: maxRetried,
  });
  const limit = Math.floor(sampledEntries / points);
  const samples = await Promise.all(
    kept.map(({ after, before }) =>
      storageReads.range("log", { account, after, before, descending: true, limit, bodies: false }),
    ),
  );
  const found = kept.map((_, at): AttemptPoint => {
    const durations = (samples[at] ?? []).flatMap(({ attempt }) => attempt?.duration ?? []);
    return {
      retried: counts[at] ?? 0,
      p95: readQuantile(
        durations.sort((one, other) => one - other),
        0.95,
      ),
    };
  });
  const missing = spans.slice(kept.length).map((): AttemptPoint => ({ retried: null, p95: null }));
  return [...missing, ...found];
}
