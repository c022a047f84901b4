import type { Filter } from "../../core/search/filter.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { Rows } from "../../core/decision/command.ts";
import type { AccountId, MessageId } from "../../core/values/basics.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { TagLookup } from "./byTag.ts";
import { mergeSorted, listTaggedIds } from "./byTag.ts";
import type { Range, StorageReads } from "../layout/storageReads.ts";
import { readMessages, toKeys, rangePast } from "../layout/storageReads.ts";

/** The maximum number of rows that a search reads at once. */
const chunk = 500;
/** The number of rows that a search reads first, unless it knows how many fill a page. */
const firstChunk = 100;
/** The minimum number of rows that a search reads first. */
const minChunk = 50;

/**
 * Returns the numbers of rows of one chunk after another. The first `pageRows` rows are read at
 * once, because a page is often full after these. Each further chunk has twice as many rows, up to `chunk`,
 * so that a search for a rare value needs few reads.
 */
function* listLimits(pageRows: number): Generator<number, never> {
  let limit = 0;
  for (let read = 0; ; read += limit) {
    limit = Math.min(chunk, read < pageRows ? Math.max(minChunk, pageRows - read) : 2 * limit);
    yield limit;
  }
}

/** Returns rows chunk by chunk, as `listLimits` says. `last` is the last row of the previous chunk. */
export async function* readGrowingChunks<Row>(
  pageRows: number,
  read: (limit: number, last: Row | null) => Promise<readonly Row[]>,
): AsyncGenerator<readonly Row[]> {
  let last: Row | null = null;
  for (const limit of listLimits(pageRows)) {
    const rows: readonly Row[] = await read(limit, last);
    yield rows;
    last = rows.at(-1) ?? null;
    if (last === null || rows.length < limit) return;
  }
}

/**
 * Returns rows of a table without their bodies, chunk by chunk. `tagLookup`: only rows that have one of its
 * tags are read. `ranges`: only these parts of the range are searched. `pageRows`: the number of rows that
 * fill a page.
 */
export async function* readChunks<T extends "storedMessages" | "messages" | "deadLetters" | "log" | "runs">(
  storageReads: StorageReads,
  table: T,
  scan: {
    range: IdRange;
    tagLookup: TagLookup | null;
    ranges?: AsyncGenerator<IdRange> | null;
    pageRows: number;
  },
): AsyncGenerator<readonly Rows[T][]> {
  const { pageRows } = scan;
  if (scan.tagLookup) {
    for await (const ids of inPortions(listTaggedIds(storageReads, scan.tagLookup, scan.range), pageRows)) {
      const rows = await storageReads.rows(table, toKeys(scan.range.account, ids), { bodies: false });
      yield [...rows].sort((a, b) => (a.id < b.id !== (scan.range.descending === true) ? -1 : 1));
    }
    return;
  }
  yield* scan.ranges
    ? readSparsely(storageReads, table, { ...scan, ranges: scan.ranges })
    : readGrowingChunks(pageRows, (limit, last: Rows[T] | null) =>
        storageReads.range(table, {
          ...scan.range,
          ...(last && rangePast(last.id, scan.range)),
          limit,
          bodies: false,
        }),
      );
}

type SparseScan = { range: IdRange; ranges: AsyncGenerator<IdRange>; pageRows: number };

/**
 * Returns the rows of the ranges, and possibly rows after them. Each read starts at a range and returns as
 * many rows as a read of the whole list would, and ranges that were already read are skipped. There are
 * therefore no more reads than for the whole range.
 */
async function* readSparsely<T extends "storedMessages" | "messages" | "deadLetters" | "log" | "runs">(
  storageReads: StorageReads,
  table: T,
  { range, ranges, pageRows }: SparseScan,
): AsyncGenerator<readonly Rows[T][]> {
  let last: string | null = null;
  const limits = listLimits(pageRows);
  for await (const { after = "", before = "~" } of ranges) {
    const isDone = (id: string): boolean => (range.descending ? id <= after : id >= before);
    while (last === null || !isDone(last)) {
      const isWithin: boolean = last !== null && (range.descending ? last < before : last > after);
      const from: { after?: string; before?: string } =
        isWithin && last !== null ? rangePast(last, range) : range.descending ? { before } : { after };
      const limit = limits.next().value;
      const rows: readonly Rows[T][] = await storageReads.range(table, {
        ...range,
        ...from,
        limit,
        bodies: false,
      });
      yield rows;
      if (rows.length < limit) return;
      last = rows.at(-1)?.id ?? last;
    }
  }
}

type IdRange = Omit<Range, "limit">;

/** Returns unfinished messages to some hosts in the order of the range, chunk by chunk. */
export async function* readChunksToHosts(
  storageReads: StorageReads,
  hosts: readonly string[],
  range: Omit<Range, "limit">,
): AsyncGenerator<readonly MessageState[]> {
  const limit = Math.ceil(chunk / Math.max(1, hosts.length));
  yield* inPortions(
    mergeSorted(
      hosts.map((host) => readMessagesToHost(storageReads, host, { ...range, limit })),
      (a, b) => a.id < b.id !== (range.descending === true),
    ),
    firstChunk,
  );
}

async function* readMessagesToHost(
  storageReads: StorageReads,
  host: string,
  range: Range,
): AsyncGenerator<MessageState> {
  for (let next = range; ;) {
    const rows = await storageReads.messagesToHost(host, next);
    yield* rows;
    const last = rows.at(-1);
    if (!last || rows.length < range.limit) return;
    next = { ...range, ...rangePast(last.id, range) };
  }
}

/** Returns the items in portions of as many items as `listLimits` says. */
async function* inPortions<Item>(items: AsyncGenerator<Item>, pageRows: number): AsyncGenerator<Item[]> {
  let portion: Item[] = [];
  const sizes = listLimits(pageRows);
  let size = sizes.next().value;
  for await (const item of items) {
    portion.push(item);
    if (portion.length < size) continue;
    yield portion;
    portion = [];
    size = sizes.next().value;
  }
  if (portion.length > 0) yield portion;
}

/** Returns rows with their stored messages, all without their bodies. */
export async function* withMessages<Row>(
  storageReads: StorageReads,
  source: {
    account: AccountId;
    chunks: AsyncGenerator<readonly Row[]>;
    toMessageId: (row: Row) => MessageId;
  },
): AsyncGenerator<{ row: Row; message: StoredMessage | undefined }> {
  for await (const rows of source.chunks) {
    const messages = await readMessages(storageReads, source.account, rows.map(source.toMessageId));
    for (const row of rows) yield { row, message: messages.get(source.toMessageId(row)) };
  }
}

/** Returns the range of ids that is within the times of a filter and starts after a cursor. */
export function toIdRange(
  kind: "msg" | "dlq",
  { from, to }: Filter,
  { cursor, descending }: { cursor: string | null; descending?: boolean },
): { after?: string; before?: string } {
  const start = from === undefined ? undefined : firstIdAt(kind, from);
  const end = to === undefined ? undefined : firstIdAt(kind, to + 1);
  const after = descending ? start : (cursor ?? start);
  const before = descending ? (cursor ?? end) : end;
  return { ...(after === undefined ? {} : { after }), ...(before === undefined ? {} : { before }) };
}
