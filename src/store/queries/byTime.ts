import type { Filter } from "../../core/search/filter.ts";
import { birthOf, firstIdAt } from "../../core/values/ids.ts";
import type { MarkedList } from "../../core/search/tags.ts";
import type { AccountId, Millis } from "../../core/model/message.ts";
import type { Span } from "../../core/search/timeIndex.ts";
import { dayOf, dayOfSighting, glance, writtenTime, sightingPrefix, sightsWanted, startOfDay } from "../../core/search/timeIndex.ts";
import type { Marked } from "./byTag.ts";
import { idsOf, inOrder, probe, shortestWay, sizeOf } from "./byTag.ts";
import type { Range, Shelf } from "./storageReads.ts";
import { lastTime } from "./storageReads.ts";

/** A part of a list, by the ids of its rows. */
type Stretch = Omit<Range, "limit">;

/** `kind`: of the ids of the list. */
type Through = { list: MarkedList; kind: "msg" | "log"; filter: Filter; range: Stretch };

/** How to come to all of a range that passes a filter: by marks; by the parts of it in which it was sighted; or, with neither, by all of it. */
export type Way = { range: Stretch; marked: Marked | null; stretches: AsyncGenerator<Stretch> | null };

/** `few`: however long it is, little was told then. */
type Sparse = Span & { few?: boolean };

/** So many sightings are read together. Those that follow on each other make one stretch. */
const portion = 500;

/** The shortest way through messages or their log. */
export async function wayThrough(shelf: Shelf, of: Through): Promise<Way> {
  const { list, filter, range } = of;
  const marked = await shortestWay(shelf, list, filter, range);
  const wanted = sightsWanted(filter);
  if (wanted.length === 0) return { range, marked, stretches: null };
  const stretches = (): AsyncGenerator<Stretch> => within(of, spansIn(shelf, wanted, range));
  const isShorter = marked === null || ((await sizeOf(shelf, marked, range)) >= probe && (await isShort(spansIn(shelf, wanted, range))));
  return isShorter ? { range, marked: null, stretches: stretches() } : { range, marked, stretches: null };
}

/** Whether it is all told within as many glances as marks are counted. */
async function isShort(spans: AsyncGenerator<Sparse>): Promise<boolean> {
  let glances = 0;
  for await (const { from, to, few } of spans) if (!few && (glances += (to - from) / glance) >= probe) return false;
  return true;
}

/** What lies in these times of a list. */
async function* within({ kind, range }: Through, spans: AsyncGenerator<Span>): AsyncGenerator<Stretch> {
  const { after = "", before = "~" } = range;
  for await (const { from, to } of spans) {
    const [start, end] = [firstIdAt(kind, from), to >= lastTime ? "~" : firstIdAt(kind, to)];
    const stretch = { ...range, after: start > after ? start : after, before: end < before ? end : before };
    if (stretch.after < stretch.before) yield stretch;
  }
}

/**
 * Day by day. What is older than the first day with a sighting, and than the first line of the log, is gone through whole: there are no more than
 * births of what is unfinished still, and the sightings of such a day may be half gone.
 */
async function* spansIn(shelf: Shelf, wanted: readonly string[][], range: Stretch): AsyncGenerator<Sparse> {
  const { account, descending = false } = range;
  const [[first], [last], [line]] = await Promise.all([
    shelf.range("sightings", { account, limit: 1 }),
    shelf.range("sightings", { account, descending: true, limit: 1 }),
    shelf.range("log", { account, limit: 1, bodies: false }),
  ]);
  if (!first || !last) {
    yield { from: 0, to: lastTime };
    return;
  }
  const newest = dayOfSighting(last.id);
  const oldest = Math.max(dayOfSighting(first.id), line ? dayOf(birthOf(line.id)) : 0);
  const time = {
    from: range.after === undefined ? 0 : birthOf(range.after),
    to: range.before === undefined ? lastTime : birthOf(range.before),
  };
  const [from, to] = [Math.max(oldest, dayOf(time.from)), Math.min(newest, dayOf(time.to))];
  const older: Sparse = { from: 0, to: startOfDay(oldest), few: !line || dayOf(birthOf(line.id)) >= oldest };
  if (!descending) yield older;
  for (let n = 0; n <= to - from; n++) yield* spansOfDay(shelf, wanted, { account, descending, time, day: descending ? to - n : from + n });
  if (descending) yield older;
}

type Day = { account: AccountId; day: number; descending: boolean; time: Span };

async function* spansOfDay(shelf: Shelf, wanted: readonly string[][], of: Day): AsyncGenerator<Span> {
  const { time, descending } = of;
  const times = common(
    wanted.map((sights) => (at: Millis | null) => {
      const [from, to] = descending ? [time.from, at ?? time.to] : [at ?? time.from, time.to];
      return timesOf(shelf, sights, { ...of, time: { from, to } });
    }),
    descending,
  );
  let span: Span | null = null;
  for await (const at of times) {
    const next: Span = { from: at, to: at + glance };
    if (span && span.to - span.from < portion * glance && (of.descending ? next.to === span.from : next.from === span.to)) {
      span = { from: Math.min(span.from, next.from), to: Math.max(span.to, next.to) };
    } else {
      if (span) yield span;
      span = next;
    }
  }
  if (span) yield span;
}

/** When any of these was sighted, in order. */
async function* timesOf(shelf: Shelf, sights: readonly string[], { account, day, descending, time }: Day): AsyncGenerator<Millis> {
  const bounds = { account, descending, limit: portion };
  const sources = sights.map((sight) => {
    const prefix = sightingPrefix(day, sight);
    const after = prefix + writtenTime(Math.max(0, time.from - glance));
    const before = prefix + (time.to >= lastTime ? "~" : writtenTime(time.to + 1));
    return idsOf(shelf, { table: "sightings", prefix, range: { ...bounds, after, before }, limit: portion });
  });
  let last: string | null = null;
  for await (const at of inOrder(sources, (a, b) => (descending ? a > b : a < b))) {
    if (at !== last) yield Number(at);
    last = at;
  }
}

/** Times in order, from the first one on or from a given one. */
type Times = (from: Millis | null) => AsyncGenerator<Millis>;

/**
 * What all of some sources have. What was sighted often, but never together, would be gone through to its end: after as many as are read together the
 * next time of one of them is named all the same, so that what was told then is looked at and counts (`scanLimit`), and the others go on from there.
 */
async function* common(sources: readonly Times[], descending: boolean): AsyncGenerator<Millis> {
  const running = await Promise.all(
    sources.map(async (from) => {
      const times = from(null);
      return { from, times, head: await times.next() };
    }),
  );
  for (let inVain = 0; ; inVain++) {
    const heads: Millis[] = [];
    for (const { head } of running) {
      if (head.done) return;
      heads.push(head.value);
    }
    const furthest = descending ? Math.min(...heads) : Math.max(...heads);
    const isMet = heads.every((at) => at === furthest);
    const isInVain = !isMet && inVain >= portion;
    if (isMet || isInVain) {
      yield furthest;
      inVain = 0;
    }
    for (const one of running) {
      if (!isMet && one.head.value === furthest) continue;
      if (isInVain) one.times = one.from(furthest);
      one.head = await one.times.next();
    }
  }
}
