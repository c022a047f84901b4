import { Refusal } from "../core/errors.ts";
import { passes } from "../core/filter.ts";
import { birthOf, firstIdAt } from "../core/ids.ts";
import { logBodyBytes } from "../core/limits.ts";
import type { AccountId, Envelope, LogRow, LogState, Millis } from "../core/message.ts";
import type { ListQuery, Range, Shelf } from "./shelf.ts";
import { fittingPage, keysOf, past, scanLimit, withEnvelopes } from "./shelf.ts";

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
      await shelf.rows(
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
  const from = query.cursor === null ? null : parsePlace(query.cursor);
  const source = query.filter.messageIds ? ofMessages(shelf, query, query.filter.messageIds) : merged(shelf, query, from);
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

function parsePlace(text: string): Place {
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

async function* ofMessages(shelf: Shelf, { account, order }: ListQuery, ids: readonly string[]): AsyncGenerator<Placed> {
  const all: Placed[] = [];
  for (const envelope of await shelf.rows("envelopes", keysOf(account, ids), { bodies: false })) {
    all.push(...born(envelope));
    for (const row of await shelf.logOf(account, envelope.id)) all.push(...told(row, envelope));
  }
  all.sort((a, b) => compare(a.place, b.place));
  yield* order === "latestFirst" ? all.reverse() : all;
}

async function* merged(shelf: Shelf, query: ListQuery, from: Place | null): AsyncGenerator<Placed> {
  const descending = query.order === "latestFirst";
  const envelopes = births(shelf, { account: query.account, descending, ...stretch("msg", query, from) });
  const rows = tellings(shelf, { account: query.account, descending, ...stretch("log", query, from) }, query.count);
  let [left, right] = [await envelopes.next(), await rows.next()];
  while (!left.done || !right.done) {
    const takeLeft = right.done || (!left.done && compare(left.value.place, right.value.place) < 0 !== descending);
    if (takeLeft && !left.done) {
      yield left.value;
      left = await envelopes.next();
    } else if (!right.done) {
      yield right.value;
      right = await rows.next();
    }
  }
}

const chunk = 200;

async function* births(shelf: Shelf, range: Omit<Range, "limit">): AsyncGenerator<Placed> {
  let next: Range = { ...range, limit: chunk, bodies: false };
  for (;;) {
    const envelopes = await shelf.range("envelopes", next);
    for (const envelope of envelopes) yield* inOrder(born(envelope), range);
    const last = envelopes.at(-1);
    if (!last || envelopes.length < chunk) return;
    next = { ...range, limit: chunk, bodies: false, ...past(last.id, range) };
  }
}

async function* tellings(shelf: Shelf, range: Omit<Range, "limit">, count: number): AsyncGenerator<Placed> {
  const source = withEnvelopes(shelf, "log", { range, messageIdOf: ({ messageId }) => messageId, limit: count + 1 });
  for await (const { row, envelope } of source) if (envelope) yield* inOrder(told(row, envelope), range);
}

const inOrder = (placed: Placed[], { descending }: Omit<Range, "limit">): Placed[] => (descending ? placed.reverse() : placed);

/** The ids of a kind in which the wanted time, and what lies past the cursor, can be. */
function stretch(kind: "msg" | "log", { filter, order }: ListQuery, from: Place | null): { after?: string; before?: string } {
  const start = Math.max(filter.from ?? 0, order === "earliestFirst" && from ? from.time : 0);
  const end = Math.min(filter.to ?? Infinity, order === "latestFirst" && from ? from.time : Infinity);
  return {
    ...(start > 0 ? { after: firstIdAt(kind, start) } : {}),
    ...(end === Infinity ? {} : { before: firstIdAt(kind, end + 1) }),
  };
}
