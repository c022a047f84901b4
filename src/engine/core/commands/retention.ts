import type { Decision, Draft, ExpiredRows } from "../decision/command.ts";
import { removeDeadLetter } from "../deadLetters/dlq.ts";
import { readIdTime } from "../values/ids.ts";
import { forgetMessage } from "../search/tags.ts";
import { type BodyLimit, readLimit, readLimits, readMessageBytes, serverLimit } from "../accounts/plans.ts";
import { recordsEnd } from "../explain/listedState.ts";
import type { LogRow } from "../model/logRow.ts";
import type { WithoutBody } from "../model/message.ts";
import type { RunKey } from "../model/runPost.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { Run, Step } from "../model/run.ts";
import { hasStorageQuota } from "../limits/storageQuota.ts";
import { toDayNumber, readTimeIndexDay } from "../search/timeIndex.ts";
import type { AccountLimits, Terms } from "../model/accountTerms.ts";
import { isExpiredBucket, listExpiredBucketRanges, removeBuckets } from "../accounts/usage.ts";
import { day } from "../values/time.ts";

/** How long history is kept. Without `audit`, the audit log is kept for `defaultAuditRetention`. */
export type Retention = { log: Millis; deadLetters: Millis; audit?: Millis };

/** How long the audit log is kept unless `Retention` says otherwise. */
const defaultAuditRetention: Millis = 90 * day;

/**
 * Returns how long the history of an account is kept: the retention of the server, or the limit of the
 * account if that is shorter.
 */
export const retentionFor = (account: Terms, retention: Retention): Required<Retention> => ({
  log: Math.min(retention.log, readLimits(account).logRetention),
  deadLetters: Math.min(retention.deadLetters, readLimits(account).deadLetterRetention),
  audit: Math.min(readAuditRetention(retention), readLimits(account).auditRetention),
});

/** The result of a removal. `removed` is the number of rows. `more`: more rows may be left to remove. */
export type ExpiryResult = { removed: number; more: boolean };

/**
 * Returns the limits of an account on a server: its own or those of its plan, reduced to the settings of the
 * server.
 */
export function readServerLimits(
  account: Terms,
  { retention, maxQueues = Infinity, maxBody }: { retention: Retention; maxQueues?: number } & BodyLimit,
): AccountLimits {
  const { log, deadLetters, audit } = retentionFor(account, retention);
  const accountLimits = readLimits(account);
  return {
    ...accountLimits,
    messageBytes: readMessageBytes(account, { maxBody }),
    queues: Math.min(accountLimits.queues, maxQueues),
    logRetention: log,
    deadLetterRetention: deadLetters,
    auditRetention: audit,
  };
}

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

const dropOldDeadLetter: typeof removeDeadLetter = (draft, deadLetter, logBefore) => {
  removeDeadLetter(draft, deadLetter, logBefore);
  draft.record("dead letter expired");
};

/** Returns how long the audit log is kept. */
export const readAuditRetention = ({ audit = defaultAuditRetention }: Retention): Millis => audit;

/**
 * Removes the oldest entries of the log. If the entry that ended a message is among them and the message has
 * no dead letter, the whole log of the message is removed. Entries of other messages move to the kept log.
 * They are removed later, with the entry that ends their message, or with its dead letter. Returns the number
 * of removed entries.
 */
function removeLogEntries(draft: Draft, rows: readonly LogRow[]): number {
  const endsByMessage = new Map(
    rows.filter((row) => recordsEnd(row) && !isDeadLetter(draft, row)).map((row) => [row.messageId, row]),
  );
  let removed = 0;
  for (const row of rows) {
    if (!endsByMessage.has(row.messageId)) {
      draft.moveToKeptLog(row);
      continue;
    }
    draft.drop("log", row.account, row.id);
    removed++;
  }
  for (const row of endsByMessage.values()) removed += forgetMessage(draft, row);
  return removed;
}

/** Removes all entries of these messages from the kept log. Returns their number. */
function removeKeptLog(draft: Draft, rows: readonly LogRow[]): number {
  let removed = 0;
  for (const { account, messageId } of rows) {
    const kept = draft.listKeptLog(account, messageId);
    for (const { id } of kept) draft.drop("keptLog", account, id);
    removed += kept.length;
  }
  return removed;
}

/**
 * The lists of an account that have a limit on their length, and the names of these limits. The limit of the
 * log applies to the log and to the kept log separately.
 */
export const limitedLists = {
  log: "logEntries",
  keptLog: "logEntries",
  deadLetters: "deadLetters",
  audit: "auditEntries",
} as const;
/** A list that has a limit on its length. */
export type LimitedList = keyof typeof limitedLists;

/**
 * The number of audit entries that an account with a storage quota keeps, unless its limit is lower. A quota
 * never refuses audit entries, so their number is limited instead.
 */
const auditEntriesWithQuota = 100_000;

/** Returns how long a list of an account may be. Null: it has no limit. */
export function readListLimit(account: Terms, list: LimitedList): number | null {
  const limit = readLimit(account, limitedLists[list]);
  const maxLength =
    list === "audit" && hasStorageQuota(account) ? Math.min(limit, auditEntriesWithQuota) : limit;
  return maxLength < serverLimit(limitedLists[list]) ? maxLength : null;
}

/**
 * For each list, the newest entry that exceeds a limit, with that limit. All older entries exceed the limit
 * as well. Null: no entry exceeds it.
 */
type OverLimit = Record<LimitedList, OverLimitEntry | null>;
type OverLimitEntry = { id: string; limit: number };
type TrimInput = { account: AccountId; tooMany: OverLimit; limit: number };

/**
 * Trims the log, the kept log, the audit log and the dead letters of an account to their limits. Removes the
 * given entries and older ones, at most `limit` of each list. Log entries of messages that are unfinished or
 * have a dead letter move to the kept log. The account counts the removed entries, except those of its audit
 * log.
 *
 * The given entries were looked up earlier. If the limit of the account has been raised since, nothing is
 * removed. If dead letters have been removed since, for example by a retry, as many more are kept: the limit
 * is never undershot. The other lists lose their oldest entries first, except that the kept log also loses
 * the entries of messages that are forgotten.
 */
export const trim: Decision<TrimInput, ExpiryResult> = {
  decide: (input, draft) => {
    const account = draft.get("accounts", input.account);
    const found = account
      ? listOverLimit(draft, { ...input, tooMany: recheckOverLimit(account, input.tooMany) })
      : noRows;
    const { log, keptLog, deadLetters, audit } = found;
    for (const { account: owner, id } of audit) draft.drop("audit", owner, id);
    for (const deadLetter of deadLetters) dropOldDeadLetter(draft, deadLetter, 0);
    const entries = removeKeptLog(draft, keptLog) + removeLogEntries(draft, log);
    const counted = entries + deadLetters.length;
    if (account && counted > 0) {
      const { dropped = { log: 0, deadLetters: 0 } } = account;
      draft.put("accounts", {
        ...account,
        dropped: { log: dropped.log + entries, deadLetters: dropped.deadLetters + deadLetters.length },
      });
    }
    return {
      removed: counted + audit.length,
      more: Object.values(found).some((rows) => rows.length >= input.limit),
    };
  },
};

/**
 * Returns the end of the millisecond in which an entry was written. Several entries can have the same
 * millisecond; their ids decide which of them are removed.
 */
const afterIdTime = (last: OverLimitEntry | null): Millis => (last === null ? 0 : readIdTime(last.id) + 1);

const noRows = { log: [], keptLog: [], deadLetters: [], audit: [] };

function recheckOverLimit(account: Terms, tooMany: OverLimit): OverLimit {
  const recheck = (list: LimitedList): OverLimitEntry | null => {
    const entry = tooMany[list];
    return entry && (readListLimit(account, list) ?? Infinity) <= entry.limit ? entry : null;
  };
  return {
    log: recheck("log"),
    keptLog: recheck("keptLog"),
    deadLetters: recheck("deadLetters"),
    audit: recheck("audit"),
  };
}

function listOverLimit(draft: Draft, { account, tooMany, limit }: TrimInput) {
  const { log, keptLog, deadLetters, audit, deadLetterCount } = draft.expired({
    account,
    limit,
    countsDeadLetters: tooMany.deadLetters !== null,
    logBefore: afterIdTime(tooMany.log),
    deadLettersBefore: afterIdTime(tooMany.deadLetters),
    keptLogBefore: afterIdTime(tooMany.keptLog),
    auditBefore: afterIdTime(tooMany.audit),
    deduplicationsBefore: 0,
    runsBefore: 0,
    failedRunsBefore: 0,
    timeIndexBefore: 0,
    usage: [],
  });
  const excess = Math.max(0, deadLetterCount - (tooMany.deadLetters?.limit ?? deadLetterCount));
  return {
    audit: audit.filter(({ id }) => id <= (tooMany.audit?.id ?? "")),
    log: log.filter(({ id }) => id <= (tooMany.log?.id ?? "")),
    keptLog: keptLog.filter(({ id }) => id <= (tooMany.keptLog?.id ?? "")),
    deadLetters: deadLetters.filter(({ id }) => id <= (tooMany.deadLetters?.id ?? "")).slice(0, excess),
  };
}

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

const isDeadLetter = (draft: Draft, row: LogRow): boolean =>
  row.dlqId !== null && draft.getWithoutBody("deadLetters", row.account, row.dlqId) !== undefined;
