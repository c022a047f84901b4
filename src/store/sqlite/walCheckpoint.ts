/** Bytes of a write-ahead log: all that was written since it began anew, and what of it is in the file as well. */
export type LogLength = { all: number; folded: number };

/** What folding needs of a database. */
type Parts = {
  log(): LogLength;
  /** How many bytes the disk takes before it is full. */
  room(): number;
  /** Brings what it can of the log into the file, elsewhere. Answers whether that was all of it. */
  fold(): Promise<{ isWhole: boolean }>;
};

/** So many bytes are folded at a time, and a quarter of what is left on a disk that is nearly full: folding takes room, and makes the log begin anew. */
const portion = 16 * 1024 * 1024;
const shareOfRoom = 1 / 4;
/** The log is looked at after about so many bytes, as that takes as long as writing a message. */
const glance = 1024 * 1024;
/** If so many bytes are written while a fold is running, the next batch waits for it: a fold that is slower than the batches would let the log grow. */
const mostMeanwhile = 2 * portion;

/**
 * Folds the write-ahead log of SQLite back into its file, so that it begins anew instead of growing. Nearly all of it is done while
 * batches go on. What these have added meanwhile, a mebibyte or less, is done before the next one: only when nothing is added can the
 * log be at its end.
 */
export class Folding {
  readonly #parts: Parts;
  #running: Promise<void> | null = null;
  #isRestLeft = false;
  /** How long the log was at the last try. Where somebody reads an old state of the file for long, folding comes to nothing. */
  #triedAt = 0;
  /** Written since the last look, which began the fold that is running. */
  #bytes = glance;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** To be waited for before a batch begins. */
  async rest(): Promise<void> {
    if (this.#bytes >= mostMeanwhile) await this.#running;
    if (!this.#isRestLeft) return;
    this.#isRestLeft = false;
    await this.#parts.fold().catch(() => undefined);
  }

  /**
   * To be told of each batch that has written anything, and of how many bytes that was about. Never fails: the batch is stored, and would
   * be stored once more.
   */
  wrote(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < glance || this.#running || this.#isRestLeft) return;
    this.#bytes = 0;
    const log = this.#log();
    if (!log) return;
    const { all, folded, room } = log;
    if (all < this.#triedAt) this.#triedAt = 0;
    if (all - Math.max(folded, this.#triedAt) < Math.min(portion, shareOfRoom * room)) return;
    this.#triedAt = all;
    this.#running = this.#begin();
  }

  /** Null: the log, or the disk, cannot be looked at. */
  #log(): (LogLength & { room: number }) | null {
    try {
      return { ...this.#parts.log(), room: this.#parts.room() };
    } catch {
      return null;
    }
  }

  /** That it failed is no fault of any batch. It is tried again when the log has grown by as much. */
  async #begin(): Promise<void> {
    const { isWhole } = await this.#parts.fold().catch(() => ({ isWhole: true }));
    this.#running = null;
    this.#isRestLeft = !isWhole;
  }
}
