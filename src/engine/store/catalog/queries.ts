import { createRunQueries } from "../queries/runs.ts";
import type { DeadLetterEntry } from "../queries/deadLetters.ts";
import { groupDeadLetters, withRuns } from "../queries/deadLetters.ts";
import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import { readIdTime } from "../../core/values/ids.ts";
import { memory, spans } from "../../core/values/limits.ts";
import type { LimitedList } from "../../core/limits/listLimits.ts";
import type { Retention } from "../../core/accounts/retention.ts";
import { readAuditRetention } from "../../core/accounts/retention.ts";
import { readTimeIndexDay, startOfDay } from "../../core/search/timeIndex.ts";
import type { EndState } from "../../core/explain/listedState.ts";
import type { StoreFigures } from "../../core/explain/storeCounts.ts";
import { isOutcome, readEndState } from "../../core/explain/listedState.ts";
import type { WaitState } from "../../core/explain/whyWaiting.ts";
import type { Token } from "../../core/model/rights.ts";
import type { Account } from "../../core/model/account.ts";
import type { AccountId, MessageId, Millis } from "../../core/values/basics.ts";
import type { Deduplication } from "../../core/model/deduplication.ts";
import type { StoredMessage, WithoutBody } from "../../core/model/message.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import { recordsEnd } from "../../core/model/logRow.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { WebhookSource } from "../../core/model/webhookSource.ts";
import { isUnfinished } from "../../core/model/messageState.ts";
import type { Usage } from "../../core/model/counts.ts";
import type { BucketSize } from "../../core/accounts/usage.ts";
import type { PulledHost } from "../queries/pulledWork.ts";
import { findPulledWork } from "../queries/pulledWork.ts";
import {
  bucketRangeFrom,
  bucketRanges,
  listSourceCountKeys,
  startOfBucket,
  sumSourceCalls,
  worthRemovingAt,
} from "../../core/accounts/usage.ts";
import { operations } from "../../../operations/stored.ts";
import type { StoredConditionFacts } from "../queries/conditionFacts.ts";
import { readConditionFacts } from "../queries/conditionFacts.ts";
import type { CausePage, CauseQuery } from "../queries/causes.ts";
import { groupByCause, listWithoutCause } from "../queries/causes.ts";
import type {
  DeadLetterPage,
  DeadLetterQuery,
  FailureGroupPage,
  GroupQuery,
} from "../queries/deadLetters.ts";
import { listDeadLetters } from "../queries/deadLetters.ts";
import type { LogPage } from "../queries/logs.ts";
import { readLogPage, readNewestLogTime } from "../queries/logs.ts";
import { hasData } from "./hasData.ts";
import type { HoldersPage, HoldersQuery } from "../queries/holders.ts";
import { readHolders } from "../queries/holders.ts";
import type { RunLogPage, RunLogQuery } from "../queries/runLogs.ts";
import { readRunLogPage } from "../queries/runLogs.ts";
import type { UnfinishedPage } from "../queries/unfinished.ts";
import { findUnfinished, listUnfinished } from "../queries/unfinished.ts";
import type { UnfinishedQuery } from "../queries/unfinishedSets.ts";
import { readWaitState } from "../queries/waitState.ts";
import { withKeptLog } from "../queries/wholeLog.ts";
import type {
  ListQuery,
  OldestDue,
  QueueNeed,
  Range,
  EncryptedTableName,
  EncryptionStatus,
  EncryptionRange,
  StorageReads,
  StoredSum,
} from "../layout/storageReads.ts";
import { countFittingPage } from "../layout/storageReads.ts";

type UnfinishedIds = { messageIds: MessageId[]; cursor: string | null };
/**
 * A message and its state. While it is unfinished, `finishedAt` and `ended` are null. `dlqId` is the id of
 * its dead letter, if that still exists.
 */
export type MessageView = {
  message: StoredMessage;
  state: MessageState | null;
  finishedAt: Millis | null;
  ended: { state: EndState; dlqId: string | null } | null;
  /** The log entries of the newest attempts that have ended, newest first. */
  outcomes: readonly LogRow[];
  /** The row of the deduplication key of the message, if somebody has the key. */
  deduplication: Deduplication | null;
};

/** The result of `Queries.findOverLimit`. */
export type OverLimitRow = { id: string | null; count: number };

/** Tables with few rows per account, which are listed as they are: configuration, and rejections. */
export type ResourceTableName = "urlGroups" | "limiters" | "schedules" | "sources" | "tokens" | "rejections";

const maxCountedLeases = 10_000;
const maxLeasedFigure = 100_000;
const maxSlots = 1_000;

/**
 * Returns all queries of a store. Each query consists of a few plain reads, so that a storage makes no
 * decisions. A new query is one entry in one of the functions below. Creating the queries reads nothing.
 */
export const createQueries = (storageReads: StorageReads) => ({
  ...createAccountQueries(storageReads),
  ...createMessageQueries(storageReads),
  ...createDeadLetterQueries(storageReads),
  ...createRunQueries(storageReads),
  /** Returns runs with all that is known of their steps, newest first. */
  runLog: (query: RunLogQuery): Promise<RunLogPage> => readRunLogPage(storageReads, query),
  ...createSituationQueries(storageReads),
  ...createSetUpQueries(storageReads),
  ...createUpkeepQueries(storageReads),
  ...operations.createQueries(storageReads),
});

/** All queries of a store. */
export type Queries = ReturnType<typeof createQueries>;

const rowsOneByOne =
  (storageReads: StorageReads) =>
  async <T extends TableName>(table: T, ...key: Key): Promise<Rows[T] | null> =>
    (await storageReads.rows(table, [key]))[0] ?? null;

/** Queries of accounts and of the callers of requests. */
function createAccountQueries(storageReads: StorageReads) {
  const one = rowsOneByOne(storageReads);
  return {
    account: (id: AccountId): Promise<Account | null> => one("accounts", id),
    accountByToken: (tokenHash: string): Promise<Account | null> => storageReads.accountByToken(tokenHash),
    accounts: (): Promise<readonly Account[]> => storageReads.accounts(),
    tokenByHash: (hash: string): Promise<Token | null> => storageReads.tokenByHash(hash),
    sourceBySecret: (secretHash: string): Promise<WebhookSource | null> =>
      storageReads.sourceBySecret(secretHash),
    /**
     * Returns how many deliveries of an account are in flight. The result is too low if more than 10,000
     * messages are due within the next seconds.
     */
    countInFlight: (account: AccountId, now: Millis): Promise<number> =>
      // Twice the lease covers the lease and the difference between the clocks of two nodes.
      storageReads.countLeased({ account, now, until: now + 2 * spans.lease, scan: maxCountedLeases }),
    /**
     * Returns the usage of an account from a time on, in buckets of one size. The buckets of all nodes are
     * returned in the order of their times.
     */
    usage: (account: AccountId, size: BucketSize, from: Millis): Promise<readonly Usage[]> =>
      readUsage(storageReads, { account, ...bucketRangeFrom(size, from), limit: usagePage }),
    /**
     * Returns how many bytes accounts store, in no order. Accounts that have stored nothing are omitted. If
     * `changedSince` is given, accounts whose bytes have not changed since that time are omitted too. One
     * statement reads 100 accounts: it looks for one changed bucket of each, and sums a few hundred buckets
     * of each account that has one.
     */
    storedBytes: (
      accounts: readonly AccountId[],
      changedSince: Millis | null,
    ): Promise<readonly StoredSum[]> => sumStoredBytes(storageReads, accounts, changedSince),
  };
}

/** Queries of messages and the log. */
function createMessageQueries(storageReads: StorageReads) {
  const one = rowsOneByOne(storageReads);
  /** Returns the id of the dead letter of a log entry, or null if it does not exist any more. */
  const keepExisting = async ({ account, dlqId }: LogRow): Promise<string | null> => {
    if (dlqId === null) return null;
    const found = await storageReads.rows("deadLetters", [[account, dlqId]], { bodies: false });
    return found[0]?.id ?? null;
  };
  return {
    /** Returns a message that exists, or whose log or dead letter does. */
    message: async (account: AccountId, id: MessageId): Promise<MessageView | null> => {
      const message = await one("storedMessages", account, id);
      const row = await one("messages", account, id);
      if (!message) return null;
      const state = row && isUnfinished(row) ? row : null;
      const log = await readNewestLog(storageReads, account, id);
      // The entries of two nodes within a few milliseconds may have another order than their transactions.
      const last = state ? undefined : (log.find(recordsEnd) ?? log[0]);
      const ended = last ? { state: readEndState(last), dlqId: await keepExisting(last) } : null;
      const outcomes = log.filter(isOutcome).slice(0, maxOutcomes);
      const { deduplication: key } = message;
      const deduplication = key === null ? null : await one("deduplications", account, key);
      return { message, state, finishedAt: last?.time ?? null, ended, outcomes, deduplication };
    },
    /** Returns the messages that exist, without their bodies, in any order. */
    storedMessages: (keys: readonly Key[]): Promise<readonly WithoutBody<StoredMessage>[]> =>
      storageReads.rows("storedMessages", keys, { bodies: false }),
    /**
     * Returns what an unfinished message waits for, or null if it is finished: see
     * `engine/core/explain/whyWaiting.ts`.
     */
    waitState: (account: AccountId, id: MessageId): Promise<WaitState | null> =>
      readWaitState(storageReads, account, id),
    /**
     * Returns unfinished messages that pass the filter, oldest first. With `belongsToRun: false`, messages of
     * runs are omitted. `cursor` is set if the page ends before the list does.
     */
    unfinished: async (query: Omit<UnfinishedQuery, "order" | "sort">): Promise<UnfinishedIds> => {
      const { entries, cursor } = await findUnfinished(storageReads, {
        ...query,
        sort: "created",
        order: "earliestFirst",
      });
      return { messageIds: entries.map(({ state }) => state.id), cursor };
    },
    /**
     * Returns a page of unfinished messages, with what each waits for and, if that is cheap, their number.
     */
    listUnfinished: (query: UnfinishedQuery): Promise<UnfinishedPage> => listUnfinished(storageReads, query),
    log: (query: ListQuery): Promise<LogPage> => readLogPage(storageReads, query),
    newestLogTime: (account: AccountId): Promise<Millis> => readNewestLogTime(storageReads, account),
    /** Returns who holds the slots of a queue or key, oldest first. Returns null if it does not exist. */
    holders: (query: HoldersQuery): Promise<HoldersPage | null> => readHolders(storageReads, query),
    /** Returns the oldest unfinished messages of a queue, including those that wait for their due time. */
    listQueueMessages: (of: QueueNeed): Promise<readonly MessageId[]> => storageReads.queueMessages(of),
    /**
     * Returns the first 1,000 messages that have a slot of a queue. A finished message is included while its
     * callbacks hold its slot.
     */
    listQueueSlots: async (account: AccountId, queue: string): Promise<MessageId[]> =>
      (await storageReads.queueSlots({ account, queue, limit: maxSlots })).map(({ id }) => id),
  };
}

/** Queries of dead letters. */
function createDeadLetterQueries(storageReads: StorageReads) {
  const one = rowsOneByOne(storageReads);
  return {
    deadLetter: async (account: AccountId, id: string): Promise<DeadLetterEntry | null> => {
      const deadLetter = await one("deadLetters", account, id);
      const message = deadLetter && (await one("storedMessages", account, deadLetter.messageId));
      if (!deadLetter || !message) return null;
      const entries = [{ deadLetter, message }];
      return (await withRuns(storageReads, account, entries))[0] ?? null;
    },
    /**
     * Returns a page of dead letters. With `bodies: false`, the size of the bodies does not limit the page,
     * and only the rows that the search needs are read.
     */
    deadLetters: (query: DeadLetterQuery): Promise<DeadLetterPage> => listDeadLetters(storageReads, query),
    /** Returns the dead letters that `deadLetters` would return for the same query, grouped by cause. */
    groupDeadLetters: (query: GroupQuery): Promise<FailureGroupPage> => groupDeadLetters(storageReads, query),
    /** Returns the largest groups of all dead letters of messages, and when each began and grew. */
    groupByCause: (query: CauseQuery): Promise<CausePage> => groupByCause(storageReads, query),
  };
}

/** Queries of what an account has to do, and how it goes. */
const createSituationQueries = (storageReads: StorageReads) => ({
  /** Returns what the conditions of an account depend on. */
  conditionFacts: (account: AccountId, now: Millis): Promise<StoredConditionFacts> =>
    readConditionFacts(storageReads, account, now),
  /** Returns the number of calls that each of these sources has accepted. */
  sourceCalls: async (account: AccountId, ids: readonly string[]): Promise<ReadonlyMap<string, number>> =>
    sumSourceCalls(await storageReads.rows("usage", listSourceCountKeys(account, ids))),
});

/** Queries of configuration. */
const createSetUpQueries = (storageReads: StorageReads) => ({
  /** Returns a row by its id or name. */
  findResource: <T extends ResourceTableName>(
    table: T,
    account: AccountId,
    id: string,
  ): Promise<Rows[T] | null> => rowsOneByOne(storageReads)(table, account, id),
  /**
   * Returns rows in the order of their ids or names. `before` and `after` are exclusive. If schedules or URL
   * groups are large, fewer rows than requested are returned. An empty result means the end.
   */
  listResources: async <T extends ResourceTableName>(table: T, range: Range): Promise<readonly Rows[T][]> => {
    if (table !== "schedules" && table !== "urlGroups") return storageReads.range(table, range);
    const sizes = await storageReads.rangeSizes(table, range);
    const bodies = countFittingPage(sizes.map(({ body }) => body));
    const settings = countFittingPage(
      sizes.map((size) => size.settings),
      memory.settings,
    );
    return storageReads.range(table, { ...range, limit: Math.min(bodies, settings) });
  },
});

/** Queries of upkeep: rows to remove or to encrypt again. */
const createUpkeepQueries = (storageReads: StorageReads) => ({
  /** Returns the figures of all accounts. Messages that are being sent are counted up to 100,000. */
  storeFigures: (): Promise<StoreFigures> => storageReads.storeFigures(maxLeasedFigure),
  /** Returns the earliest due time of each kind of rows that are claimed, of all accounts. */
  oldestDue: (): Promise<OldestDue> => storageReads.oldestDue(),
  /** Returns the hosts, of those given, at which messages wait, or that are pulled no more. */
  pulledWork: (hosts: readonly PulledHost[]): Promise<readonly PulledHost[]> =>
    findPulledWork(storageReads, hosts),
  /**
   * Skips the newest `limit` rows of an account and returns the id of the next row, or null if the account
   * has at most `limit` rows. Also returns the number of rows, counted up to `limit`. The query reads that
   * many entries of an index.
   */
  findOverLimit: async (table: LimitedList, account: AccountId, limit: number): Promise<OverLimitRow> => {
    const id = await storageReads.findIdBehind(table, account, limit);
    return { id, count: id === null ? await storageReads.count(table, { account, limit }) : limit };
  },
  /**
   * Returns how the secrets of rows are encrypted, in the order of their keys. A store in memory has no such
   * rows.
   */
  listEncryptionStatus: (
    table: EncryptedTableName,
    range: EncryptionRange,
  ): Promise<readonly EncryptionStatus[]> => storageReads.encryptionStatus(table, range),
  /** Returns the earliest time at which `expire` can remove a row of an account. */
  nextExpiryAt: (account: AccountId, retention: Retention): Promise<Millis | null> =>
    findNextExpiry(storageReads, account, retention),
  /** Returns dead letters of messages that have no cause, among those after an id. */
  deadLettersWithoutCause: (account: AccountId, after: string, limit: number) =>
    listWithoutCause(storageReads, account, { after, limit }),
  /**
   * Reports whether an account has any rows other than its own row, its request counts and its carried
   * balances.
   */
  hasData: (account: AccountId): Promise<boolean> => hasData(storageReads, account),
});

/** The outcomes of a message that its view shows. */
const maxOutcomes = 50;

/**
 * Returns the newest log entries of a message, newest first. Most attempts have two: ACTIVE, and an outcome.
 */
const readNewestLog = (
  storageReads: StorageReads,
  account: AccountId,
  id: MessageId,
): Promise<readonly LogRow[]> =>
  withKeptLog(storageReads).messageLog(id, { account, descending: true, limit: 2 * maxOutcomes });

const addSpan = (time: Millis | null, span: Millis): Millis | null => (time === null ? null : time + span);

const accountsPerRead = 100;

async function sumStoredBytes(
  storageReads: StorageReads,
  accounts: readonly AccountId[],
  changedSince: Millis | null,
): Promise<StoredSum[]> {
  const found: StoredSum[] = [];
  const changedBuckets =
    changedSince === null
      ? bucketRangeFrom("3h", 0)
      : bucketRangeFrom("1m", startOfBucket("1m", changedSince));
  for (let at = 0; at < accounts.length; at += accountsPerRead)
    found.push(...(await storageReads.storedBytes(accounts.slice(at, at + accountsPerRead), changedBuckets)));
  return found;
}

const usagePage = 5_000;

/** Returns a few hundred usage rows, or more if nodes have started and stopped often. */
async function readUsage(storageReads: StorageReads, range: Range): Promise<Usage[]> {
  const rows = [...(await storageReads.range("usage", range))];
  for (let last = rows.at(-1); last && rows.length % range.limit === 0;) {
    const page = await storageReads.range("usage", { ...range, after: last.id });
    rows.push(...page);
    last = page.at(-1);
  }
  return rows;
}

async function findNextExpiry(
  storageReads: StorageReads,
  account: AccountId,
  retention: Retention,
): Promise<Millis | null> {
  const [log] = await storageReads.range("log", { account, limit: 1, bodies: false });
  const [deadLetter] = await storageReads.range("deadLetters", { account, limit: 1, bodies: false });
  const buckets = await Promise.all(
    bucketRanges.map((ids) => storageReads.range("usage", { account, ...ids, limit: 1 })),
  );
  const [auditEntry] = await storageReads.range("audit", { account, limit: 1 });
  const [timeIndexRow] = await storageReads.range("timeIndex", { account, limit: 1 });
  const times = [
    auditEntry && auditEntry.time + readAuditRetention(retention),
    ...buckets.flat().map(worthRemovingAt),
    log && readIdTime(log.id) + retention.log,
    timeIndexRow && startOfDay(readTimeIndexDay(timeIndexRow.id) + 1) + retention.log,
    deadLetter && readIdTime(deadLetter.id) + retention.deadLetters,
    await storageReads.earliestDeduplicationEnd(account),
    addSpan(await storageReads.earliestRunEnd(account, { failed: false }), retention.log),
    addSpan(
      await storageReads.earliestRunEnd(account, { failed: true }),
      Math.max(retention.log, retention.deadLetters),
    ),
  ].filter((time) => typeof time === "number");
  // A row is removed only when its retention has passed, so 1 ms is added.
  return times.length === 0 ? null : Math.min(...times) + 1;
}
