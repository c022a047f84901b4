import { transaction } from "../core/fairness/weight.ts";
import type { Millis } from "../core/model/message.ts";
import { lacksRoom } from "./store.ts";

/** The minimum time between two probes of the storage. */
const probePause: Millis = 1_000;
/** The time after a change failed for lack of room in which the storage takes no changes. */
const roomPause: Millis = 10_000;
/** The bytes that the largest usual batch writes. */
const batchBytes = transaction.rows * transaction.bytesPerRow;

/** The functions of a storage that show whether it takes changes. See `StoreBackend`. */
export type ProbedStorage = {
  probe?(bytes: number): Promise<void>;
  pause?(time: Millis): Promise<void>;
  elapsed?(): Millis;
};

/**
 * Whether a storage takes changes, as far as the last failed change and the probes after it show. A
 * successful batch does not prove it, because a full disk accepts a batch that changes nothing, and often a
 * small one. After a change failed for lack of room, nothing is probed for 10 s, and then the probe writes as
 * much as a full batch does.
 */
export class StorageHealth {
  readonly #storage: ProbedStorage;
  /** The storage was unavailable for a batch or could not store it, and no probe has been stored since. */
  #isInDoubt = false;
  /** When a change last failed for lack of room; null if a probe has been stored since. */
  #lackedRoomAt: Millis | null = null;
  #probing: Promise<void> | null = null;

  constructor(storage: ProbedStorage) {
    this.#storage = storage;
  }

  /** Records that a change could not be stored. */
  fail(error: Error): void {
    this.#isInDoubt = true;
    if (lacksRoom(error)) this.#lackedRoomAt = this.#storage.elapsed?.() ?? -Infinity;
  }

  /** Reports whether a change can be stored. If that is in doubt, waits for a probe. */
  async takesChanges(): Promise<boolean> {
    await this.#probe();
    return !this.#isInDoubt;
  }

  /** Reports whether the storage is in doubt, and starts a probe if it is. */
  isInDoubt(): boolean {
    void this.#probe();
    return this.#isInDoubt;
  }

  /** Returns the running probe, or starts one if it is time for it. */
  #probe(): Promise<void> {
    if (!this.#isInDoubt || this.#mustWaitForRoom()) return Promise.resolve();
    return (this.#probing ??= this.#probeStorage());
  }

  #mustWaitForRoom(): boolean {
    const { elapsed } = this.#storage;
    return this.#lackedRoomAt !== null && elapsed !== undefined && elapsed() - this.#lackedRoomAt < roomPause;
  }

  async #probeStorage(): Promise<void> {
    const { probe, pause } = this.#storage;
    const failedBefore = this.#lackedRoomAt;
    try {
      await probe?.(failedBefore === null ? 0 : batchBytes);
      // If another change has lacked room in the meantime, the storage is still in doubt.
      if (this.#lackedRoomAt === failedBefore) {
        this.#isInDoubt = false;
        this.#lackedRoomAt = null;
      }
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)));
    }
    if (pause === undefined) queueMicrotask(() => (this.#probing = null));
    else void pause(probePause).then(() => (this.#probing = null));
  }
}
