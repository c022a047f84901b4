import type { Filter } from "../../core/search/filter.ts";
import { readIdTime, firstIdAt } from "../../core/values/ids.ts";
import type { TaggedList } from "../../core/search/tags.ts";
import type { AccountId, Millis } from "../../core/model/message.ts";
import type { Span } from "../../core/search/timeIndex.ts";
import {
  toDayNumber,
  readTimeIndexDay,
  indexInterval,
  formatIndexTime,
  timeIndexPrefix,
  listWantedTimeKeys,
  startOfDay,
} from "../../core/search/timeIndex.ts";
import type { TagLookup } from "./byTag.ts";
import { readIds, mergeSorted, probeLimit, pickTagLookup, countTagged } from "./byTag.ts";
import type { Range, StorageReads } from "./storageReads.ts";
import { lastTime } from "./storageReads.ts";

/** A part of a list, by the ids of its rows. */
type IdRange = Omit<Range, "limit">;

/** `kind`: of the ids of the list. */
type ListScan = { list: TaggedList; kind: "msg" | "log"; filter: Filter; range: IdRange };

/** How to come to all of a range that passes a filter: by marks; by the parts of it in which it was sighted; or, with neither, by all of it. */
export type ScanPlan = { range: IdRange; tagLookup: TagLookup | null; ranges: AsyncGenerator<IdRange> | null };

/** `few`: however long it is, little was told then. */
type ScanSpan = Span & { isSmall?: boolean };

/** So many sightings are read together. Those that follow on each other make one stretch. */
const timesPerRead = 500;

/** The shortest way through messages or their log. */
export async function planScan(storageReads: StorageReads, scan: ListScan): Promise<ScanPlan> {
  const { list, filter, range } = scan;
  const tagLookup = await pickTagLookup(storageReads, list, filter, range);
  const wanted = listWantedTimeKeys(filter);
  if (wanted.length === 0) return { range, tagLookup, ranges: null };
  const makeRanges = (): AsyncGenerator<IdRange> => toIdRanges(scan, listSpans(storageReads, wanted, range));
  const isShorter =
    tagLookup === null ||
    ((await countTagged(storageReads, tagLookup, range)) >= probeLimit && (await isShortTime(listSpans(storageReads, wanted, range))));
  return isShorter ? { range, tagLookup: null, ranges: makeRanges() } : { range, tagLookup, ranges: null };
}

/** Whether it is all told within as many glances as marks are counted. */
async function isShortTime(spans: AsyncGenerator<ScanSpan>): Promise<boolean> {
  let intervals = 0;
  for await (const { from, to, isSmall } of spans) if (!isSmall && (intervals += (to - from) / indexInterval) >= probeLimit) return false;
  return true;
}

/** What lies in these times of a list. */
async function* toIdRanges({ kind, range }: ListScan, spans: AsyncGenerator<Span>): AsyncGenerator<IdRange> {
  const { after = "", before = "~" } = range;
  for await (const { from, to } of spans) {
    const start = firstIdAt(kind, from);
    const end = to >= lastTime ? "~" : firstIdAt(kind, to);
    const part = { ...range, after: start > after ? start : after, before: end < before ? end : before };
    if (part.after < part.before) yield part;
  }
}

/**
 * Day by day. What is older than the first day with a sighting, and than the first line of the log, is gone through whole: there are no more than
 * births of what is unfinished still, and the sightings of such a day may be half gone.
 */
async function* listSpans(storageReads: StorageReads, wanted: readonly string[][], range: IdRange): AsyncGenerator<ScanSpan> {
  const { account, descending = false } = range;
  const [[firstIndexRow], [lastIndexRow], [firstLogRow]] = await Promise.all([
    storageReads.range("timeIndex", { account, limit: 1 }),
    storageReads.range("timeIndex", { account, descending: true, limit: 1 }),
    storageReads.range("log", { account, limit: 1, bodies: false }),
  ]);
  if (!firstIndexRow || !lastIndexRow) {
    yield { from: 0, to: lastTime };
    return;
  }
  const newest = readTimeIndexDay(lastIndexRow.id);
  const oldest = Math.max(readTimeIndexDay(firstIndexRow.id), firstLogRow ? toDayNumber(readIdTime(firstLogRow.id)) : 0);
  const time = {
    from: range.after === undefined ? 0 : readIdTime(range.after),
    to: range.before === undefined ? lastTime : readIdTime(range.before),
  };
  const from = Math.max(oldest, toDayNumber(time.from));
  const to = Math.min(newest, toDayNumber(time.to));
  const older: ScanSpan = { from: 0, to: startOfDay(oldest), isSmall: !firstLogRow || toDayNumber(readIdTime(firstLogRow.id)) >= oldest };
  if (!descending) yield older;
  for (let n = 0; n <= to - from; n++)
    yield* listSpansOfDay(storageReads, wanted, { account, descending, time, day: descending ? to - n : from + n });
  if (descending) yield older;
}

type DayScan = { account: AccountId; day: number; descending: boolean; time: Span };

async function* listSpansOfDay(storageReads: StorageReads, wanted: readonly string[][], scan: DayScan): AsyncGenerator<Span> {
  const { time, descending } = scan;
  const times = intersectTimes(
    wanted.map((timeKeys) => (at: Millis | null) => {
      const [from, to] = descending ? [time.from, at ?? time.to] : [at ?? time.from, time.to];
      return listTimes(storageReads, timeKeys, { ...scan, time: { from, to } });
    }),
    descending,
  );
  let span: Span | null = null;
  for await (const at of times) {
    const next: Span = { from: at, to: at + indexInterval };
    if (span && span.to - span.from < timesPerRead * indexInterval && (scan.descending ? next.to === span.from : next.from === span.to)) {
      span = { from: Math.min(span.from, next.from), to: Math.max(span.to, next.to) };
    } else {
      if (span) yield span;
      span = next;
    }
  }
  if (span) yield span;
}

/** When any of these was sighted, in order. */
async function* listTimes(
  storageReads: StorageReads,
  timeKeys: readonly string[],
  { account, day, descending, time }: DayScan,
): AsyncGenerator<Millis> {
  const bounds = { account, descending, limit: timesPerRead };
  const sources = timeKeys.map((timeKey) => {
    const prefix = timeIndexPrefix(day, timeKey);
    const after = prefix + formatIndexTime(Math.max(0, time.from - indexInterval));
    const before = prefix + (time.to >= lastTime ? "~" : formatIndexTime(time.to + 1));
    return readIds(storageReads, { table: "timeIndex", prefix, range: { ...bounds, after, before }, limit: timesPerRead });
  });
  let last: string | null = null;
  for await (const at of mergeSorted(sources, (a, b) => (descending ? a > b : a < b))) {
    if (at !== last) yield Number(at);
    last = at;
  }
}

/** Times in order, from the first one on or from a given one. */
type TimeReader = (from: Millis | null) => AsyncGenerator<Millis>;

/**
 * What all of some sources have. What was sighted often, but never together, would be gone through to its end: after as many as are read together the
 * next time of one of them is named all the same, so that what was told then is looked at and counts (`scanLimit`), and the others go on from there.
 */
async function* intersectTimes(sources: readonly TimeReader[], descending: boolean): AsyncGenerator<Millis> {
  const running = await Promise.all(
    sources.map(async (from) => {
      const times = from(null);
      return { from, times, head: await times.next() };
    }),
  );
  for (let misses = 0; ; misses++) {
    const heads: Millis[] = [];
    for (const { head } of running) {
      if (head.done) return;
      heads.push(head.value);
    }
    const furthest = descending ? Math.min(...heads) : Math.max(...heads);
    const isCommon = heads.every((at) => at === furthest);
    const isGivingUp = !isCommon && misses >= timesPerRead;
    if (isCommon || isGivingUp) {
      yield furthest;
      misses = 0;
    }
    for (const source of running) {
      if (!isCommon && source.head.value === furthest) continue;
      if (isGivingUp) source.times = source.from(furthest);
      source.head = await source.times.next();
    }
  }
}
