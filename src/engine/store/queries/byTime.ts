import type { Filter } from "../../core/search/filter.ts";
import { firstIdAt, lastIdTime, readIdTime } from "../../core/values/ids.ts";
import type { TaggedList } from "../../core/search/tags.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
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
import type { Range, StorageReads } from "../layout/storageReads.ts";

/** A range of a list by row id. */
type IdRange = Omit<Range, "limit">;

/** A search in a list. `kind` is the kind of the row ids. */
type ListScan = { list: TaggedList; kind: "msg" | "log"; filter: Filter; range: IdRange };

/**
 * How to read the rows of a range that pass a filter: by tags (`tagLookup`), or by the parts of the range in
 * which the time index has entries (`ranges`). If both are null, the whole range is read.
 */
export type ScanPlan = {
  range: IdRange;
  tagLookup: TagLookup | null;
  ranges: AsyncGenerator<IdRange> | null;
};

/** `isSmall`: the span contains few rows regardless of its length. */
type ScanSpan = Span & { isSmall?: boolean };

/**
 * The number of time index entries that are read together. Up to this many consecutive intervals form one
 * span.
 */
const timesPerRead = 500;

/** Returns the plan by which the fewest rows of messages or their log must be read. */
export async function planScan(storageReads: StorageReads, scan: ListScan): Promise<ScanPlan> {
  const { filter, range } = scan;
  const tagLookup = await pickTagLookup(storageReads, scan);
  const keyLists = listWantedTimeKeys(filter);
  if (keyLists.length === 0) return { range, tagLookup, ranges: null };
  const makeRanges = (): AsyncGenerator<IdRange> =>
    toIdRanges(scan, listSpans(storageReads, keyLists, range));
  const isShorter =
    tagLookup === null ||
    ((await countTagged(storageReads, tagLookup, range)) >= probeLimit &&
      (await isShortTime(listSpans(storageReads, keyLists, range))));
  return isShorter ? { range, tagLookup: null, ranges: makeRanges() } : { range, tagLookup, ranges: null };
}

/** Reports whether the spans have fewer than `probeLimit` intervals of 5 s in all. */
async function isShortTime(spans: AsyncGenerator<ScanSpan>): Promise<boolean> {
  let intervals = 0;
  for await (const { from, to, isSmall } of spans)
    if (!isSmall && (intervals += (to - from) / indexInterval) >= probeLimit) return false;
  return true;
}

/** Returns the id ranges of these spans. */
async function* toIdRanges({ kind, range }: ListScan, spans: AsyncGenerator<Span>): AsyncGenerator<IdRange> {
  const { after = "", before = "~" } = range;
  for await (const { from, to } of spans) {
    const start = firstIdAt(kind, from);
    const end = to >= lastIdTime ? "~" : firstIdAt(kind, to);
    const part = { ...range, after: start > after ? start : after, before: end < before ? end : before };
    if (part.after < part.before) yield part;
  }
}

/**
 * Returns the spans in which rows may pass the filter, day by day. The time before the first whole day of the
 * time index is one span. It is small if the log begins later: it then contains only messages that are
 * unfinished or have a dead letter.
 */
async function* listSpans(
  storageReads: StorageReads,
  keyLists: readonly string[][],
  range: IdRange,
): AsyncGenerator<ScanSpan> {
  const { account, descending = false } = range;
  const [[lastIndexRow], first] = await Promise.all([
    storageReads.range("timeIndex", { account, descending: true, limit: 1 }),
    findFirstWholeDay(storageReads, account),
  ]);
  if (!lastIndexRow || !first) {
    yield { from: 0, to: lastIdTime };
    return;
  }
  const newest = readTimeIndexDay(lastIndexRow.id);
  const time = {
    from: range.after === undefined ? 0 : readIdTime(range.after),
    to: range.before === undefined ? lastIdTime : readIdTime(range.before),
  };
  const from = Math.max(first.day, toDayNumber(time.from));
  const to = Math.min(newest, toDayNumber(time.to));
  const older: ScanSpan = { from: 0, to: startOfDay(first.day), isSmall: first.isLogLater };
  if (!descending) yield older;
  for (let n = 0; n <= to - from; n++)
    yield* listWholeSpansOfDay(storageReads, keyLists, {
      account,
      descending,
      time,
      day: descending ? to - n : from + n,
    });
  if (descending) yield older;
}

/**
 * Returns the first day from which on the time index is whole, or null if there is no index. `isLogLater`:
 * the log has no entry before that day.
 *
 * Retention removes the time index in parts, the oldest day first, but no entry of a day on which or before
 * which the log has entries (`expire`). The days from the first log entry on are therefore whole. Without a
 * log entry, the first day may be partly removed.
 */
async function findFirstWholeDay(
  storageReads: StorageReads,
  account: AccountId,
): Promise<{ day: number; isLogLater: boolean } | null> {
  const [[indexRow], [logRow]] = await Promise.all([
    storageReads.range("timeIndex", { account, limit: 1 }),
    storageReads.range("log", { account, limit: 1, bodies: false }),
  ]);
  if (!indexRow) return null;
  const indexDay = readTimeIndexDay(indexRow.id);
  if (!logRow) return { day: indexDay + 1, isLogLater: false };
  const logDay = toDayNumber(readIdTime(logRow.id));
  return { day: Math.max(indexDay, logDay), isLogLater: logDay >= indexDay };
}

/** The largest number of spans that are returned after one look at whether the index is still whole. */
const maxSpansPerLook = 4;

/**
 * Returns the spans of a day. Retention may remove the index of the day while it is read. Each span is
 * therefore returned only after a look that shows that the index was whole when the span was read. If it was
 * not, the rest of the day is one span.
 */
async function* listWholeSpansOfDay(
  storageReads: StorageReads,
  keyLists: readonly string[][],
  scan: DayScan,
): AsyncGenerator<Span> {
  const isWhole = async (): Promise<boolean> => {
    const first = await findFirstWholeDay(storageReads, scan.account);
    return first !== null && first.day <= scan.day;
  };
  let rest: Span = { from: startOfDay(scan.day), to: startOfDay(scan.day + 1) };
  let unseen: Span[] = [];
  let spansPerLook = 1;
  for await (const span of listSpansOfDay(storageReads, keyLists, scan)) {
    unseen.push(span);
    if (unseen.length < spansPerLook) continue;
    if (!(await isWhole())) {
      yield rest;
      return;
    }
    yield* unseen;
    rest = scan.descending ? { ...rest, to: span.from } : { ...rest, from: span.to };
    unseen = [];
    spansPerLook = Math.min(2 * spansPerLook, maxSpansPerLook);
  }
  if (await isWhole()) yield* unseen;
  else yield rest;
}

type DayScan = { account: AccountId; day: number; descending: boolean; time: Span };

async function* listSpansOfDay(
  storageReads: StorageReads,
  keyLists: readonly string[][],
  scan: DayScan,
): AsyncGenerator<Span> {
  const { time, descending } = scan;
  const times = intersectTimes(
    keyLists.map((timeKeys) => (at: Millis | null) => {
      const [from, to] = descending ? [time.from, at ?? time.to] : [at ?? time.from, time.to];
      return listTimes(storageReads, timeKeys, { ...scan, time: { from, to } });
    }),
    descending,
  );
  let span: Span | null = null;
  for await (const at of times) {
    const next: Span = { from: at, to: at + indexInterval };
    if (
      span &&
      span.to - span.from < timesPerRead * indexInterval &&
      (scan.descending ? next.to === span.from : next.from === span.to)
    ) {
      span = { from: Math.min(span.from, next.from), to: Math.max(span.to, next.to) };
    } else {
      if (span) yield span;
      span = next;
    }
  }
  if (span) yield span;
}

/** Returns the times at which the time index has any of these keys, in order. */
async function* listTimes(
  storageReads: StorageReads,
  timeKeys: readonly string[],
  { account, day, descending, time }: DayScan,
): AsyncGenerator<Millis> {
  const bounds = { account, descending, limit: timesPerRead };
  const sources = timeKeys.map((timeKey) => {
    const prefix = timeIndexPrefix(day, timeKey);
    const after = prefix + formatIndexTime(Math.max(0, time.from - indexInterval));
    const before = prefix + (time.to >= lastIdTime ? "~" : formatIndexTime(time.to + 1));
    return readIds(storageReads, {
      table: "timeIndex",
      prefix,
      range: { ...bounds, after, before },
      limit: timesPerRead,
    });
  });
  let last: string | null = null;
  for await (const at of mergeSorted(sources, (a, b) => (descending ? a > b : a < b))) {
    if (at !== last) yield Number(at);
    last = at;
  }
}

/** Returns times in order, from the first one or from a given one. */
type TimeReader = (from: Millis | null) => AsyncGenerator<Millis>;

/**
 * Returns the times that all sources have. If keys occur often but never together, the sources would be read
 * to their end. After `timesPerRead` misses, the next time of one source is therefore returned as well. Its
 * rows are visited and count towards `scanLimit`, and the other sources continue from that time.
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
