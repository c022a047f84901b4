/** Bytes of a write-ahead log: all that was written since it began anew, and what of it is in the file as well. */
export type WalLength = { written: number; checkpointed: number };

/** What folding needs of a database. */
type CheckpointOptions = {
  walLength(): WalLength;
  /** How many bytes the disk takes before it is full. */
  readFreeBytes(): number;
  /** Brings what it can of the log into the file, elsewhere. Answers whether that was all of it. */
  checkpoint(): Promise<{ isWhole: boolean }>;
};

/** So many bytes are folded at a time, and a quarter of what is left on a disk that is nearly full: folding takes room, and makes the log begin anew. */
const checkpointBytes = 16 * 1024 * 1024;
const freeSpaceShare = 1 / 4;
/** The log is looked at after about so many bytes, as that takes as long as writing a message. */
const checkBytes = 1024 * 1024;
/** If so many bytes are written while a fold is running, the next batch waits for it: a fold that is slower than the batches would let the log grow. */
const maxBytesMeanwhile = 2 * checkpointBytes;

/**
 * Folds the write-ahead log of SQLite back into its file, so that it begins anew instead of growing. Nearly all of it is done while
 * batches go on. What these have added meanwhile, a mebibyte or less, is done before the next one: only when nothing is added can the
 * log be at its end.
 */
export class WalCheckpoints {
  readonly #options: CheckpointOptions;
  #running: Promise<void> | null = null;
  #isUnfinished = false;
  /** How long the log was at the last try. Where somebody reads an old state of the file for long, folding comes to nothing. */
  #triedAt = 0;
  /** Written since the last look, which began the fold that is running. */
  #bytesSinceCheck = checkBytes;

  constructor(options: CheckpointOptions) {
    this.#options = options;
  }

  /** To be waited for before a batch begins. */
  async finish(): Promise<void> {
    if (this.#bytesSinceCheck >= maxBytesMeanwhile) await this.#running;
    if (!this.#isUnfinished) return;
    this.#isUnfinished = false;
    await this.#options.checkpoint().catch(() => undefined);
  }

  /**
   * To be told of each batch that has written anything, and of how many bytes that was about. Never fails: the batch is stored, and would
   * be stored once more.
   */
  recordWritten(bytes: number): void {
    this.#bytesSinceCheck += bytes;
    if (this.#bytesSinceCheck < checkBytes || this.#running || this.#isUnfinished) return;
    this.#bytesSinceCheck = 0;
    const log = this.#readLengths();
    if (!log) return;
    const { written, checkpointed, freeBytes } = log;
    if (written < this.#triedAt) this.#triedAt = 0;
    if (written - Math.max(checkpointed, this.#triedAt) < Math.min(checkpointBytes, freeSpaceShare * freeBytes)) return;
    this.#triedAt = written;
    this.#running = this.#begin();
  }

  /** Null: the log, or the disk, cannot be looked at. */
  #readLengths(): (WalLength & { freeBytes: number }) | null {
    try {
      return { ...this.#options.walLength(), freeBytes: this.#options.readFreeBytes() };
    } catch {
      return null;
    }
  }

  /** That it failed is no fault of any batch. It is tried again when the log has grown by as much. */
  async #begin(): Promise<void> {
    const { isWhole } = await this.#options.checkpoint().catch(() => ({ isWhole: true }));
    this.#running = null;
    this.#isUnfinished = !isWhole;
  }
}
