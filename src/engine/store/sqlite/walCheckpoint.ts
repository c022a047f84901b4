/**
 * The length of a write-ahead log in bytes: all that was written since its last restart, and the part of that
 * which the database file has too.
 */
export type WalLength = { written: number; checkpointed: number };

/** The parts of a database that checkpoints need. */
type CheckpointOptions = {
  walLength(): WalLength;
  /** Returns how many bytes can be written before the disk is full. */
  readFreeBytes(): number;
  /**
   * Copies as much of the log into the file as possible, on another thread. `isWhole` reports whether the
   * whole log was copied.
   */
  checkpoint(): Promise<{ isWhole: boolean }>;
};

/**
 * The number of bytes in the log at which it is checkpointed. On a nearly full disk, the log is checkpointed
 * at a quarter of the free space, because a checkpoint needs space itself and lets the log restart.
 */
const checkpointBytes = 16 * 1024 * 1024;
const freeSpaceShare = 1 / 4;
/** The log is checked after about this many bytes, because a check takes as long as writing a message. */
const checkBytes = 1024 * 1024;
/**
 * If this many bytes are written during a checkpoint, the next batch waits for it. Otherwise a checkpoint
 * slower than the batches would let the log grow.
 */
const maxBytesMeanwhile = 2 * checkpointBytes;

/**
 * Copies the write-ahead log of SQLite back into its file, so that the log restarts instead of growing.
 * Nearly all of this happens while batches are running. The data that these batches add to the log, a
 * mebibyte or less, is copied between two batches: the log can restart only if nothing is added during the
 * copy.
 */
export class WalCheckpoints {
  readonly #options: CheckpointOptions;
  #running: Promise<void> | null = null;
  #isUnfinished = false;
  /**
   * The length of the log at the last try. While a reader uses an old state of the file, another try would be
   * futile.
   */
  #triedAt = 0;
  /** The bytes written since the last check. If a checkpoint is running, that check started it. */
  #bytesSinceCheck = checkBytes;

  constructor(options: CheckpointOptions) {
    this.#options = options;
  }

  /** Must be awaited before a batch begins. */
  async finish(): Promise<void> {
    if (this.#bytesSinceCheck >= maxBytesMeanwhile) await this.#running;
    if (!this.#isUnfinished) return;
    this.#isUnfinished = false;
    await this.#options.checkpoint().catch(() => undefined);
  }

  /**
   * Must be called after each batch that has written anything, with the approximate number of bytes. Never
   * throws, because the batch is stored already and would be stored twice.
   */
  recordWritten(bytes: number): void {
    this.#bytesSinceCheck += bytes;
    if (this.#bytesSinceCheck < checkBytes || this.#running || this.#isUnfinished) return;
    this.#bytesSinceCheck = 0;
    const log = this.#readLengths();
    if (!log) return;
    const { written, checkpointed, freeBytes } = log;
    if (written < this.#triedAt) this.#triedAt = 0;
    if (
      written - Math.max(checkpointed, this.#triedAt) <
      Math.min(checkpointBytes, freeSpaceShare * freeBytes)
    )
      return;
    this.#triedAt = written;
    this.#running = this.#begin();
  }

  /** Returns null if the log or the disk cannot be read. */
  #readLengths(): (WalLength & { freeBytes: number }) | null {
    try {
      return { ...this.#options.walLength(), freeBytes: this.#options.readFreeBytes() };
    } catch {
      return null;
    }
  }

  /**
   * Runs a checkpoint now. A file from which pages were removed becomes smaller only at a checkpoint, and the
   * removal writes too little to cause one.
   */
  async shrinkFile(): Promise<void> {
    while (this.#running) await this.#running;
    this.#running = this.#begin();
    await this.#running;
  }

  /**
   * Runs a checkpoint. A failure is ignored, because no batch caused it. The next try follows when the log
   * has grown by the same amount.
   */
  async #begin(): Promise<void> {
    const { isWhole } = await this.#options.checkpoint().catch(() => ({ isWhole: true }));
    this.#running = null;
    this.#isUnfinished = !isWhole;
  }
}
