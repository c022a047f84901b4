import type { Key, OutlineName, Rows, TableName } from "../core/command.ts";
import type { Filter } from "../core/filter.ts";
import { memory } from "../core/limits.ts";
import type { Account, AccountId, Envelope, LogRow, MessageId, Millis } from "../core/message.ts";

/** Bodies are left out: empty, whatever they are. For those who look at many rows and want the rest of them only. */
export type Bodies = { bodies?: false };

/** A stretch of a table within one account, by id. `after` and `before` are exclusive. */
export type Range = { account: AccountId; after?: string; before?: string; descending?: boolean; limit: number } & Bodies;

/** What a storage must be able to answer, so that every question can be put to it. Reads only; its own connection. */
export interface Shelf {
  rows<T extends TableName>(table: T, keys: readonly Key[], how?: Bodies): Promise<readonly Rows[T][]>;
  /** The sizes of bodies, by id. */
  sizes(table: OutlineName, keys: readonly Key[]): Promise<ReadonlyMap<string, number>>;
  range<T extends TableName>(table: T, range: Range): Promise<readonly Rows[T][]>;
  /** The log of one message, oldest first. Its bodies are cut when they are written, so they are there. */
  logOf(account: AccountId, messageId: MessageId): Promise<readonly LogRow[]>;
  accountByToken(tokenHash: string): Promise<Account | null>;
  accounts(): Promise<readonly Account[]>;
  earliestDeduplicationEnd(account: AccountId): Promise<Millis | null>;
}

export type Order = "earliestFirst" | "latestFirst";
export type ListQuery = { account: AccountId; filter: Filter; order: Order; cursor: string | null; count: number };
/** A page looks at so many rows at most; a rare match far behind is found by following the cursor. */
export const scanLimit = 10_000;
const chunk = 500;

/** Rows of a table with their envelopes, chunk by chunk, for as long as they are wanted; all without their bodies. */
export async function* withEnvelopes<T extends "messages" | "deadLetters" | "log">(
  shelf: Shelf,
  table: T,
  of: { range: Omit<Range, "limit">; messageIdOf: (row: Rows[T]) => MessageId; limit?: number },
): AsyncGenerator<{ row: Rows[T]; envelope: Envelope | undefined }> {
  const limit = Math.min(chunk, Math.max(50, of.limit ?? chunk));
  let range: Range = { ...of.range, limit, bodies: false };
  for (;;) {
    const rows = await shelf.range(table, range);
    const envelopes = await envelopesOf(shelf, range.account, rows.map(of.messageIdOf));
    for (const row of rows) yield { row, envelope: envelopes.get(of.messageIdOf(row)) };
    const last = rows.at(-1);
    if (!last || rows.length < limit) return;
    range = { ...of.range, limit, bodies: false, ...past(last.id, of.range) };
  }
}

/** The stretch that is left behind a row. */
export const past = (id: string, { descending }: Pick<Range, "descending">): { after: string } | { before: string } =>
  descending ? { before: id } : { after: id };

export const keysOf = (account: AccountId, ids: Iterable<string>): Key[] => [...new Set(ids)].map((id) => [account, id] as const);

/** Envelopes by id, without their bodies; those that are gone are absent. */
export async function envelopesOf(shelf: Shelf, account: AccountId, ids: readonly MessageId[]): Promise<Map<MessageId, Envelope>> {
  const envelopes = await shelf.rows("envelopes", keysOf(account, ids), { bodies: false });
  return new Map(envelopes.map((envelope) => [envelope.id, envelope]));
}

/** How many of the first ones fit on a page, by their sizes; at least one. */
export function fittingPage(sizes: Iterable<number>): number {
  let bytes = 0;
  let count = 0;
  for (const size of sizes) {
    bytes += size;
    if (count > 0 && bytes > memory.page) break;
    count++;
  }
  return count;
}
