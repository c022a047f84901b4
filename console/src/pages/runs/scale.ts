/** A stretch of time in which something ran, and where it is drawn, in per cent of the width. */
export type Stretch = { from: number; to: number; x: number; width: number };
/** A cut: time in which nothing ran. */
export type Cut = { from: number; to: number; x: number; width: number };
/** The scale of a timeline: one scale for all time in which something ran, with the idle time cut out. */
export type Scale = { stretches: readonly Stretch[]; cuts: readonly Cut[]; toX(time: number): number };

type Span = { from: number; to: number };

/** The width of a cut in per cent. */
const cutWidth = 6;
/** The share of the busy time from which idle time is cut. */
const cutShare = 0.05;

/**
 * Returns the scale for these spans of work. If nothing ran for more than 5 % of the busy time, the axis is
 * cut, unless `isTrue` asks for the true scale.
 */
export function makeScale(spans: readonly Span[], isTrue: boolean): Scale {
  const sorted = spans.toSorted((one, other) => one.from - other.from);
  const first = sorted[0]?.from ?? 0;
  const last = Math.max(first + 1, ...sorted.map(({ to }) => to));
  const busy = merge(sorted);
  const busyTime = Math.max(
    1,
    busy.reduce((sum, { from, to }) => sum + (to - from), 0),
  );
  const parts = isTrue ? [{ from: first, to: last }] : joinShortGaps(busy, busyTime * cutShare);
  const time = Math.max(
    1,
    parts.reduce((sum, { from, to }) => sum + Math.max(1, to - from), 0),
  );
  const free = Math.max(20, 100 - cutWidth * (parts.length - 1));
  const gap = parts.length > 1 ? (100 - free) / (parts.length - 1) : 0;
  let x = 0;
  const stretches = parts.map(({ from, to }): Stretch => {
    const width = (free * Math.max(1, to - from)) / time;
    const stretch = { from, to, x, width };
    x += width + gap;
    return stretch;
  });
  const cuts = stretches.slice(1).map((stretch, at): Cut => {
    const before = stretches[at] ?? stretch;
    return { from: before.to, to: stretch.from, x: before.x + before.width, width: gap };
  });
  return { stretches, cuts, toX: (at) => place(stretches, at) };
}

function merge(sorted: readonly Span[]): Span[] {
  const merged: Span[] = [];
  for (const { from, to } of sorted) {
    const last = merged.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else merged.push({ from, to });
  }
  return merged;
}

function joinShortGaps(busy: readonly Span[], limit: number): Span[] {
  const joined: Span[] = [];
  for (const { from, to } of busy) {
    const last = joined.at(-1);
    if (last && from - last.to <= limit) last.to = to;
    else joined.push({ from, to });
  }
  return joined;
}

function place(stretches: readonly Stretch[], at: number): number {
  let before: Stretch | undefined;
  for (const stretch of stretches) {
    const { from, to, x, width } = stretch;
    if (at < from) return before ? placeInCut(before, stretch, at) : x;
    if (at <= to) return x + (width * (at - from)) / Math.max(1, to - from);
    before = stretch;
  }
  return before ? before.x + before.width : 0;
}

/** Returns where a time between two stretches is drawn. */
function placeInCut(before: Stretch, next: Stretch, at: number): number {
  const begin = before.x + before.width;
  return begin + ((next.x - begin) * (at - before.to)) / (next.from - before.to);
}
