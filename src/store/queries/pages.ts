import type { Rows } from "../../core/decision/command.ts";
import type { AccountId, Envelope, MessageId, MessageState } from "../../core/model/message.ts";
import type { Marked } from "./byTag.ts";
import { inOrder, markedIds } from "./byTag.ts";
import type { Range, Shelf } from "./storageReads.ts";
import { envelopesOf, keysOf, past } from "./storageReads.ts";

const chunk = 500;

/**
 * Rows of a table without their bodies, chunk by chunk, for as long as they are wanted. `marked`: only those with one of its marks.
 * `stretches`: only those in these parts of the range.
 */
export async function* chunksOf<T extends "envelopes" | "messages" | "deadLetters" | "log" | "runs">(
  shelf: Shelf,
  table: T,
  of: { range: Stretch; marked: Marked | null; stretches?: AsyncGenerator<Stretch> | null; limit?: number },
): AsyncGenerator<readonly Rows[T][]> {
  const limit = Math.min(chunk, Math.max(50, of.limit ?? chunk));
  if (of.marked) {
    for await (const ids of portionsOf(markedIds(shelf, of.marked, of.range), limit)) {
      const rows = await shelf.rows(table, keysOf(of.range.account, ids), { bodies: false });
      yield [...rows].sort((a, b) => (a.id < b.id !== (of.range.descending === true) ? -1 : 1));
    }
    return;
  }
  yield* of.stretches
    ? sparsely(shelf, table, { ...of, stretches: of.stretches, limit })
    : wholeOf(shelf, table, { ...of.range, limit, bodies: false });
}

type Sparse = { range: Stretch; stretches: AsyncGenerator<Stretch>; limit: number };

/**
 * Of a range from where a stretch begins, as many rows as are read at once anyway, whether they are in it or behind it. So there are no more
 * reads than for the range as a whole, however many stretches there are, and those that were read over are passed over.
 */
async function* sparsely<T extends "envelopes" | "messages" | "deadLetters" | "log" | "runs">(
  shelf: Shelf,
  table: T,
  { range, stretches, limit }: Sparse,
): AsyncGenerator<readonly Rows[T][]> {
  let last: string | null = null;
  for await (const { after = "", before = "~" } of stretches) {
    const isDone = (id: string): boolean => (range.descending ? id <= after : id >= before);
    while (last === null || !isDone(last)) {
      const isWithin: boolean = last !== null && (range.descending ? last < before : last > after);
      const from: { after?: string; before?: string } =
        isWithin && last !== null ? past(last, range) : range.descending ? { before } : { after };
      const rows: readonly Rows[T][] = await shelf.range(table, { ...range, ...from, limit, bodies: false });
      yield rows;
      if (rows.length < limit) return;
      last = rows.at(-1)?.id ?? last;
    }
  }
}

type Stretch = Omit<Range, "limit">;

async function* wholeOf<T extends "envelopes" | "messages" | "deadLetters" | "log" | "runs">(
  shelf: Shelf,
  table: T,
  whole: Range,
): AsyncGenerator<readonly Rows[T][]> {
  for (let range = whole; ;) {
    const rows = await shelf.range(table, range);
    yield rows;
    const last = rows.at(-1);
    if (!last || rows.length < whole.limit) return;
    range = { ...whole, ...past(last.id, whole) };
  }
}

/** Unfinished messages to some hosts, oldest first, chunk by chunk. */
export async function* chunksTo(
  shelf: Shelf,
  hosts: readonly string[],
  range: Omit<Range, "limit">,
): AsyncGenerator<readonly MessageState[]> {
  const limit = Math.ceil(chunk / Math.max(1, hosts.length));
  yield* portionsOf(
    inOrder(
      hosts.map((host) => rowsTo(shelf, host, { ...range, limit })),
      (a, b) => a.id < b.id,
    ),
    chunk,
  );
}

async function* rowsTo(shelf: Shelf, host: string, range: Range): AsyncGenerator<MessageState> {
  for (let next = range; ;) {
    const rows = await shelf.messagesTo(host, next);
    yield* rows;
    const last = rows.at(-1);
    if (!last || rows.length < range.limit) return;
    next = { ...range, ...past(last.id, range) };
  }
}

/** Small at first, since a page is often full soon. */
async function* portionsOf<Item>(items: AsyncGenerator<Item>, most: number): AsyncGenerator<Item[]> {
  let portion: Item[] = [];
  let size = Math.min(most, 100);
  for await (const item of items) {
    portion.push(item);
    if (portion.length < size) continue;
    yield portion;
    portion = [];
    size = most;
  }
  if (portion.length > 0) yield portion;
}

/** Rows with their envelopes, all without their bodies. */
export async function* withEnvelopes<Row>(
  shelf: Shelf,
  of: { account: AccountId; chunks: AsyncGenerator<readonly Row[]>; messageIdOf: (row: Row) => MessageId },
): AsyncGenerator<{ row: Row; envelope: Envelope | undefined }> {
  for await (const rows of of.chunks) {
    const envelopes = await envelopesOf(shelf, of.account, rows.map(of.messageIdOf));
    for (const row of rows) yield { row, envelope: envelopes.get(of.messageIdOf(row)) };
  }
}
