import type { Millis } from "../values/basics.ts";
import { minute, second } from "../values/time.ts";

/**
 * How full a disk is. `log` is the size of the write-ahead log, `store` that of the database file, and
 * `reusable` the part of that file which holds nothing. `writtenPerSecond` is the peak of the recent past.
 * All numbers are bytes.
 */
export type DiskUse = {
  free: number;
  size: number;
  log: number;
  store: number;
  reusable: number;
  writtenPerSecond: number;
};

const mebi = 1024 * 1024;
/** The free bytes that are always kept. */
const minKept = 256 * mebi;
/** On a small disk, at most this part is kept. */
const maxPart = 1 / 4;
/** The time for which the free bytes must suffice at the peak rate, in seconds. */
const secondsAtPeak = 60;
/** While the free bytes suffice for this time longer, all history is kept, in seconds. */
const secondsOfNotice = 600;
/** At most this part of a store is removed early. If something else fills the disk, history is of no help. */
const maxPartOfStore = 1 / 4;
/** Free bytes above the least by which a disk is no longer low or short, so that it does not alternate. */
const resumeFactor = 1.1;
/** The time in which a peak of writing counts half, in seconds. */
const halfLife = 300;

/**
 * Returns how many bytes of a disk must be free for new messages to be accepted. They are kept for what was
 * accepted: deliveries write outcomes, and a checkpoint may write the whole log again. The number follows
 * from the rate of writing and not from a share of the disk, so a large disk may be almost full.
 */
export const leastFreeBytes = ({
  size,
  log,
  writtenPerSecond,
}: Pick<DiskUse, "size" | "log" | "writtenPerSecond">): number =>
  Math.min(Math.max(minKept, secondsAtPeak * writtenPerSecond, 2 * log), size * maxPart);

/**
 * Returns how many bytes must be free for all history to be kept for its whole retention. Above the least
 * free bytes, that is as much again, or 10 minutes of writing, but at most a quarter of the store.
 */
export function historyFreeBytes(use: Omit<DiskUse, "free" | "reusable">): number {
  return leastFreeBytes(use) + readMargin(use);
}

const readMargin = (use: Omit<DiskUse, "free" | "reusable">): number =>
  Math.min(Math.max(leastFreeBytes(use), secondsOfNotice * use.writtenPerSecond), use.store * maxPartOfStore);

/** Returns how many bytes must be free for new messages. `isLow`: they are refused now. */
export const neededBytes = (use: Omit<DiskUse, "free" | "store" | "reusable">, isLow: boolean): number =>
  leastFreeBytes(use) * (isLow ? resumeFactor : 1);

/** Reports whether new messages are refused. `wasLow`: they have been refused until now. */
export function isDiskLow(use: Omit<DiskUse, "store" | "reusable">, wasLow: boolean): boolean {
  return use.free < neededBytes(use, wasLow);
}

/**
 * Reports whether history is removed before its retention ends. Space that the file can use again counts as
 * free. `wasShort`: history has been removed early until now. `isLow`: new messages are refused, so history
 * is removed at least until they are accepted again.
 */
export function isDiskShort(
  use: DiskUse,
  { wasShort, isLow }: { wasShort: boolean; isLow: boolean },
): boolean {
  const least = leastFreeBytes(use);
  const margin = readMargin(use);
  const needed = least + (wasShort ? margin * resumeFactor : margin);
  return use.free + use.reusable < Math.max(needed, isLow ? least * resumeFactor : 0);
}

/** Returns the peak rate of writing after some seconds in which `bytes` were written. */
export const nextPeak = (peak: number, { bytes, seconds }: { bytes: number; seconds: number }): number =>
  Math.max(bytes / seconds, peak * 0.5 ** (seconds / halfLife));

/**
 * Returns the age from which history may be removed early. A caller can read how its message ended until
 * then. `isLow`: new messages are refused. Messages that are cancelled then make room within seconds.
 */
export const leastHistory = (isLow: boolean): Millis => (isLow ? 5 * second : minute);

/**
 * Returns how long history is still kept on a disk with little room, in the round `round` of its removal.
 * Each round halves the time, so the oldest history of all accounts goes first. `least` is always kept.
 * Returns null after the last round.
 */
export function shortenRetention(retention: Millis, round: number, least: Millis): Millis | null {
  const before = retention / 2 ** round;
  return before <= least ? null : Math.max(least, before / 2);
}
