import type { StoreFigures } from "../../engine/core/explain/storeCounts.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { second } from "../../engine/core/values/time.ts";
import type { Clock } from "../../engine/clock/clock.ts";

/** The bytes of the database file, of its write-ahead log, and of free space on its disk. */
export type DiskFigures = { storeBytes: number; walBytes: number; freeBytes: number };

/** The figures of the outboxes of all accounts: sums, and for how long the oldest row has waited. */
export type OutboxFigures = {
  outboxes: number;
  failing: number;
  waiting: number;
  rejected: number;
  lag: Millis;
};

/** The figures of the whole store at one moment. */
export type StoreSample = StoreFigures & {
  at: Millis;
  disk: DiskFigures | null;
  outboxes: OutboxFigures;
};

const shortestPause: Millis = second;
const longestPause: Millis = 10 * second;
/** A sample may take one hundredth of the time. */
const pausePerTime = 100;

/**
 * Reads the figures of the whole store every second, on a connection that no command uses. If a sample takes
 * long, the next one comes later: a sample takes at most 1 % of the time, and comes every 10 s at the latest.
 * While this process stores nothing, a sample comes every 10 s too. A failed read keeps the last sample,
 * whose age is a metric.
 */
export class StoreSampler {
  /** The last sample, or null if there is none yet. */
  last: StoreSample | null = null;
  /** Whether the store could save changes at the last sample. */
  takesChanges = true;
  readonly #options: SamplerOptions;
  readonly #stop = new AbortController();
  /** Whether this process has stored something since the last sample began. */
  #hasChange = false;
  #change = new AbortController();
  #loop: Promise<void> | null = null;

  constructor(options: SamplerOptions) {
    this.#options = options;
  }

  /** Takes the first sample, and then further ones in the background. */
  async start(): Promise<void> {
    await this.#sample();
    this.#loop = this.#run();
  }

  /** Notes that something was stored. This function runs for every batch. */
  noteChange(): void {
    if (this.#hasChange) return;
    this.#hasChange = true;
    this.#change.abort();
  }

  /** Stops, and resolves when no read is running. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#change.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    let took: Millis = 0;
    while (!this.#stop.signal.aborted) {
      const pause = Math.min(longestPause, Math.max(shortestPause, took * pausePerTime));
      const sampledAt = clock.now();
      if (!this.#hasChange) await clock.sleep(sampledAt + longestPause, this.#change.signal);
      await clock.sleep(sampledAt + pause, this.#stop.signal);
      if (!this.#stop.signal.aborted) took = await this.#sample();
    }
  }

  /** Takes a sample, and returns how long that took. */
  async #sample(): Promise<Millis> {
    const { takesChanges, readFigures, readDisk, readOutboxes, clock, elapsed } = this.#options;
    const from = elapsed();
    this.#hasChange = false;
    if (!this.#stop.signal.aborted) this.#change = new AbortController();
    this.takesChanges = await takesChanges().catch(() => false);
    try {
      const at = clock.now();
      const [figures, disk, outboxes] = await Promise.all([readFigures(), readDisk(), readOutboxes(at)]);
      this.last = { ...figures, disk, outboxes, at: clock.now() };
    } catch {
      // The storage is unavailable, which its own metrics and the log report.
    }
    return elapsed() - from;
  }
}

type SamplerOptions = {
  /** Reports whether the store can save changes. */
  takesChanges(): Promise<boolean>;
  readFigures(): Promise<StoreFigures>;
  readDisk(): Promise<DiskFigures | null>;
  readOutboxes(now: Millis): Promise<OutboxFigures>;
  clock: Clock;
  /** A monotonic clock. */
  elapsed(): Millis;
};
