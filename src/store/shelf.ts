import type { Key, Rows, TableName } from "../core/command.ts";
import type { Filter } from "../core/filter.ts";
import type { Account, AccountId, Envelope, LogRow, MessageId, Millis } from "../core/message.ts";

/** A stretch of a table within one account, by id. `after` and `before` are exclusive. */
export type Range = { account: AccountId; after?: string; before?: string; descending?: boolean; limit: number };

/** What a storage must be able to answer, so that every question can be put to it. Reads only; its own connection. */
export interface Shelf {
  rows<T extends TableName>(table: T, keys: readonly Key[]): Promise<readonly Rows[T][]>;
  range<T extends TableName>(table: T, range: Range): Promise<readonly Rows[T][]>;
  /** The log of one message, oldest first. */
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

/** Rows of a table with their envelopes, chunk by chunk, for as long as they are wanted. */
export async function* withEnvelopes<T extends "messages" | "deadLetters" | "log">(
  shelf: Shelf,
  table: T,
  of: { range: Omit<Range, "limit">; messageIdOf: (row: Rows[T]) => MessageId; limit?: number },
): AsyncGenerator<{ row: Rows[T]; envelope: Envelope | undefined }> {
  const limit = Math.min(chunk, Math.max(50, of.limit ?? chunk));
  let range: Range = { ...of.range, limit };
  for (;;) {
    const rows = await shelf.range(table, range);
    const envelopes = await envelopesOf(shelf, range.account, rows.map(of.messageIdOf));
    for (const row of rows) yield { row, envelope: envelopes.get(of.messageIdOf(row)) };
    const last = rows.at(-1);
    if (!last || rows.length < limit) return;
    range = { ...of.range, limit, ...past(last.id, of.range) };
  }
}

/** The stretch that is left behind a row. */
export const past = (id: string, { descending }: Pick<Range, "descending">): { after: string } | { before: string } =>
  descending ? { before: id } : { after: id };

/** Envelopes by id; those that are gone are absent. */
export async function envelopesOf(shelf: Shelf, account: AccountId, ids: readonly MessageId[]): Promise<Map<MessageId, Envelope>> {
  const envelopes = await shelf.rows(
    "envelopes",
    [...new Set(ids)].map((id) => [account, id] as const),
  );
  return new Map(envelopes.map((envelope) => [envelope.id, envelope]));
}
