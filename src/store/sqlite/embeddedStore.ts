import type { Millis } from "../../core/model/message.ts";
import type { OnDamage } from "./fileCheck.ts";
import type { Disk } from "./sync.ts";
import { openDisk } from "./sync.ts";
import { WalCheckpoints } from "./walCheckpoint.ts";
import { afterNextPoll } from "../batch/coalesce.ts";
import { limits } from "../../core/values/limits.ts";
import { countBodyBytes } from "../../core/fairness/weight.ts";
import { createGroupCommitStore, withUnavailableRefusal } from "../batch/groupCommit.ts";
import type { KeySource } from "../sql/keyRing.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { readNextDueAt } from "../sql/reads.ts";
import { openChecked } from "./openChecked.ts";
import type { CommandCall, MomentSource, Store } from "../store.ts";
import { Unavailable } from "../store.ts";
import { startCheckpointThread, startReadingThread } from "./worker.ts";
import { createSequencer } from "../sequencer.ts";

export type EmbeddedStoreOptions = {
  path: string;
  momentSource: MomentSource;
  keys?: KeySource;
  pause(time: Millis): Promise<void>;
  /** A stopwatch that nobody sets. */
  elapsed(): Millis;
  /** Is told once that the disk failed, after which nothing is stored any more: what is on it is known when it is read anew. */
  onBroken?(error: Error): void;
  /** Hears once of each thing that is found damaged. */
  onDamage?: OnDamage;
  /** Instead of that of the write-ahead log. */
  openDisk?(path: string): Disk;
  /** Instead of the thread that folds the log. */
  openCheckpointing?: typeof startCheckpointThread;
};

/** Outcomes wait so long for the next publish, whose commit they can share. */
const coalesceTime: Millis = 5;
/** For five seconds, while others keep the file locked. */
const lockedRetries = { pause: 50, tries: 100 } as const;

/**
 * SQLite in a file, for a server. Batches are decided and committed here, among requests and deliveries. What takes long is done
 * elsewhere: a disk that is not quick is waited for, before anybody is answered; lists are read, and the write-ahead log is folded back,
 * on threads of their own. See docs/decisions/0029.
 */
export async function embeddedStore(options: EmbeddedStoreOptions): Promise<Store> {
  const { path, momentSource, keys = null, pause, elapsed, onBroken, openCheckpointing = startCheckpointThread } = options;
  const openStoreDisk = options.openDisk ?? ((file: string) => openDisk(file, elapsed));
  const onDamage = reportOnce(options.onDamage);
  const deferredSync = { pause: () => pause(lockedRetries.pause), maxTries: lockedRetries.tries };
  const database = await openChecked(path, { keys, deferredSync, onDamage });
  const disk = openStoreDisk(path);
  const commits = new CommitSync(disk, onBroken);
  await commits.sync();
  const reading = startReadingThread({ path, keys }, onDamage);
  const checkpointing = openCheckpointing({ path, keys }, onDamage);
  const checkpoint = async (): Promise<{ isWhole: boolean }> => {
    const { isWhole, failed } = await checkpointing.checkpoint();
    if (failed !== undefined) commits.fail(new Error(failed));
    return { isWhole };
  };
  const walCheckpoints = new WalCheckpoints({
    walLength: () => database.walLength(),
    readFreeBytes: () => disk.readFreeBytes(),
    checkpoint,
  });
  // Whatever uses the connection must not do so in the middle of a transaction.
  const inSequence = createSequencer();
  return createGroupCommitStore({
    afterNextPoll: afterNextPoll,
    coalesceDelay: () => pause(coalesceTime),
    runBatch: async (calls, capacity) => {
      await walCheckpoints.finish();
      commits.throwIfFailed();
      const writesBefore = database.writeCount();
      const result = await inSequence(() => runSqlBatch(database, momentSource, calls, capacity));
      if (database.writeCount() === writesBefore) return result;
      await commits.sync();
      walCheckpoints.recordWritten(estimateWrittenBytes(calls));
      return result;
    },
    read: reading.queries,
    nextDueAt: () => withUnavailableRefusal(inSequence(() => readNextDueAt(database.connection))),
    probe: async () => {
      commits.requireFreeSpace();
      await inSequence(() => database.probe());
      await commits.sync();
    },
    close: async () => {
      await Promise.all([reading.close(), checkpointing.close()]);
      database.close();
      commits.close();
    },
  });
}

/** Tells of a row, or of one kind of error of a file, once. What is found after a thousand of them is told by whoever meets it. */
function reportOnce(onDamage: OnDamage = () => undefined): OnDamage {
  const reported = new Set<string>();
  return (damage) => {
    if (reported.has(damage.text) || reported.size >= maxReported) return;
    reported.add(damage.text);
    onDamage(damage);
  };
}

const maxReported = 1_000;

/** Bytes that the disk must have free after a change could not be stored: a message of 8 MiB is written to the log, and then to the file. */
const minFreeBytes = 2 * limits.messageBytes;

/** The pages that the smallest batch writes, and what a call adds to them besides its bodies. */
const bytesPerBatch = 128 * 1024;
const bytesPerCall = 2 * 1024;

const estimateWrittenBytes = (calls: readonly CommandCall[]): number =>
  calls.reduce((sum, { input }) => sum + bytesPerCall + countBodyBytes(input), bytesPerBatch);

/** Commits on their way to the disk. */
class CommitSync {
  readonly #disk: Disk;
  readonly #onBroken: (error: Error) => void;
  #failure: Error | null = null;

  constructor(disk: Disk, onBroken: (error: Error) => void = () => undefined) {
    this.#disk = disk;
    this.#onBroken = onBroken;
  }

  /** Throws `Unavailable` when the disk has failed before. */
  throwIfFailed(): void {
    if (this.#failure) throw new Unavailable(`the disk has failed: ${this.#failure.message}`, { cause: this.#failure });
  }

  /**
   * Resolves when all commits so far are on the disk. After a failure none is taken any more: the system forgets what it could not write,
   * so that the next try succeeds and means nothing.
   */
  async sync(): Promise<void> {
    try {
      await this.#disk.sync();
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)));
    }
    this.throwIfFailed();
  }

  /** Throws `Unavailable` if a batch with the largest message might not fit. The smallest one, which is tried, nearly always does. */
  requireFreeSpace(): void {
    const freeBytes = this.#disk.readFreeBytes();
    if (freeBytes < minFreeBytes) throw new Unavailable(`the disk is full: ${freeBytes} bytes are left`);
  }

  /** From now on nothing is stored any more. */
  fail(error: Error): void {
    if (this.#failure) return;
    this.#failure = error;
    this.#onBroken(error);
  }

  close(): void {
    this.#disk.close();
  }
}
