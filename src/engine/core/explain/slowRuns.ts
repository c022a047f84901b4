import type { Run } from "../model/run.ts";
import type { Millis } from "../values/basics.ts";
import { minute } from "../values/time.ts";
import type { Condition } from "./condition.ts";
import { formatMany, formatSpan, makeCondition } from "./condition.ts";

/** The runs of a workflow that have not ended and take much longer than its runs usually do. */
export type SlowRuns = { url: string; count: number; since: Millis; usual: Millis };

type Started = Pick<Run, "url" | "createdAt">;
type Ended = Started & Pick<Run, "endedAt" | "state">;

/** A run is slow only after this time, even if its workflow usually takes milliseconds. */
export const slowAfter: Millis = 10 * minute;
/** A run is slow from this many times the duration that 95 % of the earlier runs did not exceed. */
const slowFactor = 4;
/** The successful runs from which it is known how long a workflow usually takes. */
const fewestEnded = 5;

/** Returns the workflows with runs that take longer than usual. `ended`: runs of late; others are ignored. */
export function findSlowRuns(active: readonly Started[], ended: readonly Ended[], now: Millis): SlowRuns[] {
  const durations = Map.groupBy(
    ended.filter(({ state, endedAt }) => state === "RUN_SUCCESS" && endedAt !== null),
    ({ url }) => url,
  );
  return [...Map.groupBy(active, ({ url }) => url)].flatMap(([url, runs]) => {
    const known = (durations.get(url) ?? [])
      .map(({ createdAt, endedAt }) => (endedAt ?? createdAt) - createdAt)
      .toSorted((a, b) => a - b);
    if (known.length < fewestEnded) return [];
    const usual = known[Math.ceil(0.95 * known.length) - 1] ?? 0;
    const limit = Math.max(slowAfter, slowFactor * usual);
    const slow = runs.filter(({ createdAt }) => now - createdAt >= limit);
    if (slow.length === 0) return [];
    return [{ url, count: slow.length, since: Math.min(...slow.map(({ createdAt }) => createdAt)), usual }];
  });
}

/** Returns the condition of slow runs. */
export const describeSlowRuns = ({ url, count, since, usual }: SlowRuns, now: Millis): Condition =>
  makeCondition({
    kind: "runs.slow",
    level: "warning",
    subject: url,
    text:
      `${formatMany(count, "run", "runs")} of ${url} ${count === 1 ? "takes" : "take"} longer than usual: ` +
      `the oldest began ${formatSpan(now - since)} ago, and 95 % end within ${formatUsual(usual)}`,
    since,
    count,
  });

const formatUsual = (usual: Millis): string => (usual < 1_000 ? "1 s" : formatSpan(usual));
