import type { Millis } from "../../core/values/basics.ts";
import type { DiskUse } from "../../core/node/diskGuard.ts";
import {
  historyFreeBytes,
  isDiskLow,
  isDiskShort,
  leastFreeBytes,
  neededBytes,
  nextPeak,
} from "../../core/node/diskGuard.ts";
import type { DiskSpace } from "./sync.ts";

/**
 * A change of the room on a disk. `low`: new messages are refused. `short`: history is removed before its
 * retention ends. `is` reports whether this begins. Numbers are bytes.
 */
export type DiskReport = { what: "low" | "short"; is: boolean; freeBytes: number; neededBytes: number };

/** The bytes of a database file, and those of its pages that hold nothing. */
export type FileSpace = Pick<DiskUse, "store" | "reusable">;

type DiskGuardOptions = {
  readSpace(): DiskSpace;
  readFile(): FileSpace;
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
  #isShort = false;
  #needed = 0;
  #checkedAt: Millis = -Infinity;
  #measuredAt: Millis | null = null;
  #written = 0;
  #peak = 0;
  #file: FileSpace = { store: 0, reusable: 0 };

  constructor(options: DiskGuardOptions) {
    this.#options = options;
  }

  /** Counts bytes that were written. */
  recordWritten(bytes: number): void {
    this.#written += bytes;
  }

  /** Reports whether new messages are refused. */
  isLow(): boolean {
    if (this.#options.elapsed() - this.#checkedAt >= maxAge) this.#check();
    return this.#isLow;
  }

  /** Returns how many bytes must be free for new messages, as of the last look. */
  needed(): number {
    this.isLow();
    return Math.ceil(this.#needed);
  }

  /**
   * Reports whether history is removed before its retention ends. Always looks again, so that the caller
   * stops in time.
   */
  isShort(): boolean {
    this.#check();
    return this.#isShort;
  }

  #check(): void {
    const { readSpace, logBytes, elapsed } = this.#options;
    this.#checkedAt = elapsed();
    this.#measureRate();
    const use: DiskUse = {
      ...readSpace(),
      ...this.#readFile(),
      log: logBytes(),
      writtenPerSecond: this.#peak,
    };
    const isLow = isDiskLow(use, this.#isLow);
    const isShort = isDiskShort(use, { wasShort: this.#isShort, isLow });
    if (isShort !== this.#isShort) this.#report("short", { is: isShort, use, needed: historyFreeBytes(use) });
    if (isLow !== this.#isLow) this.#report("low", { is: isLow, use, needed: leastFreeBytes(use) });
    this.#isLow = isLow;
    this.#needed = neededBytes(use, isLow);
    this.#isShort = isShort;
  }

  /** While another program locks the file, the last result counts. */
  #readFile(): FileSpace {
    try {
      this.#file = this.#options.readFile();
    } catch {
      // The next batch reports this.
    }
    return this.#file;
  }

  /** A rate over less than `maxAge` would show one batch as a peak. */
  #measureRate(): void {
    const now = this.#options.elapsed();
    if (this.#measuredAt !== null && now - this.#measuredAt < maxAge) return;
    if (this.#measuredAt !== null)
      this.#peak = nextPeak(this.#peak, {
        bytes: this.#written,
        seconds: (now - this.#measuredAt) / 1000,
      });
    this.#measuredAt = now;
    this.#written = 0;
  }

  #report(
    what: DiskReport["what"],
    { is, use, needed }: { is: boolean; use: DiskUse; needed: number },
  ): void {
    this.#options.onChange({ what, is, freeBytes: use.free, neededBytes: Math.ceil(needed) });
  }
}
