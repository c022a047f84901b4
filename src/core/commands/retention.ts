import type { Decision, Draft, Key, Needs } from "../decision/command.ts";
import { needsOfRemoval, removeDeadLetter } from "./dlq.ts";
import { birthOf } from "../values/ids.ts";
import { forgetMessage } from "../search/tags.ts";
import type { AccountId, LogRow, Millis, RunKey } from "../model/message.ts";
import { limitOf, limitsOf, mostOf } from "../accounts/plans.ts";
import type { Run, Step } from "../model/run.ts";
import { hasStorageQuota } from "../accounts/storageQuota.ts";
import { dayOf, dayOfSighting } from "../search/timeIndex.ts";
import type { AccountLimits, Terms } from "../model/accountTerms.ts";
import { carriedId, isPastBucket, pastBuckets, removeBuckets } from "../accounts/usage.ts";
import { day } from "../values/time.ts";

/** How long history is kept. The audit log: see `auditRetention` where it is not said. */
export type Retention = { log: Millis; deadLetters: Millis; audit?: Millis };

/** How long the audit log is kept where nothing is said. */
const auditRetention: Millis = 90 * day;

/** How long history of an account is kept: neither logs nor dead letters nor its audit log longer than its own limits. */
export const retentionFor = (account: Terms, retention: Retention): Required<Retention> => ({
  log: Math.min(retention.log, limitsOf(account).logRetention),
  deadLetters: Math.min(retention.deadLetters, limitsOf(account).deadLetterRetention),
  audit: Math.min(auditOf(retention), limitsOf(account).auditRetention),
});

/** More is past its time than one command removes. */
export type Expired = { removed: number; more: boolean };

/** The limits that hold for an account on a server: its own or those of its plan, as far as the settings of the server go. */
export function limitsOnServer(
  account: Terms,
  { retention, mostQueues = Infinity }: { retention: Retention; mostQueues?: number },
): AccountLimits {
  const { log, deadLetters, audit } = retentionFor(account, retention);
  const most = limitsOf(account);
  return {
    ...{ ...most, queues: Math.min(most.queues, mostQueues) },
    ...{ logRetention: log, deadLetterRetention: deadLetters, auditRetention: audit },
  };
}

/**
 * Removes what is past its time in an account: log rows, dead letters, deduplication keys, buckets of usage, entries of the
 * audit log, sightings; a bounded number, oldest first.
 *
 * The log of a message goes as a whole, and with it all that is kept of the message: see `removeEntries`.
 */
export const expire: Decision<{ account: AccountId; retention: Retention; now: Millis; limit: number }, Expired> = {
  needs: ({ account, retention, now, limit }) => ({
    accounts: [[account]],
    usage: [[account, carriedId]],
    expired: [
      {
        ...{ account, limit, keptLogBefore: 0 },
        ...{ logBefore: now - retention.log, deadLettersBefore: now - retention.deadLetters, deduplicationsBefore: now },
        ...{ auditBefore: now - auditOf(retention), sightingsBefore: now - retention.log },
        ...runsBefore(now, retention),
        usage: pastBuckets(now),
      },
    ],
  }),
  further: ({ account }, draft) => needsOfEnds(draft.expired(account)),
  decide: ({ account, retention, now, limit }, draft, moment) => {
    const found = draft.expired(account);
    const past = pastOnes(found, retention, Math.min(now, moment.now));
    const { log, deadLetters, deduplications, audit, runs, steps, usage, sightings } = past;
    for (const letter of deadLetters) removeDeadLetter(draft, letter, moment.now - retention.log);
    const gone = removeEntries(draft, log);
    for (const { account, key } of deduplications) draft.drop("deduplications", account, key);
    for (const { account, id } of audit) draft.drop("audit", account, id);
    for (const { account, id } of sightings) draft.drop("sightings", account, id);
    const isGone = draft.get("accounts", account)?.deletedAt !== undefined;
    removeBuckets(draft, account, usage, { keepsBalances: !isGone });
    const ended = removeRuns(draft, { runs, steps, open: openOf(found, limit) }) + usage.length + audit.length;
    const removed = gone + deadLetters.length + deduplications.length + sightings.length + ended;
    return { removed, more: Object.values(past).some((rows) => rows.length >= limit) };
  },
};

/** How long the audit log is kept. */
export const auditOf = ({ audit = auditRetention }: Retention): Millis => audit;

/** Returns the rows that a removal of these needs: for entries that ended a message, its dead letter and its entries in the kept log. */
function needsOfEnds({ log, keptLog, deadLetters }: Pick<ReturnType<Draft["expired"]>, "log" | "keptLog" | "deadLetters">): Needs {
  const ends = log.filter(hasEnded);
  const removal = needsOfRemoval(deadLetters);
  return {
    outlines: { deadLetters: ends.flatMap(({ account, dlqId }) => (dlqId === null ? [] : [[account, dlqId] as const])) },
    log: removal.log,
    keptOf: [...ends, ...keptLog].map(({ account, messageId }): Key => [account, messageId]).concat(removal.keptOf),
  };
}

/**
 * Removes the oldest entries of the log, each with the whole log of its message. If the message has not ended with one of them, or has a dead
 * letter, the entry moves to the kept log, and goes with the entry that ends the message, or with the dead letter. Returns how many went.
 */
function removeEntries(draft: Draft, rows: readonly LogRow[]): number {
  const over = new Map(rows.filter((row) => hasEnded(row) && !isDeadLetter(draft, row)).map((row) => [row.messageId, row]));
  let gone = 0;
  for (const row of rows) {
    if (!over.has(row.messageId)) {
      draft.keep(row);
      continue;
    }
    draft.drop("log", row.account, row.id);
    gone++;
  }
  for (const row of over.values()) gone += forgetMessage(draft, row);
  return gone;
}

/** Removes from the kept log all entries of the messages of these rows. Returns how many went. */
function removeKept(draft: Draft, rows: readonly LogRow[]): number {
  let gone = 0;
  for (const { account, messageId } of rows) {
    const kept = draft.keptOf(account, messageId);
    for (const { id } of kept) draft.drop("keptLog", account, id);
    gone += kept.length;
  }
  return gone;
}

/** The lists of an account that have a limit on their length, and what the limit is called. The kept log is counted apart from the log. */
export const limitedLists = { log: "logEntries", keptLog: "logEntries", deadLetters: "deadLetters", audit: "auditEntries" } as const;
/** A list that has a limit on its length. */
export type LimitedList = keyof typeof limitedLists;

/** Entries of the audit log that an account with a storage quota keeps, unless its limit says less: audit entries are never refused. */
const auditEntriesWithQuota = 100_000;

/** Returns how long a list of an account may be. Null: it has no limit. */
export function longestList(account: Terms, list: LimitedList): number | null {
  const limit = limitOf(account, limitedLists[list]);
  const most = list === "audit" && hasStorageQuota(account) ? Math.min(limit, auditEntriesWithQuota) : limit;
  return most < mostOf(limitedLists[list]) ? most : null;
}

/** For each list, its newest entry that is too many, with the limit that it is beyond. All older ones are too many as well. Null: none is. */
type TooMany = Record<LimitedList, OneTooMany | null>;
type OneTooMany = { id: string; most: number };

/**
 * Removes the oldest entries of the log and of the audit log, and the oldest dead letters, if the account has more than it may: those up to the given ones, a bounded
 * number. Entries of messages that are unfinished or have a dead letter move to the kept log, which is trimmed in the same way. The account counts what is removed, but for
 * its audit log. If the account may have more meanwhile, nothing is removed.
 */
export const trim: Decision<{ account: AccountId; tooMany: TooMany; limit: number }, Expired> = {
  needs: ({ account, tooMany: { log, deadLetters, keptLog, audit }, limit }) => ({
    accounts: [[account]],
    expired: [
      {
        ...{ account, limit, logBefore: afterBirth(log), deadLettersBefore: afterBirth(deadLetters), keptLogBefore: afterBirth(keptLog) },
        ...{ auditBefore: afterBirth(audit), deduplicationsBefore: 0, runsBefore: 0, failedRunsBefore: 0, sightingsBefore: 0, usage: [] },
      },
    ],
  }),
  further: (input, draft) => needsOfEnds(tooManyOf(draft, input)),
  decide: (input, draft) => {
    const account = draft.get("accounts", input.account);
    const found = account ? tooManyOf(draft, { ...input, tooMany: stillTooMany(account, input.tooMany) }) : nothing;
    const { log, keptLog, deadLetters, audit } = found;
    for (const { account: owner, id } of audit) draft.drop("audit", owner, id);
    for (const letter of deadLetters) removeDeadLetter(draft, letter, 0);
    const entries = removeKept(draft, keptLog) + removeEntries(draft, log);
    const counted = entries + deadLetters.length;
    if (account && counted > 0) {
      const { dropped = { log: 0, deadLetters: 0 } } = account;
      draft.put("accounts", {
        ...account,
        dropped: { log: dropped.log + entries, deadLetters: dropped.deadLetters + deadLetters.length },
      });
    }
    return { removed: counted + audit.length, more: Object.values(found).some((rows) => rows.length >= input.limit) };
  },
};

/** Several may be born in the same millisecond: which of them go is told by their ids. */
const afterBirth = (last: OneTooMany | null): Millis => (last === null ? 0 : birthOf(last.id) + 1);

const nothing = { log: [], keptLog: [], deadLetters: [], audit: [] };

function stillTooMany(account: Terms, tooMany: TooMany): TooMany {
  const still = (list: LimitedList): OneTooMany | null => {
    const one = tooMany[list];
    return one && (longestList(account, list) ?? Infinity) <= one.most ? one : null;
  };
  return { log: still("log"), keptLog: still("keptLog"), deadLetters: still("deadLetters"), audit: still("audit") };
}

function tooManyOf(draft: Draft, { account, tooMany }: { account: AccountId; tooMany: TooMany }) {
  const { log, keptLog, deadLetters, audit } = draft.expired(account);
  return {
    audit: audit.filter(({ id }) => id <= (tooMany.audit?.id ?? "")),
    log: log.filter(({ id }) => id <= (tooMany.log?.id ?? "")),
    keptLog: keptLog.filter(({ id }) => id <= (tooMany.keptLog?.id ?? "")),
    deadLetters: deadLetters.filter(({ id }) => id <= (tooMany.deadLetters?.id ?? "")),
  };
}

/** A run that has failed stays for as long as it can be resumed. */
const runsBefore = (now: Millis, { log, deadLetters }: Retention): { runsBefore: Millis; failedRunsBefore: Millis } => ({
  runsBefore: now - log,
  failedRunsBefore: now - Math.max(log, deadLetters),
});

/** Removes the histories of runs, and those runs that have none left: not the `open` ones. How many rows. */
function removeRuns(
  draft: Draft,
  { runs, steps, open }: { runs: readonly Run[]; steps: readonly Step[]; open: ReadonlySet<RunKey> },
): number {
  for (const { account, id } of steps) draft.drop("steps", account, id);
  const emptied = runs.filter(({ id }) => !open.has(id));
  for (const { account, id } of emptied) draft.drop("runs", account, id);
  return steps.length + emptied.length;
}

/** Runs of which not all steps may have been found: steps come in the order of the runs, and behind the last one may be more. */
function openOf({ runs, steps }: Pick<ReturnType<Draft["expired"]>, "runs" | "steps">, limit: number): ReadonlySet<RunKey> {
  if (steps.length < limit) return new Set();
  return new Set(runs.slice(runs.findIndex(({ id }) => id === steps.at(-1)?.run)).map(({ id }) => id));
}

/** Whoever asks may have a clock that is ahead, and history would be gone before its time: the moment of the store decides. */
function pastOnes(rows: ReturnType<Draft["expired"]>, retention: Retention, now: Millis): ReturnType<Draft["expired"]> {
  const { log, deadLetters } = retention;
  const before = runsBefore(now, retention);
  const runs = rows.runs.filter(
    ({ endedAt, state }) => endedAt !== null && endedAt < (state === "RUN_FAILED" ? before.failedRunsBefore : before.runsBefore),
  );
  const keys = new Set(runs.map(({ id }) => id));
  return {
    log: rows.log.filter(({ id }) => birthOf(id) < now - log),
    // It goes with its messages.
    keptLog: [],
    deadLetters: rows.deadLetters.filter(({ id }) => birthOf(id) < now - deadLetters),
    deduplications: rows.deduplications.filter(({ expiresAt }) => expiresAt < now),
    audit: rows.audit.filter(({ time }) => time < now - auditOf(retention)),
    runs,
    steps: rows.steps.filter(({ run }) => keys.has(run)),
    usage: rows.usage.filter((bucket) => isPastBucket(bucket, now)),
    sightings: rows.sightings.filter(({ id }) => dayOfSighting(id) < dayOf(now - log)),
  };
}

const hasEnded = ({ states }: LogRow): boolean =>
  states.some((state) => state === "DELIVERED" || state === "FAILED" || state === "CANCELLED");

const isDeadLetter = (draft: Draft, row: LogRow): boolean =>
  row.dlqId !== null && draft.outline("deadLetters", row.account, row.dlqId) !== undefined;
