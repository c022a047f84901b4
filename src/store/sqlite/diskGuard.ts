import type { Millis } from "../../core/model/message.ts";
import { isDiskLow, leastFreeBytes, nextPeak } from "../../core/fairness/diskGuard.ts";
import type { DiskSpace } from "./sync.ts";

/** How much room a disk has left, and how much of it is kept for what was accepted. Numbers are bytes. */
export type DiskReport = { isLow: boolean; freeBytes: number; leastFreeBytes: number };

type DiskGuardOptions = {
  readSpace(): DiskSpace;
  logBytes(): number;
  /** A monotonic clock. */
  elapsed(): Millis;
  onChange(report: DiskReport): void;
};

/** How long a result is used again. At the least free space, 60 s of writing are left. */
const maxAge: Millis = 250;

/** Watches the room on the disk of a store. */
export class DiskGuard {
  readonly #options: DiskGuardOptions;
  #isLow = false;
  #checkedAt: Millis = -Infinity;
  #written = 0;
  #peak = 0;

  constructor(options: DiskGuardOptions) {
    this.#options = options;
  }

  /** Counts bytes that were written. */
  recordWritten(bytes: number): void {
    this.#written += bytes;
  }

  /** Reports whether new messages are refused. */
  isLow(): boolean {
    const { readSpace, logBytes, elapsed, onChange } = this.#options;
    const seconds = (elapsed() - this.#checkedAt) / 1000;
    if (seconds * 1000 < maxAge) return this.#isLow;
    this.#checkedAt = elapsed();
    if (seconds !== Infinity) this.#peak = nextPeak(this.#peak, { bytes: this.#written, seconds });
    this.#written = 0;
    const use = { ...readSpace(), log: logBytes(), writtenPerSecond: this.#peak };
    const isLow = isDiskLow(use, this.#isLow);
    if (isLow === this.#isLow) return isLow;
    this.#isLow = isLow;
    onChange({ isLow, freeBytes: use.free, leastFreeBytes: leastFreeBytes(use) });
    return isLow;
  }
}
