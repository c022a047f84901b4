import type { Millis } from "../../core/model/message.ts";
import type { OnDamage } from "./fileCheck.ts";
import type { Disk } from "./sync.ts";
import { diskOf } from "./sync.ts";
import { Folding } from "./walCheckpoint.ts";
import { afterLook } from "../batch/coalesce.ts";
import { limits } from "../../core/values/limits.ts";
import { bytesOf } from "../../core/fairness/weight.ts";
import { groupCommit, orUnavailable } from "../batch/groupCommit.ts";
import type { KeySource } from "../sql/keyRing.ts";
import { runSqlBatch } from "../sql/transaction.ts";
import { nextDueAt } from "../sql/reads.ts";
import { openChecked } from "./openChecked.ts";
import type { Call, Source, Store } from "../store.ts";
import { Unavailable } from "../store.ts";
import { foldingThread, readingThread } from "./worker.ts";
import { turns } from "../turns.ts";

export type Embedded = {
  path: string;
  source: Source;
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
  openFolding?: typeof foldingThread;
};

/** Outcomes wait so long for the next publish, whose commit they can share. */
const lingerTime: Millis = 5;
/** For five seconds, while others keep the file locked. */
const whileLocked = { time: 50, tries: 100 } as const;

/**
 * SQLite in a file, for a server. Batches are decided and committed here, among requests and deliveries. What takes long is done
 * elsewhere: a disk that is not quick is waited for, before anybody is answered; lists are read, and the write-ahead log is folded back,
 * on threads of their own. See docs/decisions/0029.
 */
export async function embeddedStore(embedded: Embedded): Promise<Store> {
  const { path, source, keys = null, pause, elapsed, onBroken, openFolding = foldingThread } = embedded;
  const { openDisk = (file: string) => diskOf(file, elapsed) } = embedded;
  const onDamage = once(embedded.onDamage);
  const apart = { pause: () => pause(whileLocked.time), tries: whileLocked.tries };
  const database = await openChecked(path, { keys, apart, onDamage });
  const disk = openDisk(path);
  const commits = new Commits(disk, onBroken);
  await commits.sync();
  const [reading, folding] = [readingThread({ path, keys }, onDamage), openFolding({ path, keys }, onDamage)];
  const fold = async (): Promise<{ isWhole: boolean }> => {
    const { isWhole, failed } = await folding.fold();
    if (failed !== undefined) commits.fail(new Error(failed));
    return { isWhole };
  };
  const log = new Folding({ log: () => database.log(), room: () => disk.room(), fold });
  // Whatever uses the connection must not do so in the middle of a transaction.
  const inTurn = turns();
  return groupCommit({
    look: afterLook,
    linger: () => pause(lingerTime),
    runBatch: async (calls, hands) => {
      await log.rest();
      commits.mustBeWhole();
      const before = database.written();
      const result = await inTurn(() => runSqlBatch(database, source, calls, hands));
      if (database.written() === before) return result;
      await commits.sync();
      log.wrote(bytesWrittenBy(calls));
      return result;
    },
    read: reading.queries,
    nextDueAt: () => orUnavailable(inTurn(() => nextDueAt(database.connection))),
    tryToStore: async () => {
      commits.mustHaveRoom();
      await inTurn(() => database.tryToStore());
      await commits.sync();
    },
    close: async () => {
      await Promise.all([reading.close(), folding.close()]);
      database.close();
      commits.close();
    },
  });
}

/** Tells of a row, or of one kind of error of a file, once. What is found after a thousand of them is told by whoever meets it. */
function once(onDamage: OnDamage = () => undefined): OnDamage {
  const told = new Set<string>();
  return (damage) => {
    if (told.has(damage.text) || told.size >= mostTold) return;
    told.add(damage.text);
    onDamage(damage);
  };
}

const mostTold = 1_000;

/** Bytes that the disk must have free after a change could not be stored: a message of 8 MiB is written to the log, and then to the file. */
const leastRoom = 2 * limits.messageBytes;

/** The pages that the smallest batch writes, and what a call adds to them besides its bodies. */
const [ofBatch, ofCall] = [128 * 1024, 2 * 1024];

const bytesWrittenBy = (calls: readonly Call[]): number => calls.reduce((sum, { input }) => sum + ofCall + bytesOf(input), ofBatch);

/** Commits on their way to the disk. */
class Commits {
  readonly #disk: Disk;
  readonly #onBroken: (error: Error) => void;
  #broken: Error | null = null;

  constructor(disk: Disk, onBroken: (error: Error) => void = () => undefined) {
    this.#disk = disk;
    this.#onBroken = onBroken;
  }

  /** Throws `Unavailable` when the disk has failed before. */
  mustBeWhole(): void {
    if (this.#broken) throw new Unavailable(`the disk has failed: ${this.#broken.message}`, { cause: this.#broken });
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
    this.mustBeWhole();
  }

  /** Throws `Unavailable` if a batch with the largest message might not fit. The smallest one, which is tried, nearly always does. */
  mustHaveRoom(): void {
    const room = this.#disk.room();
    if (room < leastRoom) throw new Unavailable(`the disk is full: ${room} bytes are left`);
  }

  /** From now on nothing is stored any more. */
  fail(error: Error): void {
    if (this.#broken) return;
    this.#broken = error;
    this.#onBroken(error);
  }

  close(): void {
    this.#disk.close();
  }
}
