import { Refusal } from "../../core/values/errors.ts";
import { matchesFilter } from "../../core/search/filter.ts";
import { readIdTime, firstIdAt } from "../../core/values/ids.ts";
import { logBodyBytes } from "../../core/values/limits.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { LogRow, LogState } from "../../core/model/logRow.ts";
import { readChunks, withMessages } from "./pages.ts";
import { mergeSorted } from "./byTag.ts";
import type { ListQuery, Range, StorageReads } from "../layout/storageReads.ts";
import { countFittingPage, toKeys, rangePast, scanLimit } from "../layout/storageReads.ts";
import type { ScanPlan } from "./byTime.ts";
import { planScan } from "./byTime.ts";
import { withKeptLog } from "./wholeLog.ts";

/**
 * One entry of the log as the API shows it. `row` is null if the stored message itself is the source of the
 * event: CREATED, and the ACTIVE of a message that was sent at once.
 */
export type LogEntry = { time: Millis; state: LogState; message: StoredMessage; row: LogRow | null };
/** A page of the log. `cursor` is null at the end. */
export type LogPage = { events: LogEntry[]; cursor: string | null };

/**
 * A position in the log. The log consists of the stored messages (rank 0, for their creation) and the log
 * rows (rank 1), merged by time. `index` is the index of the state within one row.
 */
type LogPosition = { time: Millis; rank: number; id: string; index: number };

/**
 * Returns one page of the log of an account, by time. The page ends early if it would exceed the maximum
 * size.
 */
export async function readLogPage(storageReads: StorageReads, query: ListQuery): Promise<LogPage> {
  const { positioned, cursor } = await listWithoutBodies(storageReads, query);
  const keys = toKeys(
    query.account,
    positioned.map(({ event }) => event.message.id),
  );
  const sizes = await storageReads.sizes("storedMessages", keys);
  const counted = new Set<string>();
  const page = positioned.slice(
    0,
    countFittingPage(positioned.map(({ event }) => countNewBytes(event, sizes, counted))),
  );
  const events = await withBodies(
    storageReads,
    query.account,
    page.map(({ event }) => event),
  );
  const last = page.at(-1);
  return { events, cursor: page.length < positioned.length && last ? formatPosition(last.position) : cursor };
}

/** Returns the time of the newest entry in the log of an account, or 0 if it is empty. Reads no bodies. */
export async function readNewestLogTime(storageReads: StorageReads, account: AccountId): Promise<Millis> {
  const range: Range = { account, descending: true, limit: 1, bodies: false };
  const [[message], [row]] = await Promise.all([
    storageReads.range("storedMessages", range),
    storageReads.range("log", range),
  ]);
  return Math.max(message ? readIdTime(message.id) : 0, row ? readIdTime(row.id) : 0);
}

/**
 * Returns the bytes by which an event makes a page larger. A stored message counts once, because all events
 * of the message share it.
 */
function countNewBytes(
  { message, row }: LogEntry,
  sizes: ReadonlyMap<string, number>,
  countedMessages: Set<string>,
): number {
  const messageBytes = countedMessages.has(message.id) ? 0 : (sizes.get(message.id) ?? 0);
  countedMessages.add(message.id);
  return messageBytes + (row ? logBodyBytes : 0);
}

/** Returns the events with their bodies. */
async function withBodies(
  storageReads: StorageReads,
  account: AccountId,
  events: readonly LogEntry[],
): Promise<LogEntry[]> {
  const messages = new Map(
    (
      await storageReads.rows(
        "storedMessages",
        toKeys(
          account,
          events.map(({ message }) => message.id),
        ),
      )
    ).map((message) => [message.id, message]),
  );
  const rows = new Map(
    (
      await withKeptLog(storageReads).rows(
        "log",
        toKeys(
          account,
          events.flatMap(({ row }) => row?.id ?? []),
        ),
      )
    ).map((row) => [row.id, row]),
  );
  // Rows that have been removed since they were listed are shown without their bodies.
  return events.map((event) => ({
    ...event,
    message: messages.get(event.message.id) ?? event.message,
    row: event.row && (rows.get(event.row.id) ?? event.row),
  }));
}

async function listWithoutBodies(
  storageReads: StorageReads,
  query: ListQuery,
): Promise<{ positioned: PositionedEvent[]; cursor: string | null }> {
  const from = query.cursor === null ? null : parsePosition(query.cursor, query.order);
  const source = query.filter.messageIds
    ? listEventsOfMessages(storageReads, query, from)
    : listAllEvents(storageReads, query, from);
  const positioned: PositionedEvent[] = [];
  let lastPosition: LogPosition | null = null;
  let scanned = 0;
  for await (const { position, event } of source) {
    if (from && !isPastPosition(position, from, query.order)) continue;
    if (positioned.length === query.count || scanned++ >= scanLimit)
      return { positioned, cursor: lastPosition && formatPosition(lastPosition) };
    lastPosition = position;
    const item = { message: event.message, time: event.time, state: event.state };
    if (matchesFilter(query.filter, item)) positioned.push({ position, event });
  }
  return { positioned, cursor: scanned >= scanLimit && lastPosition ? formatPosition(lastPosition) : null };
}

const formatPosition = ({ time, rank, id, index }: LogPosition): string => `${time}-${rank}${index}-${id}`;

/**
 * Parses a cursor of the list. A client may also give a time as the cursor; the page then includes all
 * entries of that time.
 */
function parsePosition(text: string, order: ListQuery["order"]): LogPosition {
  if (/^\d{1,15}$/.test(text))
    return { time: Number(text), rank: order === "latestFirst" ? 2 : -1, index: 0, id: "" };
  const parts = /^(\d{1,15})-([01])(\d)-([\w-]{1,64})$/.exec(text);
  if (!parts) throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  const [, time, rank, index, id] = parts;
  return { time: Number(time), rank: Number(rank), index: Number(index), id: id ?? "" };
}

/** Compares positions from early to late. */
function comparePositions(a: LogPosition, b: LogPosition): number {
  return a.time - b.time || a.rank - b.rank || (a.id === b.id ? a.index - b.index : a.id < b.id ? -1 : 1);
}

const isPastPosition = (position: LogPosition, from: LogPosition, order: ListQuery["order"]): boolean =>
  order === "latestFirst" ? comparePositions(position, from) < 0 : comparePositions(position, from) > 0;

type PositionedEvent = { position: LogPosition; event: LogEntry };

function makeCreationEvents(message: StoredMessage): PositionedEvent[] {
  const states: LogState[] = message.startedAtOnce ? ["CREATED", "ACTIVE"] : ["CREATED"];
  const position = { time: readIdTime(message.id), rank: 0, id: message.id };
  return states.map((state, index) => ({
    position: { ...position, index },
    event: { time: message.createdAt, state, message, row: null },
  }));
}

function makeLogEvents(row: LogRow, message: StoredMessage): PositionedEvent[] {
  const position = { time: readIdTime(row.id), rank: 1, id: row.id };
  return row.states.map((state, index) => ({
    position: { ...position, index },
    event: { time: row.time, state, message, row },
  }));
}

/** The maximum number of rows of one message that are read at once. */
const maxPerRead = 200;

/**
 * Returns the log of some messages. The log of each message is read a few rows at a time, so that a long log
 * is never in memory as a whole.
 */
async function* listEventsOfMessages(
  storageReads: StorageReads,
  query: ListQuery,
  from: LogPosition | null,
): AsyncGenerator<PositionedEvent> {
  const { account } = query;
  const descending = query.order === "latestFirst";
  const keys = toKeys(account, query.filter.messageIds ?? []);
  const messages = await storageReads.rows("storedMessages", keys, { bodies: false });
  const limit = Math.min(maxPerRead, Math.max(4, Math.ceil(1_000 / Math.max(1, messages.length))));
  const range: Range = { account, descending, limit, bodies: false, ...toIdRange("log", query, from) };
  yield* mergeSorted(
    messages.map((message) => listMessageEvents(storageReads, message, range)),
    precedes(descending),
  );
}

async function* listMessageEvents(
  storageReads: StorageReads,
  message: StoredMessage,
  range: Range,
): AsyncGenerator<PositionedEvent> {
  if (!range.descending) yield* makeCreationEvents(message);
  let next = range;
  for (;;) {
    const rows = await withKeptLog(storageReads).messageLog(message.id, next);
    for (const row of rows) yield* inListOrder(makeLogEvents(row, message), range);
    const last = rows.at(-1);
    if (!last || rows.length < range.limit) break;
    next = { ...range, ...rangePast(last.id, range) };
  }
  if (range.descending) yield* makeCreationEvents(message).reverse();
}

const precedes =
  (descending: boolean) =>
  (a: PositionedEvent, b: PositionedEvent): boolean =>
    comparePositions(a.position, b.position) < 0 !== descending;

/**
 * Returns the creation of messages and the log rows. Omits either of them if it cannot have a wanted state.
 */
async function* listAllEvents(
  storageReads: StorageReads,
  query: ListQuery,
  from: LogPosition | null,
): AsyncGenerator<PositionedEvent> {
  const { account, filter, order } = query;
  const descending = order === "latestFirst";
  const pageRows = query.count + 1;
  const sources: AsyncGenerator<PositionedEvent>[] = [];
  if (filter.states?.some((state) => state === "CREATED" || state === "ACTIVE") ?? true) {
    const range = { account, descending, ...toIdRange("msg", query, from) };
    sources.push(
      listCreationEvents(storageReads, {
        ...(await planScan(storageReads, { list: "born", kind: "msg", filter, range })),
        pageRows,
      }),
    );
  }
  if (filter.states?.some((state) => state !== "CREATED") ?? true) {
    const range = { account, descending, ...toIdRange("log", query, from) };
    sources.push(
      listRowEvents(storageReads, {
        ...(await planScan(storageReads, { list: "log", kind: "log", filter, range })),
        pageRows,
      }),
    );
  }
  yield* mergeSorted(sources, precedes(descending));
}

type PageScan = ScanPlan & { pageRows: number };

async function* listCreationEvents(
  storageReads: StorageReads,
  scan: PageScan,
): AsyncGenerator<PositionedEvent> {
  for await (const messages of readChunks(storageReads, "storedMessages", scan)) {
    for (const message of messages) yield* inListOrder(makeCreationEvents(message), scan.range);
  }
}

async function* listRowEvents(storageReads: StorageReads, scan: PageScan): AsyncGenerator<PositionedEvent> {
  const chunks = readChunks(withKeptLog(storageReads), "log", scan);
  const source = withMessages(storageReads, {
    account: scan.range.account,
    chunks,
    toMessageId: ({ messageId }) => messageId,
  });
  for await (const { row, message } of source)
    if (message) yield* inListOrder(makeLogEvents(row, message), scan.range);
}

const inListOrder = (
  positioned: PositionedEvent[],
  { descending }: Omit<Range, "limit">,
): PositionedEvent[] => (descending ? positioned.reverse() : positioned);

/** Returns the range of ids that contains the wanted times and starts at the time of the cursor. */
function toIdRange(
  kind: "msg" | "log",
  { filter, order }: ListQuery,
  from: LogPosition | null,
): { after?: string; before?: string } {
  const start = Math.max(filter.from ?? 0, order === "earliestFirst" && from ? from.time : 0);
  const end = Math.min(filter.to ?? Infinity, order === "latestFirst" && from ? from.time : Infinity);
  return {
    ...(start > 0 ? { after: firstIdAt(kind, start) } : {}),
    ...(end === Infinity ? {} : { before: firstIdAt(kind, end + 1) }),
  };
}
