import { createRunQueries } from "./runs.ts";
import type { DeadLetterEntry } from "./deadLetters.ts";
import { withRuns } from "./deadLetters.ts";
import { toIdRange } from "./pages.ts";
import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Filter } from "../../core/search/filter.ts";
import { listWantedHosts, matchesFilter } from "../../core/search/filter.ts";
import { readIdTime } from "../../core/values/ids.ts";
import { memory, spans } from "../../core/values/limits.ts";
import type { LimitedList, Retention } from "../../core/commands/retention.ts";
import { readAuditRetention } from "../../core/commands/retention.ts";
import { readTimeIndexDay, startOfDay } from "../../core/search/timeIndex.ts";
import type { WaitState } from "../../core/sending/whyWaiting.ts";
import type { Token } from "../../core/model/rights.ts";
import type {
  Account,
  AccountId,
  StoredMessage,
  LogRow,
  MessageId,
  MessageState,
  Millis,
  WebhookSource,
} from "../../core/model/message.ts";
import { isUnfinished } from "../../core/model/message.ts";
import type { Usage } from "../../core/model/counts.ts";
import type { BucketSize } from "../../core/accounts/usage.ts";
import { bucketRangeFrom, bucketRanges, startOfBucket, worthRemovingAt } from "../../core/accounts/usage.ts";
import type { AuditPage, AuditQuery } from "./audit.ts";
import { readAuditPage } from "./audit.ts";
import type { DeadLetterPage } from "./deadLetters.ts";
import { listDeadLetters } from "./deadLetters.ts";
import { readChunks, readChunksToHosts, withMessages } from "./pages.ts";
import type { LogPage } from "./logs.ts";
import { readLogPage } from "./logs.ts";
import { pickTagLookup } from "./byTag.ts";
import { hasData } from "./hasData.ts";
import type { RunLogPage, RunLogQuery } from "./runLogs.ts";
import { readRunLogPage } from "./runLogs.ts";
import { readWaitState } from "./waitState.ts";
import { withKeptLog } from "./wholeLog.ts";
import type {
  BodyOptions,
  ListQuery,
  QueueNeed,
  Range,
  EncryptedTableName,
  EncryptionStatus,
  EncryptionRange,
  StorageReads,
  StoredSum,
} from "./storageReads.ts";
import { readMessages, countFittingPage, toKeys, scanLimit } from "./storageReads.ts";

type UnfinishedPage = { messageIds: MessageId[]; cursor: string | null };
/** `finishedAt`: null while it is not finished. */
export type MessageView = { message: StoredMessage; state: MessageState | null; finishedAt: Millis | null };

/** The ids of rows of which there are too many: see `Queries.findOverLimit`. */
export type OverLimitRow = { id: string | null; count: number };

/** Tables of what people set up, and of what came of it: few rows, so that they are listed as they are. */
export type ResourceTableName = "urlGroups" | "limiters" | "schedules" | "sources" | "tokens" | "rejections";

const maxCountedLeases = 10_000;
const maxSlots = 1_000;

/**
 * Returns every question that can be put to the store. Each is answered from a few plain reads, so that a storage has
 * nothing to decide. A new question is one entry in one of the tables below. Nothing is read before a question is put.
 */
export const createQueries = (storageReads: StorageReads) => ({
  ...createAccountQueries(storageReads),
  ...createMessageQueries(storageReads),
  ...createRunQueries(storageReads),
  /** Runs with all that is known of what they have done, newest first. */
  runLog: (query: RunLogQuery): Promise<RunLogPage> => readRunLogPage(storageReads, query),
  ...createSetUpQueries(storageReads),
  ...createUpkeepQueries(storageReads),
});

export type Queries = ReturnType<typeof createQueries>;

const rowsOneByOne =
  (storageReads: StorageReads) =>
  async <T extends TableName>(table: T, ...key: Key): Promise<Rows[T] | null> =>
    (await storageReads.rows(table, [key]))[0] ?? null;

/** Questions about accounts, and about who asks. */
function createAccountQueries(storageReads: StorageReads) {
  const one = rowsOneByOne(storageReads);
  return {
    account: (id: AccountId): Promise<Account | null> => one("accounts", id),
    accountByToken: (tokenHash: string): Promise<Account | null> => storageReads.accountByToken(tokenHash),
    accounts: (): Promise<readonly Account[]> => storageReads.accounts(),
    tokenByHash: (hash: string): Promise<Token | null> => storageReads.tokenByHash(hash),
    sourceBySecret: (secretHash: string): Promise<WebhookSource | null> => storageReads.sourceBySecret(secretHash),
    /** Who did what to the settings of an account, newest first. */
    audit: (query: AuditQuery): Promise<AuditPage> => readAuditPage(storageReads, query),
    /** How many deliveries of an account are under way. Where very much is due within the next seconds, fewer than there are. */
    countInFlight: (account: AccountId, now: Millis): Promise<number> =>
      // A lease is longer than the clocks of two nodes are apart.
      storageReads.countLeased({ account, now, until: now + 2 * spans.lease, scan: maxCountedLeases }),
    /** What an account has used from a time on, in buckets of one size, of all nodes: in the order of their times. */
    usage: (account: AccountId, size: BucketSize, from: Millis): Promise<readonly Usage[]> =>
      readUsage(storageReads, { account, ...bucketRangeFrom(size, from), limit: usagePage }),
    /**
     * Returns how many bytes accounts store, in no order; those that have stored nothing are absent, and with
     * `changedSince` those that have not changed since that time. One statement for every hundred accounts: it looks for
     * one bucket of each, and adds up some hundred buckets of those that have one.
     */
    storedBytes: (accounts: readonly AccountId[], changedSince: Millis | null): Promise<readonly StoredSum[]> =>
      sumStoredBytes(storageReads, accounts, changedSince),
  };
}

/** Questions about messages, dead letters and the log. */
function createMessageQueries(storageReads: StorageReads) {
  const one = rowsOneByOne(storageReads);
  return {
    message: async (account: AccountId, id: MessageId): Promise<MessageView | null> => {
      const message = await one("storedMessages", account, id);
      const row = await one("messages", account, id);
      if (!message) return null;
      const state = row && isUnfinished(row) ? row : null;
      const ended = state ? undefined : await findLastLogRow(storageReads, account, id);
      return { message, state, finishedAt: ended?.time ?? null };
    },
    /** What an unfinished message waits for: see `core/sending/whyWaiting.ts`. Null when it is finished. */
    waitState: (account: AccountId, id: MessageId): Promise<WaitState | null> => readWaitState(storageReads, account, id),
    /**
     * Unfinished messages that pass the filter, oldest first; with `ofRuns: false` none that a run waits for. `cursor` is
     * set when it stopped before the end.
     */
    unfinished: (query: Omit<ListQuery, "order">): Promise<UnfinishedPage> => listUnfinished(storageReads, query),
    deadLetter: async (account: AccountId, id: string): Promise<DeadLetterEntry | null> => {
      const deadLetter = await one("deadLetters", account, id);
      const message = deadLetter && (await one("storedMessages", account, deadLetter.messageId));
      return deadLetter && message ? ((await withRuns(storageReads, account, [{ deadLetter, message }]))[0] ?? null) : null;
    },
    /** `bodies: false`: as many as were asked for, and no more of each than it takes to look for them. */
    deadLetters: (query: ListQuery & BodyOptions): Promise<DeadLetterPage> => listDeadLetters(storageReads, query),
    log: (query: ListQuery): Promise<LogPage> => readLogPage(storageReads, query),
    /** The oldest unfinished messages of a queue, those that wait for their time included. */
    listQueueMessages: (of: QueueNeed): Promise<readonly MessageId[]> => storageReads.queueMessages(of),
    /** The first thousand messages that hold places in a queue. Some of them may be finished, and their callbacks hold it still. */
    listQueueSlots: async (account: AccountId, queue: string): Promise<MessageId[]> =>
      (await storageReads.queueSlots(account, queue, maxSlots)).map(({ id }) => id),
  };
}

/** Questions about what people have set up. */
const createSetUpQueries = (storageReads: StorageReads) => ({
  /** A row that people have set up, by its id or name. */
  findResource: <T extends ResourceTableName>(table: T, account: AccountId, id: string): Promise<Rows[T] | null> =>
    rowsOneByOne(storageReads)(table, account, id),
  /**
   * Such rows in the order of their ids or names. `before` and `after` are exclusive. Schedules
   * and URL groups that are large are fewer than asked for, and none only at the end.
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

/** Questions of duties: what is to be removed, or sealed again. */
const createUpkeepQueries = (storageReads: StorageReads) => ({
  /**
   * The newest row of an account behind `most` newer ones, null if it has no more than `most`; and how many it has, at
   * most `most`. It goes through as many entries of an index.
   */
  findOverLimit: (table: LimitedList, account: AccountId, most: number): Promise<OverLimitRow> =>
    findOverLimit(storageReads, table, account, most),
  /** How the secrets of rows are kept, in the order of their keys; of a store in memory, none. */
  listEncryptionStatus: (table: EncryptedTableName, range: EncryptionRange): Promise<readonly EncryptionStatus[]> =>
    storageReads.encryptionStatus(table, range),
  /** When the next of an account's rows is past its time, so that `expire` removes it. */
  nextExpiryAt: (account: AccountId, retention: Retention): Promise<Millis | null> => findNextExpiry(storageReads, account, retention),
  /** Whether anything is left of an account besides its own row. */
  hasData: (account: AccountId): Promise<boolean> => hasData(storageReads, account),
});

async function findOverLimit(storageReads: StorageReads, table: LimitedList, account: AccountId, limit: number): Promise<OverLimitRow> {
  const id = await storageReads.findIdBehind(table, account, limit);
  return { id, count: id === null ? await storageReads.count(table, { account, limit }) : limit };
}

/** The last line of the log of a message. */
const findLastLogRow = async (storageReads: StorageReads, account: AccountId, id: MessageId): Promise<LogRow | undefined> =>
  (await withKeptLog(storageReads).messageLog(id, { account, descending: true, limit: 1, bodies: false }))[0];

async function listUnfinished(storageReads: StorageReads, { account, filter, cursor, count }: Omit<ListQuery, "order">) {
  if (filter.messageIds) return { messageIds: await findNamed(storageReads, account, filter.messageIds, filter), cursor: null };
  const messageIds: MessageId[] = [];
  const range = { account, ...toIdRange("msg", filter, cursor, false) };
  const tagLookup = await pickTagLookup(storageReads, "unfinished", filter, range);
  const hosts = tagLookup ? null : listWantedHosts(filter);
  const chunks = hosts
    ? readChunksToHosts(storageReads, hosts, range)
    : readChunks(storageReads, "messages", { range, tagLookup, limit: count });
  let scanned = 0;
  for await (const { row, message } of withMessages(storageReads, { account, chunks, toMessageId: ({ id }) => id })) {
    if (message && isWantedState(filter, row) && matchesFilter(filter, { message, time: message.createdAt })) messageIds.push(row.id);
    if (messageIds.length === count || ++scanned >= scanLimit) return { messageIds, cursor: row.id };
  }
  return { messageIds, cursor: null };
}

const isWantedState = ({ belongsToRun }: Filter, state: MessageState): boolean =>
  isUnfinished(state) && (belongsToRun !== false || state.run === null);

/** Of the messages that were named those that pass, and are not finished. */
async function findNamed(storageReads: StorageReads, account: AccountId, ids: readonly MessageId[], filter: Filter): Promise<MessageId[]> {
  const states = (await storageReads.rows("messages", toKeys(account, ids))).filter((state) => isWantedState(filter, state));
  const messages = await readMessages(
    storageReads,
    account,
    states.map(({ id }) => id),
  );
  const matching = [...messages.values()].filter((message) => matchesFilter(filter, { message, time: message.createdAt }));
  return matching.map(({ id }) => id).sort();
}

const addSpan = (time: Millis | null, span: Millis): Millis | null => (time === null ? null : time + span);

const accountsPerRead = 100;

async function sumStoredBytes(
  storageReads: StorageReads,
  accounts: readonly AccountId[],
  changedSince: Millis | null,
): Promise<StoredSum[]> {
  const found: StoredSum[] = [];
  const changedBuckets = changedSince === null ? bucketRangeFrom("3h", 0) : bucketRangeFrom("1m", startOfBucket("1m", changedSince));
  for (let at = 0; at < accounts.length; at += accountsPerRead)
    found.push(...(await storageReads.storedBytes(accounts.slice(at, at + accountsPerRead), changedBuckets)));
  return found;
}

const usagePage = 5_000;

/** Some hundred rows; more where nodes came and went all the time. */
async function readUsage(storageReads: StorageReads, range: Range): Promise<Usage[]> {
  const rows = [...(await storageReads.range("usage", range))];
  for (let last = rows.at(-1); last && rows.length % range.limit === 0;) {
    const page = await storageReads.range("usage", { ...range, after: last.id });
    rows.push(...page);
    last = page.at(-1);
  }
  return rows;
}

async function findNextExpiry(storageReads: StorageReads, account: AccountId, retention: Retention): Promise<Millis | null> {
  const [log] = await storageReads.range("log", { account, limit: 1, bodies: false });
  const [deadLetter] = await storageReads.range("deadLetters", { account, limit: 1, bodies: false });
  const buckets = await Promise.all(bucketRanges.map((ids) => storageReads.range("usage", { account, ...ids, limit: 1 })));
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
    addSpan(await storageReads.earliestRunEnd(account, { failed: true }), Math.max(retention.log, retention.deadLetters)),
  ].filter((time) => typeof time === "number");
  // At the end of its time a row is still there.
  return times.length === 0 ? null : Math.min(...times) + 1;
}
