import type { Decision, Draft, ExpiredRows } from "../decision/command.ts";
import { readIdTime } from "../values/ids.ts";
import type { WithoutBody } from "../model/message.ts";
import type { RunKey } from "../model/runPost.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { Run, Step } from "../model/run.ts";
import { toDayNumber, readTimeIndexDay } from "../search/timeIndex.ts";
import { isExpiredBucket, listExpiredBucketRanges, removeBuckets } from "../accounts/usage.ts";
import type { Retention } from "../accounts/retention.ts";
import { readAuditRetention } from "../accounts/retention.ts";
import type { ExpiryResult } from "../accounts/retention.ts";
import { removeLogEntries } from "../admission/messageLog.ts";
import { dropOldDeadLetter } from "../deadLetters/dlq.ts";

/**
 * Removes expired rows of an account: log rows, dead letters, deduplication keys, usage buckets, audit
 * entries, ended runs and the time index. Removes at most `limit` rows of each, the oldest first.
 *
 * The log of a message is removed as a whole, together with everything else that is kept of the message: see
 * `removeLogEntries`. The time index of a day is removed after its log, because searches rely on it as long
 * as the log has entries of that day.
 */
export const expire: Decision<
  { account: AccountId; retention: Retention; now: Millis; limit: number },
  ExpiryResult
> = {
  decide: ({ account, retention, now, limit }, draft, moment) => {
    const found = draft.expired({
      account,
      limit,
      keptLogBefore: 0,
      logBefore: now - retention.log,
      deadLettersBefore: now - retention.deadLetters,
      deduplicationsBefore: now,
      auditBefore: now - readAuditRetention(retention),
      timeIndexBefore: now - retention.log,
      ...runsBefore(now, retention),
      usage: listExpiredBucketRanges(now),
    });
    const selected = selectExpired(found, retention, Math.min(now, moment.now));
    const expired = found.log.length < limit ? selected : { ...selected, timeIndex: [] };
    const { log, deadLetters, deduplications, audit, runs, steps, usage, timeIndex } = expired;
    for (const deadLetter of deadLetters) dropOldDeadLetter(draft, deadLetter, moment.now - retention.log);
    const removedEntries = removeLogEntries(draft, log);
    for (const { account, key } of deduplications) draft.drop("deduplications", account, key);
    for (const { account, id } of audit) draft.drop("audit", account, id);
    for (const { account, id } of timeIndex) draft.drop("timeIndex", account, id);
    const isGone = draft.get("accounts", account)?.deletedAt !== undefined;
    removeBuckets(draft, account, { buckets: usage, keepsBalances: !isGone });
    const removedOthers =
      removeRuns(draft, { runs, steps, incomplete: findIncompleteRuns(found, limit) }) +
      usage.length +
      audit.length;
    const removed =
      removedEntries + deadLetters.length + deduplications.length + timeIndex.length + removedOthers;
    return { removed, more: Object.values(expired).some((rows) => rows.length >= limit) };
  },
};

/**
 * Returns the times before which runs must have ended to be removed. A failed run stays as long as it can be
 * resumed.
 */
const runsBefore = (
  now: Millis,
  { log, deadLetters }: Retention,
): { runsBefore: Millis; failedRunsBefore: Millis } => ({
  runsBefore: now - log,
  failedRunsBefore: now - Math.max(log, deadLetters),
});

/**
 * Removes steps of runs, and the runs that then have no steps left. Runs that are `incomplete` may have more
 * steps, so they are kept. Returns the number of removed rows.
 */
function removeRuns(
  draft: Draft,
  {
    runs,
    steps,
    incomplete,
  }: { runs: readonly Run[]; steps: readonly WithoutBody<Step>[]; incomplete: ReadonlySet<RunKey> },
): number {
  for (const { account, id } of steps) draft.drop("steps", account, id);
  const emptied = runs.filter(({ id }) => !incomplete.has(id));
  for (const { account, id } of emptied) draft.drop("runs", account, id);
  return steps.length + emptied.length;
}

/**
 * Returns the runs that may have more steps than were found. Steps come in the order of their runs, so if the
 * limit was reached, these are the run of the last step and all later runs.
 */
function findIncompleteRuns(
  { runs, steps }: Pick<ExpiredRows, "runs" | "steps">,
  limit: number,
): ReadonlySet<RunKey> {
  if (steps.length < limit) return new Set();
  return new Set(runs.slice(runs.findIndex(({ id }) => id === steps.at(-1)?.run)).map(({ id }) => id));
}

/**
 * Returns the rows that have expired by the time of the store. The clock of the caller may be ahead; with its
 * time, history would be removed too early.
 */
function selectExpired(rows: ExpiredRows, retention: Retention, now: Millis): ExpiredRows {
  const { log, deadLetters } = retention;
  const before = runsBefore(now, retention);
  const runs = rows.runs.filter(
    ({ endedAt, state }) =>
      endedAt !== null && endedAt < (state === "RUN_FAILED" ? before.failedRunsBefore : before.runsBefore),
  );
  const keys = new Set(runs.map(({ id }) => id));
  return {
    log: rows.log.filter(({ id }) => readIdTime(id) < now - log),
    // The kept log is removed with its messages.
    keptLog: [],
    deadLetters: rows.deadLetters.filter(({ id }) => readIdTime(id) < now - deadLetters),
    deduplications: rows.deduplications.filter(({ expiresAt }) => expiresAt < now),
    audit: rows.audit.filter(({ time }) => time < now - readAuditRetention(retention)),
    runs,
    steps: rows.steps.filter(({ run }) => keys.has(run)),
    usage: rows.usage.filter((bucket) => isExpiredBucket(bucket, now)),
    timeIndex: rows.timeIndex.filter(({ id }) => readTimeIndexDay(id) < toDayNumber(now - log)),
  };
}
