import { statSync } from "node:fs";
import type { Millis } from "../../core/values/basics.ts";
import type { OnDamage } from "./fileCheck.ts";
import type { Disk } from "./sync.ts";
import { openDisk } from "./sync.ts";
import { WalCheckpoints } from "./walCheckpoint.ts";
import { afterNextPoll } from "../batch/coalesce.ts";
import type { BodyLimit } from "../../core/accounts/plans.ts";
import { limits } from "../../core/values/limits.ts";
import { type ClockOptions, openTime } from "./openTime.ts";
import type { DiskReport } from "./diskGuard.ts";
import { DiskGuard } from "./diskGuard.ts";
import type { SqliteDatabase } from "./database.ts";
import { countBodyBytes } from "../../core/node/weight.ts";
import { createGroupCommitStore, withUnavailableRefusal } from "../batch/groupCommit.ts";
import type { KeySource } from "../layout/keyRing.ts";
import { readHold, writeHold } from "../sql/hold.ts";
import type { OnMoved } from "../sql/schema.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { readNextDueAt } from "../sql/reads.ts";
import { openChecked } from "./openChecked.ts";
import { createSequencer } from "../batch/sequencer.ts";
import { NoRoom, Unavailable } from "../layout/storageErrors.ts";
import type { CommandCall, Hold, Store, StoreDisk } from "../store.ts";
import { WalIndex } from "./walIndex.ts";
import { startCheckpointThread, startCheckThread, startReadingThread } from "./worker.ts";

/** The options of a store in a file: where it is, and what it needs from its server. */
export type EmbeddedStoreOptions = ClockOptions & {
  path: string;
  keys?: KeySource;
  pause(time: Millis): Promise<void>;
  /** Calls a function after a time. Returns a function that cancels the call. */
  alarm(delay: Millis, run: () => void): () => void;
  /**
   * Called once if the disk has failed. From then on, nothing is stored. Only the next start, which reads the
   * file again, shows what the disk has kept.
   */
  onBroken?(error: Error): void;
  /** Called when the disk has become low or short, and when it has room again. */
  onDisk?(report: DiskReport): void;
  /** Called for a store from which everything was moved, see `createTables`. */
  onMoved?: OnMoved | undefined;
  /** Keeps a second copy of the file. */
  replica?: StoreReplica | null;
  /** Receives each damage once. */
  onDamage?: OnDamage;
  /** Replaces the disk in tests. */
  openDisk?(path: string): Disk;
  /** Replaces the checkpoint thread in tests. */
  openCheckpointing?: typeof startCheckpointThread;
};

/** A second copy of the file, which follows its write-ahead log. Only `start` throws. */
export type StoreReplica = {
  /** Throws if the copy cannot be kept. */
  start(index: WalIndex): Promise<void>;
  /** Must be called in each transaction before it writes: it may overwrite the log. */
  beforeWrite(): void;
  /** Must be called after each transaction, before its changes are acknowledged. */
  afterWrite(): void;
  close(): Promise<void>;
};

/** How long outcomes wait for a publish request whose commit they can share: docs/decisions/0014. */
const coalesceTime: Millis = 20;
/**
 * How long a thread for occasional work is kept for the next one. At 10 messages/s, a checkpoint comes every
 * 36 s.
 */
const unusedTime: Millis = 5 * 60_000;
/** Waits 5 s in total while another process locks the file. */
const lockedRetries = { pause: 50, tries: 100 } as const;

/**
 * Returns a store in an SQLite file, for a server. Batches are decided and committed on this thread, beside
 * requests and deliveries. Slow work is done on other threads: the sync of a slow disk, reads, and
 * checkpoints of the write-ahead log. See docs/decisions/0029.
 */
export async function embeddedStore(options: EmbeddedStoreOptions): Promise<Store> {
  const { path, keys = null, pause, alarm, elapsed, onBroken, replica = null } = options;
  const { openCheckpointing = startCheckpointThread } = options;
  const onDamage = reportOnce(options.onDamage);
  const deferredSync = { pause: () => pause(lockedRetries.pause), maxTries: lockedRetries.tries };
  const onBegin = (): void => replica?.beforeWrite();
  const database = await openChecked(path, { keys, deferredSync, onDamage, onBegin }, options.onMoved);
  const disk = options.openDisk?.(path) ?? openDisk(path, elapsed);
  const commits = new CommitSync(disk, { onBroken, maxBody: options.momentSource.maxBody });
  await commits.sync();
  const closeFiles = await startReplica({ path, replica, database, commits });
  const sync = (): Promise<void> => (replica?.afterWrite(), commits.sync());
  const time = await openTime(options, database, sync).catch(async (error: unknown) => {
    await replica?.close();
    closeFiles();
    throw error;
  });
  const reading = startReadingThread({ path, keys }, onDamage);
  const whenUnused = (end: () => void): (() => void) => alarm(unusedTime, end);
  const checkpointing = openCheckpointing({ path, keys }, onDamage, whenUnused);
  const checking = startCheckThread({ path, keys }, onDamage, whenUnused);
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
  const diskGuard = guardDisk(options, disk, database);
  const momentSource = { ...options.momentSource, now: time.now, isDiskLow: () => diskGuard.isLow() };
  // The connection must not be used for anything else in the middle of a transaction.
  const inSequence = createSequencer();
  const change = <T>(run: () => Promise<T>): Promise<T> =>
    inSequence(() => run().finally(() => replica?.afterWrite()));
  return createGroupCommitStore({
    afterNextPoll,
    coalesceDelay: (run) => alarm(coalesceTime, run),
    runBatch: async (calls, capacity) => {
      await walCheckpoints.finish();
      commits.throwIfFailed();
      const writesBefore = database.writeCount();
      const result = await change(() => runSqlBatch({ database, momentSource }, calls, capacity));
      if (database.writeCount() === writesBefore) return result;
      if (time.keepLatest) await time.keepLatest(change);
      await commits.sync();
      const written = estimateWrittenBytes(calls);
      for (const counter of [walCheckpoints, diskGuard]) counter.recordWritten(written);
      return result;
    },
    read: reading.queries,
    nextDueAt: () => withUnavailableRefusal(inSequence(() => readNextDueAt(database.connection))),
    ...createUpkeep({ database, commits, walCheckpoints, diskGuard, checking, inSequence, change }),
    elapsed,
    probe: async (bytes) => {
      commits.assertFreeSpace();
      await change(() => database.probe(bytes));
      await commits.sync();
    },
    close: async () => {
      await Promise.all([reading.close(), checkpointing.close(), checking.close(), replica?.close()]);
      closeFiles();
    },
  });
}

type OpenFiles = {
  path: string;
  replica: StoreReplica | null;
  database: SqliteDatabase;
  commits: CommitSync;
};

/** Starts the replica, if there is one. Returns a function that closes all files. */
async function startReplica({ path, replica, database, commits }: OpenFiles): Promise<() => void> {
  const index = replica && new WalIndex(path);
  const closeFiles = (): void => {
    database.close();
    commits.close();
    index?.close();
  };
  try {
    if (index) await replica.start(index);
    return closeFiles;
  } catch (error) {
    closeFiles();
    throw error;
  }
}

const guardDisk = (
  { path, elapsed, onDisk = () => undefined }: EmbeddedStoreOptions,
  disk: Disk,
  database: SqliteDatabase,
): DiskGuard =>
  new DiskGuard({
    readSpace: () => disk.readSpace(),
    readFile: () => database.readFile(),
    // Not from the connection, which may be in a transaction.
    logBytes: () => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0,
    elapsed,
    onChange: onDisk,
  });

type Upkeep = {
  database: SqliteDatabase;
  commits: CommitSync;
  walCheckpoints: WalCheckpoints;
  diskGuard: DiskGuard;
  checking: Pick<StoreDisk, "checkTable">;
  /** For reads. */
  inSequence: ReturnType<typeof createSequencer>;
  /** For transactions that may write. */
  change: ReturnType<typeof createSequencer>;
};

/** Returns the changes of a store that are not commands. */
function createUpkeep({
  database,
  commits,
  walCheckpoints,
  diskGuard,
  checking,
  inSequence,
  change,
}: Upkeep): { hold: Hold; upkeep: { disk: StoreDisk } } {
  let stepsGiven = 0;
  const giveBackSpace = async (): Promise<boolean> => {
    await walCheckpoints.finish();
    commits.throwIfFailed();
    const keepsNone = diskGuard.isShort() || diskGuard.isLow();
    const hasGiven = await change(() => database.giveBackSpace(keepsNone));
    if (hasGiven) {
      stepsGiven++;
      await commits.sync();
      walCheckpoints.recordWritten(bytesPerBatch);
    }
    // Until then, what was given back counts neither as free nor as space that the file can use again.
    if (keepsNone && stepsGiven > 0 && (!hasGiven || stepsGiven >= stepsPerShrink)) {
      stepsGiven = 0;
      await walCheckpoints.shrinkFile();
    }
    return hasGiven;
  };
  return {
    hold: {
      isOnHold: () => withUnavailableRefusal(inSequence(() => readHold(database.connection))),
      set: async (isOnHold) => {
        commits.throwIfFailed();
        await change(() => database.transaction((connection) => writeHold(connection, isOnHold)));
        await commits.sync();
      },
    },
    upkeep: {
      disk: {
        isLow: () => diskGuard.isLow(),
        isShort: () => diskGuard.isShort(),
        needed: () => diskGuard.needed(),
        giveBackSpace,
        checkTable: checking.checkTable,
      },
    },
  };
}

/**
 * Returns a listener that forwards each damaged row, and each kind of error of a file, once. It forwards at
 * most 1,000 damages. Later damages appear only as errors of the calls that find them.
 */
function reportOnce(onDamage: OnDamage = () => undefined): OnDamage {
  const reported = new Set<string>();
  return (damage) => {
    if (reported.has(damage.text) || reported.size >= maxReported) return;
    reported.add(damage.text);
    onDamage(damage);
  };
}

const maxReported = 1_000;

/** On a disk with little room, the file becomes smaller after this many steps that give space back. */
const stepsPerShrink = 16;

/** The bytes that the smallest batch writes, and the bytes that each call adds, not counting its bodies. */
const bytesPerBatch = 128 * 1024;
const bytesPerCall = 2 * 1024;

const estimateWrittenBytes = (calls: readonly CommandCall[]): number =>
  calls.reduce((sum, { input }) => sum + bytesPerCall + countBodyBytes(input), bytesPerBatch);

type CommitSyncOptions = BodyLimit & { onBroken: ((error: Error) => void) | undefined };

/** Syncs commits to the disk, and remembers whether the disk has failed. */
class CommitSync {
  readonly #disk: Disk;
  readonly #onBroken: (error: Error) => void;
  /**
   * The free bytes that the disk must have after a change could not be stored. The largest message is written
   * to the log and then to the file.
   */
  readonly #minFreeBytes: number;
  #failure: Error | null = null;

  constructor(disk: Disk, { onBroken = () => undefined, maxBody = limits.messageBytes }: CommitSyncOptions) {
    this.#disk = disk;
    this.#onBroken = onBroken;
    this.#minFreeBytes = 2 * maxBody;
  }

  /** Throws `Unavailable` if the disk has failed before. */
  throwIfFailed(): void {
    if (this.#failure)
      throw new Unavailable(`the disk has failed: ${this.#failure.message}`, { cause: this.#failure });
  }

  /**
   * Resolves when all commits so far are on the disk. After a failure, no more commits are accepted: the
   * operating system forgets what it could not write, so a later sync could succeed although data was lost.
   */
  async sync(): Promise<void> {
    try {
      await this.#disk.sync();
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)));
    }
    this.throwIfFailed();
  }

  /**
   * Throws `NoRoom` if a batch with the largest message might not fit. A probe alone does not show this,
   * because a larger batch may fail.
   */
  assertFreeSpace(): void {
    const freeBytes = this.#disk.readFreeBytes();
    if (freeBytes < this.#minFreeBytes)
      throw new NoRoom(`the disk is full: ${freeBytes} bytes are left; free some space`);
  }

  /** Records a failure of the disk. Nothing is stored from then on. */
  fail(error: Error): void {
    if (this.#failure) return;
    this.#failure = error;
    this.#onBroken(error);
  }

  close(): void {
    this.#disk.close();
  }
}
