import type { Millis } from "../values/basics.ts";

// The time that all nodes on one database share: the clock of the database plus an offset, which is above 0
// after the clock has gone back. See docs/decisions/0050.

/**
 * A time that was used for a batch. When the clock of the database showed `clockOffsetAt`, the shared time
 * was `clockOffset` ahead of it. From then on the offset shrinks by 1 ms every 10 ms.
 */
export type UsedTime = { usedAt: Millis; clockOffset: Millis; clockOffsetAt: Millis };

/** While shared time is ahead of the clock, it runs at 0.9 of the speed of the clock. */
const catchUpDivisor = 10;

/** A clock that jumps by more than this is reported. */
export const maxClockJump: Millis = 5_000;

/** The knowledge of a node at the start of a batch. */
export type BatchStart = {
  /** The clock of the database. */
  clock: Millis;
  /** The latest shared time that this node used, whether or not it was stored. */
  own: UsedTime | null;
  /** The latest time that is stored, and whether this node stored it. */
  stored: (UsedTime & { isOwn: boolean }) | null;
  /** The minimum time that has passed since this node used `own`, in milliseconds, by a monotonic clock. */
  sinceOwn?: Millis;
};

/**
 * Returns the time of a batch. It never goes back. While shared time is ahead of the database clock, the
 * returned time is later than every time that another node has stored. The ids of two nodes therefore sort in
 * the order of their batches. If the clock has gone back, time continues from the latest time used.
 */
export function nextBatchTime({ clock, own, stored, sinceOwn = 0 }: BatchStart): UsedTime {
  const last = own !== null && (stored === null || own.usedAt > stored.usedAt) ? own : stored;
  if (last === null) return { usedAt: clock, clockOffset: 0, clockOffsetAt: clock };
  const remainingOffset = Math.max(
    0,
    last.clockOffset - Math.floor(Math.max(0, clock - last.clockOffsetAt) / catchUpDivisor),
  );
  const offsetTime = clock + remainingOffset;
  // If there is no offset, two nodes can use the same millisecond only if neither batch has read the stored
  // time of the other.
  const isOther =
    stored !== null &&
    !stored.isOwn &&
    last.usedAt === stored.usedAt &&
    (remainingOffset > 0 || offsetTime < last.usedAt);
  const earliest = last.usedAt + (isOther ? 1 : 0);
  if (offsetTime >= earliest)
    return remainingOffset === 0
      ? { usedAt: offsetTime, clockOffset: 0, clockOffsetAt: clock }
      : { usedAt: offsetTime, clockOffset: last.clockOffset, clockOffsetAt: last.clockOffsetAt };
  const ownTime = own === null ? 0 : own.usedAt + sinceOwn - Math.floor(sinceOwn / catchUpDivisor);
  const usedAt = Math.max(earliest, ownTime);
  // The old start of the offset is kept. Otherwise the fraction of a millisecond by which the offset has
  // already shrunk would be lost.
  const clockOffsetAt = remainingOffset > 0 && clock >= last.clockOffsetAt ? last.clockOffsetAt : clock;
  return {
    usedAt,
    clockOffset: usedAt - clock + Math.floor((clock - clockOffsetAt) / catchUpDivisor),
    clockOffsetAt,
  };
}

/** A reading of the clock of the database, made between `from` and `to` by the clock of the node. */
export type ClockReading = { clock: Millis; from: Millis; to: Millis };

/**
 * Returns the smallest jump of the database clock that explains two readings, in milliseconds. The result is
 * negative if the clock has gone back, and 0 if no jump is needed to explain them.
 */
export function measureClockJump(before: ClockReading, now: ClockReading): Millis {
  const elapsed = now.clock - before.clock;
  const minElapsed = now.from - before.to;
  const maxElapsed = now.to - before.from;
  return elapsed > maxElapsed ? elapsed - maxElapsed : Math.min(0, elapsed - minElapsed);
}
