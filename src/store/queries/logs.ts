import { Refusal } from "../../core/values/errors.ts";
import { passes } from "../../core/search/filter.ts";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import { logBodyBytes } from "../../core/values/limits.ts";
import type { AccountId, Envelope, LogRow, LogState, Millis } from "../../core/model/message.ts";
import { chunksOf, withEnvelopes } from "./pages.ts";
import { inOrder } from "./byTag.ts";
import type { ListQuery, Range, Shelf } from "./storageReads.ts";
import { fittingPage, keysOf, lastTime, past, scanLimit } from "./storageReads.ts";
import type { Way } from "./byTime.ts";
import { wayThrough } from "./byTime.ts";
import { wholeLog } from "./wholeLog.ts";

/** One line of the log as people see it. `row` is absent where the envelope itself tells: CREATED, and a first ACTIVE. */
export type LogEvent = { time: Millis; state: LogState; envelope: Envelope; row: LogRow | null };
export type LogPage = { events: LogEvent[]; cursor: string | null };

/**
 * A place in the log. The log is the envelopes (rank 0: they tell of their own birth) and the log rows (rank 1) merged
 * by time; `index` counts the states that one row tells of.
 */
type Place = { time: Millis; rank: number; id: string; index: number };

/** One page of the log of an account, by time. It ends early rather than become larger than a page may be. */
export async function logPage(shelf: Shelf, query: ListQuery): Promise<LogPage> {
  const { placed, cursor } = await outlined(shelf, query);
  const keys = keysOf(
    query.account,
    placed.map(({ event }) => event.envelope.id),
  );
  const sizes = await shelf.sizes("envelopes", keys);
  const counted = new Set<string>();
  const page = placed.slice(0, fittingPage(placed.map(({ event }) => newBytes(event, sizes, counted))));
  const events = await filled(
    shelf,
    query.account,
    page.map(({ event }) => event),
  );
  const last = page.at(-1);
  return { events, cursor: page.length < placed.length && last ? placeText(last.place) : cursor };
}

/** The bytes by which an event makes a page larger. Events of one message share its envelope. */
function newBytes({ envelope, row }: LogEvent, sizes: ReadonlyMap<string, number>, counted: Set<string>): number {
  const ofEnvelope = counted.has(envelope.id) ? 0 : (sizes.get(envelope.id) ?? 0);
  counted.add(envelope.id);
  return ofEnvelope + (row ? logBodyBytes : 0);
}

/** Events with their bodies. */
async function filled(shelf: Shelf, account: AccountId, events: readonly LogEvent[]): Promise<LogEvent[]> {
  const envelopes = new Map(
    (
      await shelf.rows(
        "envelopes",
        keysOf(
          account,
          events.map(({ envelope }) => envelope.id),
        ),
      )
    ).map((envelope) => [envelope.id, envelope]),
  );
  const rows = new Map(
    (
      await wholeLog(shelf).rows(
        "log",
        keysOf(
          account,
          events.flatMap(({ row }) => row?.id ?? []),
        ),
      )
    ).map((row) => [row.id, row]),
  );
  // What has gone meanwhile is shown without its body.
  return events.map((event) => ({
    ...event,
    envelope: envelopes.get(event.envelope.id) ?? event.envelope,
    row: event.row && (rows.get(event.row.id) ?? event.row),
  }));
}

async function outlined(shelf: Shelf, query: ListQuery): Promise<{ placed: Placed[]; cursor: string | null }> {
  const from = query.cursor === null ? null : parsePlace(query.cursor, query.order);
  const source = query.filter.messageIds ? ofMessages(shelf, query, query.filter.messageIds, from) : merged(shelf, query, from);
  const placed: Placed[] = [];
  let last: Place | null = null;
  let scanned = 0;
  for await (const { place, event } of source) {
    if (from && !isPast(place, from, query.order)) continue;
    if (placed.length === query.count || scanned++ >= scanLimit) return { placed, cursor: last && placeText(last) };
    last = place;
    const seen = { envelope: event.envelope, time: event.time, state: event.state };
    if (passes(query.filter, seen)) placed.push({ place, event });
  }
  return { placed, cursor: scanned >= scanLimit && last ? placeText(last) : null };
}

const placeText = ({ time, rank, id, index }: Place): string => `${time}-${rank}${index}-${id}`;

/** A place that the list gave out; or a moment alone, as clients may begin with, where all of that moment is still to come. */
function parsePlace(text: string, order: ListQuery["order"]): Place {
  if (/^\d{1,15}$/.test(text)) return { time: Number(text), rank: order === "latestFirst" ? 2 : -1, index: 0, id: "" };
  const parts = /^(\d{1,15})-([01])(\d)-([\w-]{1,64})$/.exec(text);
  if (!parts) throw new Refusal("invalid", "cursor: not one that this list has given out");
  const [, time, rank, index, id] = parts;
  return { time: Number(time), rank: Number(rank), index: Number(index), id: id ?? "" };
}

/** Orders places from early to late. */
function compare(a: Place, b: Place): number {
  return a.time - b.time || a.rank - b.rank || (a.id === b.id ? a.index - b.index : a.id < b.id ? -1 : 1);
}

const isPast = (place: Place, from: Place, order: ListQuery["order"]): boolean =>
  order === "latestFirst" ? compare(place, from) < 0 : compare(place, from) > 0;

type Placed = { place: Place; event: LogEvent };

function born(envelope: Envelope): Placed[] {
  const states: LogState[] = envelope.startedAtOnce ? ["CREATED", "ACTIVE"] : ["CREATED"];
  const place = { time: birthOf(envelope.id), rank: 0, id: envelope.id };
  return states.map((state, index) => ({ place: { ...place, index }, event: { time: envelope.createdAt, state, envelope, row: null } }));
}

function told(row: LogRow, envelope: Envelope): Placed[] {
  const place = { time: birthOf(row.id), rank: 1, id: row.id };
  return row.states.map((state, index) => ({ place: { ...place, index }, event: { time: row.time, state, envelope, row } }));
}

/** The log of some messages: so many sources of few rows each that a long one is never in memory as a whole. */
async function* ofMessages(shelf: Shelf, query: ListQuery, ids: readonly string[], from: Place | null): AsyncGenerator<Placed> {
  const { account } = query;
  const descending = query.order === "latestFirst";
  const envelopes = await shelf.rows("envelopes", keysOf(account, ids), { bodies: false });
  const limit = Math.min(chunk, Math.max(4, Math.ceil(1_000 / Math.max(1, envelopes.length))));
  const range: Range = { account, descending, limit, bodies: false, ...stretch("log", query, from) };
  yield* inOrder(
    envelopes.map((envelope) => lifeOf(shelf, envelope, range)),
    precedes(descending),
  );
}

async function* lifeOf(shelf: Shelf, envelope: Envelope, range: Range): AsyncGenerator<Placed> {
  if (!range.descending) yield* born(envelope);
  let next = range;
  for (;;) {
    const rows = await wholeLog(shelf).logOf(envelope.id, next);
    for (const row of rows) yield* turned(told(row, envelope), range);
    const last = rows.at(-1);
    if (!last || rows.length < range.limit) break;
    next = { ...range, ...past(last.id, range) };
  }
  if (range.descending) yield* born(envelope).reverse();
}

const precedes =
  (descending: boolean) =>
  (a: Placed, b: Placed): boolean =>
    compare(a.place, b.place) < 0 !== descending;

/** Births and log rows, as far as they can be of a wanted state. */
async function* merged(shelf: Shelf, query: ListQuery, from: Place | null): AsyncGenerator<Placed> {
  const { account, filter, order } = query;
  const descending = order === "latestFirst";
  const sources: AsyncGenerator<Placed>[] = [];
  if (filter.states?.some((state) => state === "CREATED" || state === "ACTIVE") ?? true) {
    const range = { account, descending, ...stretch("msg", query, from) };
    sources.push(births(shelf, await wayThrough(shelf, { list: "born", kind: "msg", filter, range })));
  }
  if (filter.states?.some((state) => state !== "CREATED") ?? true) {
    const range = { account, descending, ...stretch("log", query, from) };
    sources.push(tellings(shelf, { ...(await wayThrough(shelf, { list: "log", kind: "log", filter, range })), limit: query.count + 1 }));
  }
  yield* inOrder(sources, precedes(descending));
}

const chunk = 200;

type Through = Way & { limit?: number };

async function* births(shelf: Shelf, of: Through): AsyncGenerator<Placed> {
  for await (const envelopes of chunksOf(shelf, "envelopes", { ...of, limit: chunk })) {
    for (const envelope of envelopes) yield* turned(born(envelope), of.range);
  }
}

async function* tellings(shelf: Shelf, of: Through): AsyncGenerator<Placed> {
  const chunks = chunksOf(wholeLog(shelf), "log", of);
  const source = withEnvelopes(shelf, { account: of.range.account, chunks, messageIdOf: ({ messageId }) => messageId });
  for await (const { row, envelope } of source) if (envelope) yield* turned(told(row, envelope), of.range);
}

const turned = (placed: Placed[], { descending }: Omit<Range, "limit">): Placed[] => (descending ? placed.reverse() : placed);

/** The ids of a kind in which the wanted time, and what lies past the cursor, can be. */
function stretch(kind: "msg" | "log", { filter, order }: ListQuery, from: Place | null): { after?: string; before?: string } {
  const start = Math.max(filter.from ?? 0, order === "earliestFirst" && from ? from.time : 0);
  const end = Math.min(filter.to ?? Infinity, order === "latestFirst" && from ? from.time : Infinity);
  return {
    ...(start > 0 ? { after: firstIdAt(kind, Math.min(start, lastTime)) } : {}),
    ...(end >= lastTime ? {} : { before: firstIdAt(kind, end + 1) }),
  };
}
