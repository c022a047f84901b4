import type { Key, BodyTableName, Rows, TableName } from "../../core/decision/command.ts";
import type { Filter } from "../../core/search/filter.ts";
import { memory } from "../../core/values/limits.ts";
import type { Account } from "../../core/model/account.ts";
import type { AccountId, MessageId, Millis } from "../../core/values/basics.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { RunKey } from "../../core/model/runPost.ts";
import type { QueueSlot } from "../../core/model/limiter.ts";
import type { WebhookSource } from "../../core/model/webhookSource.ts";
import type { Waiter } from "../../core/model/run.ts";
import type { Token } from "../../core/model/rights.ts";
import type { StoreFigures } from "../../core/explain/storeCounts.ts";

/** `bodies: false`: rows are read with empty bodies. This is for searches that read many rows. */
export type BodyOptions = { bodies?: false | undefined };

/** A range of a table within one account, by id. `after` and `before` are exclusive. */
export type Range = {
  account: AccountId;
  after?: string;
  before?: string;
  descending?: boolean;
  limit: number;
} & BodyOptions;

/**
 * The plain reads of a storage, from which all queries are composed. They use a separate connection and
 * change nothing.
 */
export interface StorageReads {
  rows<T extends TableName>(
    table: T,
    keys: readonly Key[],
    options?: BodyOptions,
  ): Promise<readonly Rows[T][]>;
  /** Returns the sizes of bodies in bytes, by id. */
  sizes(table: BodyTableName | "steps" | "runs", keys: readonly Key[]): Promise<ReadonlyMap<string, number>>;
  /** Returns the sizes of the rows of a range, in its order. */
  rangeSizes(table: SizedName, range: Range): Promise<readonly RowSize[]>;
  range<T extends TableName>(table: T, range: Range): Promise<readonly Rows[T][]>;
  /** Returns a range of the log or of the kept log of one message. */
  messageLog(messageId: MessageId, range: Range, table?: LogName): Promise<readonly LogRow[]>;
  /** Returns unfinished messages to a host. */
  messagesToHost(host: string, range: Range): Promise<readonly MessageState[]>;
  /** Returns unfinished messages of which an attempt has ended. */
  attemptedMessages(range: Range): Promise<readonly MessageState[]>;
  /** Returns unfinished messages that wait for their due time, by due time. */
  messagesByDue(range: DueRange): Promise<readonly MessageState[]>;
  /** Returns held messages whose waitlist is between two ids, inclusive, in no order. */
  heldMessages(of: WaitlistRange): Promise<readonly MessageState[]>;
  /**
   * Returns the messages of an account that are in flight, in no order. Returns null if more than `scan`
   * messages of all accounts are.
   */
  leasedMessages(of: { account: AccountId; scan: number }): Promise<readonly MessageState[] | null>;
  /**
   * Returns the number of held messages in each waitlist of a range, among the first `limit`, in no order.
   */
  countHeld(of: WaitlistRange): Promise<readonly HeldCount[]>;
  /** Returns the number of ended runs that failed and still exist, counted up to `limit`. */
  countFailedRuns(of: { account: AccountId; limit: number }): Promise<number>;
  /** Returns the ids of the schedules of an account that are paused, in no order. */
  pausedSchedules(of: { account: AccountId; limit: number }): Promise<readonly string[]>;
  /** Returns the ids of the queues and keys of an account that are paused, in no order. */
  pausedLimiters(of: { account: AccountId; limit: number }): Promise<readonly string[]>;
  /** Returns how many messages precede a held message in its waitlist, counted up to `limit`. */
  countAhead(state: MessageState, limit: number): Promise<number>;
  /** Returns the slots of a queue whose ids come after `after`, in the order of their ids. */
  queueSlots(need: QueueNeed & { after?: string }): Promise<readonly QueueSlot[]>;
  /** Returns the unfinished messages that hold a slot: the message itself and its callbacks. */
  slotHolders(account: AccountId, slotId: MessageId, limit: number): Promise<readonly MessageState[]>;
  accountByToken(tokenHash: string): Promise<Account | null>;
  accounts(): Promise<readonly Account[]>;
  /** Returns the number of rows of a range, counted up to its limit. */
  count(table: TableName, range: Range): Promise<number>;
  /**
   * Skips the newest `newer` rows of an account and returns the id of the next row, or null if there is none.
   */
  findIdBehind(
    table: LogName | "deadLetters" | "audit",
    account: AccountId,
    newer: number,
  ): Promise<string | null>;
  /** Returns the rows of a table of work that are due, of all accounts, the oldest first. */
  dueWork<T extends WorkTableName>(table: T, now: Millis, limit: number): Promise<readonly Rows[T][]>;
  tokenByHash(hash: string): Promise<Token | null>;
  sourceBySecret(secretHash: string): Promise<WebhookSource | null>;
  /** Returns how the secrets of rows are encrypted, in the order of their keys. */
  encryptionStatus(table: EncryptedTableName, range: EncryptionRange): Promise<readonly EncryptionStatus[]>;
  /** Returns the oldest unfinished messages of a queue, including those that wait for their due time. */
  queueMessages(need: QueueNeed): Promise<readonly MessageId[]>;
  /**
   * Counts the messages of the account that are in flight with a lease that ends after `now` and by `until`.
   * Looks only at the first `scan` such messages of all accounts.
   */
  countLeased(need: { account: AccountId; now: Millis; until: Millis; scan: number }): Promise<number>;
  /** Returns the stored bytes of the accounts that have a bucket with an id between two ids, in no order. */
  storedBytes(
    accounts: readonly AccountId[],
    changedBuckets: { after: string; before: string },
  ): Promise<readonly StoredSum[]>;
  /** Returns the figures of all accounts. Messages that are being sent are counted up to `maxLeased`. */
  storeFigures(maxLeased: number): Promise<StoreFigures>;
  /** Returns the earliest due time of each kind of rows that are claimed. */
  oldestDue(): Promise<OldestDue>;
  earliestDeduplicationEnd(account: AccountId): Promise<Millis | null>;
  /** Returns the earliest end of a run that still exists. */
  earliestRunEnd(account: AccountId, options: { failed: boolean }): Promise<Millis | null>;
  /** Returns the newest log entries of each message, without their bodies, in no order. */
  messageLogs(need: MessageLogsNeed, table?: LogName): Promise<readonly LogRow[]>;
  /** Returns the unfinished messages of a run. */
  runMessages(account: AccountId, run: RunKey): Promise<readonly MessageState[]>;
  /** Returns the waiters of each run, at most `limit` of each, in no order. */
  waitersOfRuns(of: RunsNeed): Promise<readonly Waiter[]>;
  /** Returns the ids of the history of each run, at most `limit` of each, in no order. */
  stepIdsOfRuns(of: RunsNeed): Promise<readonly string[]>;
  /** Returns the waiters for an event in any run, in the order of their ids. */
  eventWaiters(event: string, range: Range): Promise<readonly Waiter[]>;
  /**
   * Counts by event the first `limit` waiters whose events come after `after`, in the order of the events.
   * Waiters for no event are left out.
   */
  countWaiters(of: { account: AccountId; after: string; limit: number }): Promise<readonly WaiterCount[]>;
  /**
   * Returns the different beginnings of the ids of tags, and the first and last tag with each, in order. Only
   * tags between two ids of rows count. Beginnings without any are left out.
   */
  tagSpans(of: TagSpans): Promise<readonly TagSpan[]>;
  /** Returns the number of tags in each of these ranges, each counted up to `limit`. */
  countTags(of: {
    account: AccountId;
    ranges: readonly { after: string; before: string }[];
    limit: number;
  }): Promise<readonly number[]>;
}

/**
 * The tags with ids between `start` and `end`. `width` is the length of the beginning by which they differ,
 * which is the same for all of them. The ids of rows are between `after` and `before`. All are exclusive.
 */
export type TagSpans = {
  account: AccountId;
  start: string;
  end: string;
  width: number;
  after: string;
  before: string;
  limit: number;
};
/** The first and the last tag with the same beginning. */
export type TagSpan = { tag: string; first: string; last: string };

/** A row of work that the server does in the background. `dueAt`: null after its end. */
export type WorkRow = { account: AccountId; id: string; dueAt: Millis | null };
/** The tables of work: see `describeWorkTable`. */
export type WorkTableName = { [T in TableName]: Rows[T] extends WorkRow ? T : never }[TableName];

/** The number of waiters for an event. `oldestId`: the waiter of the oldest run. */
export type WaiterCount = { event: string; count: number; oldestId: string };
/** The kinds of rows that become due, and are then claimed. `leases` are messages that a node is sending. */
export const dueKinds = ["messages", "leases", "hostWaitlists", "limiters", "schedules", "waiters"] as const;
/** The earliest due time of each kind of rows. Null: no row has a due time. */
export type OldestDue = { readonly [K in (typeof dueKinds)[number]]: Millis | null };

/** A position in the order of due times. Messages with the same due time are in the order of their ids. */
export type DuePosition = { dueAt: Millis; id: string };
/** A range of messages by due time. `after` and `before` are exclusive. */
export type DueRange = {
  account: AccountId;
  after: DuePosition;
  before: DuePosition;
  descending: boolean;
  limit: number;
};
/** The waitlists of an account from one id to another, inclusive. */
export type WaitlistRange = { account: AccountId; from: string; to: string; limit: number };

/** The number of messages in a waitlist, and the id of the oldest. */
export type HeldCount = { waitlist: string; count: number; oldestId: MessageId };

/** Configuration tables whose rows may be large. */
export type SizedName = "schedules" | "urlGroups";

/** The size of a row: the bytes of its body, and the characters of everything else. */
export type RowSize = { body: number; settings: number };

/** The number of bytes that an account stores. */
export type StoredSum = { account: AccountId; bytes: number };

/** Tables of log entries. */
export type LogName = "log" | "keptLog";

/** Tables with encrypted secrets. */
export type EncryptedTableName = "accounts" | "sources" | "serverSettings";
/** A range of rows, in the order of their keys. */
export type EncryptionRange = { after: readonly [account: AccountId, id: string]; limit: number };
/**
 * How the secrets of a row are encrypted. `id` is empty for an account and for a
 * setting of the server, whose `account` is its own id. `keyVersion`: the version of a key;
 * `clear` if the secrets are unencrypted; `nothing` if there are none.
 */
export type EncryptionStatus = { account: AccountId; id: string; keyVersion: number | "clear" | "nothing" };

/** The newest log entries of each of these messages, at most `limit` per message. */
export type MessageLogsNeed = { account: AccountId; messageIds: readonly MessageId[]; limit: number };

/** The rows of each of these runs, at most `limit` for each run. */
export type RunsNeed = { account: AccountId; runs: readonly RunKey[]; limit: number };

/** The oldest messages or slots of a queue, at most `limit`. */
export type QueueNeed = { account: AccountId; queue: string; limit: number };

/** The order of a list by time. */
export type Order = "earliestFirst" | "latestFirst";
/** A request for a page of at most `count` entries of a list. */
export type ListQuery = {
  account: AccountId;
  filter: Filter;
  order: Order;
  cursor: string | null;
  count: number;
};
/**
 * The maximum number of rows that one page visits, which takes about 20 ms. If a match without a tag is
 * further back, the caller finds it by following the cursor.
 */
export const scanLimit = 4_000;

/** Returns the part of a range that follows a row. */
export const rangePast = (
  id: string,
  { descending }: Pick<Range, "descending">,
): { after: string } | { before: string } => (descending ? { before: id } : { after: id });

/** Returns the keys of rows of an account, each once. */
export const toKeys = (account: AccountId, ids: Iterable<string>): Key[] =>
  [...new Set(ids)].map((id) => [account, id] as const);

/** Returns stored messages by id, without their bodies. Missing messages are omitted. */
export async function readMessages(
  storageReads: StorageReads,
  account: AccountId,
  ids: readonly MessageId[],
): Promise<Map<MessageId, StoredMessage>> {
  const messages = await storageReads.rows("storedMessages", toKeys(account, ids), { bodies: false });
  return new Map(messages.map((message) => [message.id, message]));
}

/** Returns how many of the first rows fit on a page of `maxBytes` bytes, by their sizes; at least one. */
export function countFittingPage(sizes: Iterable<number>, maxBytes: number = memory.page): number {
  let bytes = 0;
  let count = 0;
  for (const size of sizes) {
    bytes += size;
    if (count > 0 && bytes > maxBytes) break;
    count++;
  }
  return count;
}
