import type { Key, BodyTableName, Rows, TableName } from "../../core/decision/command.ts";
import type { Filter } from "../../core/search/filter.ts";
import { memory } from "../../core/values/limits.ts";
import type {
  Account,
  AccountId,
  StoredMessage,
  LogRow,
  MessageId,
  MessageState,
  Millis,
  RunKey,
  QueueSlot,
  WebhookSource,
} from "../../core/model/message.ts";
import type { Waiter } from "../../core/model/run.ts";
import type { Token } from "../../core/model/rights.ts";

/** Bodies are left out: empty, whatever they are. For those who look at many rows and want the rest of them only. */
export type BodyOptions = { bodies?: false };

/** A stretch of a table within one account, by id. `after` and `before` are exclusive. */
export type Range = { account: AccountId; after?: string; before?: string; descending?: boolean; limit: number } & BodyOptions;

/** What a storage must be able to answer, so that every question can be put to it. Reads only; its own connection. */
export interface StorageReads {
  rows<T extends TableName>(table: T, keys: readonly Key[], options?: BodyOptions): Promise<readonly Rows[T][]>;
  /** The sizes of bodies, by id. */
  sizes(table: BodyTableName | "steps" | "runs", keys: readonly Key[]): Promise<ReadonlyMap<string, number>>;
  /** The sizes of the rows of a stretch, in its order. */
  rangeSizes(table: SizedName, range: Range): Promise<readonly RowSize[]>;
  range<T extends TableName>(table: T, range: Range): Promise<readonly Rows[T][]>;
  /** A stretch of the log of one message, or of the kept log. */
  messageLog(messageId: MessageId, range: Range, table?: LogName): Promise<readonly LogRow[]>;
  /** Unfinished messages to a host, oldest first. */
  messagesToHost(host: string, range: Range): Promise<readonly MessageState[]>;
  /** How many stand before a held message in its line, counted up to `most`. */
  countAhead(state: MessageState, limit: number): Promise<number>;
  queueSlots(account: AccountId, queue: string, limit: number): Promise<readonly QueueSlot[]>;
  /** The unfinished messages that hold a slot: the message itself, and its callbacks. */
  slotHolders(account: AccountId, slotId: MessageId, limit: number): Promise<readonly MessageState[]>;
  accountByToken(tokenHash: string): Promise<Account | null>;
  accounts(): Promise<readonly Account[]>;
  /** Rows of a stretch, counted up to its limit. */
  count(table: TableName, range: Range): Promise<number>;
  /** The id of the newest row of an account besides so many that are newer still. */
  findIdBehind(table: LogName | "deadLetters" | "audit", account: AccountId, newer: number): Promise<string | null>;
  tokenByHash(hash: string): Promise<Token | null>;
  sourceBySecret(secretHash: string): Promise<WebhookSource | null>;
  /** How the secrets of rows are kept, in the order of their keys. */
  encryptionStatus(table: EncryptedTableName, range: EncryptionRange): Promise<readonly EncryptionStatus[]>;
  /** The oldest unfinished messages of a queue, those that wait for their time included. */
  queueMessages(need: QueueNeed): Promise<readonly MessageId[]>;
  /** Of the first `scan` messages that fall due after `now`, those of the account that are being sent: their lease is their due time. */
  countLeased(need: { account: AccountId; now: Millis; until: Millis; scan: number }): Promise<number>;
  /** The stored bytes of those of these accounts that have a bucket between two ids, in no order. */
  storedBytes(accounts: readonly AccountId[], changedBuckets: { after: string; before: string }): Promise<readonly StoredSum[]>;
  earliestDeduplicationEnd(account: AccountId): Promise<Millis | null>;
  /** When the first of the runs that are kept ended. */
  earliestRunEnd(account: AccountId, options: { failed: boolean }): Promise<Millis | null>;
  /** The last lines, at most `limit`, of the log of each of these messages, without their bodies, in no order. */
  messageLogs(account: AccountId, messageIds: readonly MessageId[], limit: number, table?: LogName): Promise<readonly LogRow[]>;
  /** Unfinished messages of a run. */
  runMessages(account: AccountId, run: RunKey): Promise<readonly MessageState[]>;
  /** What waits for an event, in any run, in the order of ids. */
  eventWaiters(event: string, range: Range): Promise<readonly Waiter[]>;
}

/** Tables of what people set up whose rows may be large. */
export type SizedName = "schedules" | "urlGroups";

/** The size of a row: bytes of its body, and characters of everything else. */
export type RowSize = { body: number; settings: number };

/** How many bytes an account stores. */
export type StoredSum = { account: AccountId; bytes: number };

/** Tables of entries of the log. */
export type LogName = "log" | "keptLog";

/** Tables that have secrets in them. */
export type EncryptedTableName = "accounts" | "sources";
export type EncryptionRange = { after: readonly [account: AccountId, id: string]; limit: number };
/** `id`: of an account empty. `seal`: the version of a key; in clear; or there is nothing to seal. */
export type EncryptionStatus = { account: AccountId; id: string; keyVersion: number | "clear" | "nothing" };

export type QueueNeed = { account: AccountId; queue: string; limit: number };

export type Order = "earliestFirst" | "latestFirst";
export type ListQuery = { account: AccountId; filter: Filter; order: Order; cursor: string | null; count: number };
/** A page looks at so many rows at most, in some 20 ms; a rare match far behind that has no mark is found by following the cursor. */
export const scanLimit = 4_000;
/** The year 5138. Ids cannot tell of times much later. */
export const lastTime = 1e14;

/** The stretch that is left behind a row. */
export const rangePast = (id: string, { descending }: Pick<Range, "descending">): { after: string } | { before: string } =>
  descending ? { before: id } : { after: id };

export const toKeys = (account: AccountId, ids: Iterable<string>): Key[] => [...new Set(ids)].map((id) => [account, id] as const);

/** Envelopes by id, without their bodies; those that are gone are absent. */
export async function readMessages(
  storageReads: StorageReads,
  account: AccountId,
  ids: readonly MessageId[],
): Promise<Map<MessageId, StoredMessage>> {
  const messages = await storageReads.rows("storedMessages", toKeys(account, ids), { bodies: false });
  return new Map(messages.map((message) => [message.id, message]));
}

/** How many of the first ones fit on a page of `most` bytes, by their sizes; at least one. */
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
