/** How full a disk is. `writtenPerSecond` is the peak of the recent past. All numbers are bytes. */
export type DiskUse = { free: number; size: number; log: number; writtenPerSecond: number };

const mebi = 1024 * 1024;
/** The free bytes that are always kept. */
const minKept = 256 * mebi;
/** On a small disk, at most this part is kept. */
const maxPart = 1 / 4;
/** The time for which the free bytes must suffice at the peak rate, in seconds. */
const secondsAtPeak = 60;
/** Free bytes above the least by which a disk is no longer low, so that it does not alternate. */
const resumeFactor = 1.1;
/** The time in which a peak of writing counts half, in seconds. */
const halfLife = 300;

/**
 * Returns how many bytes of a disk must be free for new messages to be accepted. They are kept for what was
 * accepted: deliveries write outcomes, and a checkpoint may write the whole log again. The number follows
 * from the rate of writing and not from a share of the disk, so a large disk may be almost full.
 */
export const leastFreeBytes = ({ size, log, writtenPerSecond }: Omit<DiskUse, "free">): number =>
  Math.min(Math.max(minKept, secondsAtPeak * writtenPerSecond, 2 * log), size * maxPart);

/** Reports whether new messages are refused. `wasLow`: they have been refused until now. */
export function isDiskLow(use: DiskUse, wasLow: boolean): boolean {
  const least = leastFreeBytes(use);
  return use.free < (wasLow ? least * resumeFactor : least);
}

/** Returns the peak rate of writing after some seconds in which `bytes` were written. */
export const nextPeak = (peak: number, { bytes, seconds }: { bytes: number; seconds: number }): number =>
  Math.max(bytes / seconds, peak * 0.5 ** (seconds / halfLife));
