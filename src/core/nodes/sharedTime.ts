import type { Millis } from "../model/message.ts";

// The time that all nodes on one database share: the clock of the database plus an offset, which is above 0 after the clock has gone
// back. See docs/decisions/0050.

/**
 * A time that was used for a batch. When the clock of the database said `aheadAt`, time was `ahead` of it; from then on the offset gets
 * smaller by 1 ms in 10 ms.
 */
export type UsedTime = { usedAt: Millis; ahead: Millis; aheadAt: Millis };

/** Time runs at 0.9 of the speed of the clock while it is ahead. */
const slowness = 10;

/** A clock that jumps by more than this is reported. */
export const mostJump: Millis = 5_000;

/** What a node knows when it begins a batch. */
export type Beginning = {
  /** The clock of the database. */
  clock: Millis;
  /** The last time this node used, stored or not. */
  own: UsedTime | null;
  /** The latest time that is stored, and whether this node stored it. */
  stored: (UsedTime & { isOwn: boolean }) | null;
  /** How long ago this node used `own`, at least, by a clock that nobody sets. */
  since?: Millis;
};

/**
 * Returns the time of a batch. It never goes back, and it is later than what another node has stored while it is ahead of the clock, so
 * that the ids of two nodes sort like their batches. Where the clock has gone back, time continues from the latest one used.
 */
export function timeOf({ clock, own, stored, since = 0 }: Beginning): UsedTime {
  const last = own !== null && (stored === null || own.usedAt > stored.usedAt) ? own : stored;
  if (last === null) return { usedAt: clock, ahead: 0, aheadAt: clock };
  const left = Math.max(0, last.ahead - Math.floor(Math.max(0, clock - last.aheadAt) / slowness));
  const at = clock + left;
  // Without an offset two nodes use the same millisecond only for batches that do not know of each other.
  const isOther = stored !== null && !stored.isOwn && last.usedAt === stored.usedAt && (left > 0 || at < last.usedAt);
  const least = last.usedAt + (isOther ? 1 : 0);
  if (at >= least) return left === 0 ? { usedAt: at, ahead: 0, aheadAt: clock } : { usedAt: at, ahead: last.ahead, aheadAt: last.aheadAt };
  const passed = own === null ? 0 : own.usedAt + since - Math.floor(since / slowness);
  const usedAt = Math.max(least, passed);
  // What was worked off by less than a millisecond stays so.
  const aheadAt = left > 0 && clock >= last.aheadAt ? last.aheadAt : clock;
  return { usedAt, ahead: usedAt - clock + Math.floor((clock - aheadAt) / slowness), aheadAt };
}

/** When a node read the clock of the database: between `from` and `to` of its own clock. */
export type Reading = { clock: Millis; from: Millis; to: Millis };

/** Returns by how much the clock of the database has jumped between two readings, at least; below 0 if it has gone back, 0 if it cannot be known. */
export function jumpBetween(before: Reading, now: Reading): Millis {
  const passed = now.clock - before.clock;
  const [least, most] = [now.from - before.to, now.to - before.from];
  return passed > most ? passed - most : Math.min(0, passed - least);
}
