import type { Millis } from "../model/message.ts";

// The time that all nodes on one database share: the clock of the database plus an offset, which is above 0 after the clock has gone
// back. See docs/decisions/0050.

/**
 * A time that was used for a batch. When the clock of the database said `clockOffsetAt`, time was `ahead` of it; from then on the offset gets
 * smaller by 1 ms in 10 ms.
 */
export type UsedTime = { usedAt: Millis; clockOffset: Millis; clockOffsetAt: Millis };

/** Time runs at 0.9 of the speed of the clock while it is ahead. */
const catchUpDivisor = 10;

/** A clock that jumps by more than this is reported. */
export const maxClockJump: Millis = 5_000;

/** What a node knows when it begins a batch. */
export type BatchStart = {
  /** The clock of the database. */
  clock: Millis;
  /** The last time this node used, stored or not. */
  own: UsedTime | null;
  /** The latest time that is stored, and whether this node stored it. */
  stored: (UsedTime & { isOwn: boolean }) | null;
  /** How long ago this node used `own`, at least, by a clock that nobody sets. */
  sinceOwn?: Millis;
};

/**
 * Returns the time of a batch. It never goes back, and it is later than what another node has stored while it is ahead of the clock, so
 * that the ids of two nodes sort like their batches. Where the clock has gone back, time continues from the latest one used.
 */
export function nextBatchTime({ clock, own, stored, sinceOwn = 0 }: BatchStart): UsedTime {
  const last = own !== null && (stored === null || own.usedAt > stored.usedAt) ? own : stored;
  if (last === null) return { usedAt: clock, clockOffset: 0, clockOffsetAt: clock };
  const remainingOffset = Math.max(0, last.clockOffset - Math.floor(Math.max(0, clock - last.clockOffsetAt) / catchUpDivisor));
  const offsetTime = clock + remainingOffset;
  // Without an offset two nodes use the same millisecond only for batches that do not know of each other.
  const isOther = stored !== null && !stored.isOwn && last.usedAt === stored.usedAt && (remainingOffset > 0 || offsetTime < last.usedAt);
  const earliest = last.usedAt + (isOther ? 1 : 0);
  if (offsetTime >= earliest)
    return remainingOffset === 0
      ? { usedAt: offsetTime, clockOffset: 0, clockOffsetAt: clock }
      : { usedAt: offsetTime, clockOffset: last.clockOffset, clockOffsetAt: last.clockOffsetAt };
  const ownTime = own === null ? 0 : own.usedAt + sinceOwn - Math.floor(sinceOwn / catchUpDivisor);
  const usedAt = Math.max(earliest, ownTime);
  // What was worked off by less than a millisecond stays so.
  const clockOffsetAt = remainingOffset > 0 && clock >= last.clockOffsetAt ? last.clockOffsetAt : clock;
  return { usedAt, clockOffset: usedAt - clock + Math.floor((clock - clockOffsetAt) / catchUpDivisor), clockOffsetAt };
}

/** When a node read the clock of the database: between `from` and `to` of its own clock. */
export type ClockReading = { clock: Millis; from: Millis; to: Millis };

/** Returns by how much the clock of the database has jumped between two readings, at least; below 0 if it has gone back, 0 if it cannot be known. */
export function measureClockJump(before: ClockReading, now: ClockReading): Millis {
  const elapsed = now.clock - before.clock;
  const minElapsed = now.from - before.to;
  const maxElapsed = now.to - before.from;
  return elapsed > maxElapsed ? elapsed - maxElapsed : Math.min(0, elapsed - minElapsed);
}
