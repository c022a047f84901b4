import { transaction } from "../../core/node/weight.ts";
import type { Millis } from "../../core/values/basics.ts";
import { largestMessageBytes } from "../../core/values/limits.ts";
import { lacksRoom } from "../layout/storageErrors.ts";

/** The minimum time between two probes of the storage. */
const probePause: Millis = 1_000;
/** The time after a change failed for lack of room in which the storage takes no changes. */
const roomPause: Millis = 10_000;
/** The bytes that the largest usual batch writes, and the largest number of bytes that a probe writes. */
const batchBytes = transaction.rows * transaction.bytesPerRow;
const maxProbeBytes = largestMessageBytes;

/** The functions of a storage that show whether it takes changes. See `StoreBackend`. */
export type ProbedStorage = {
  probe?(bytes: number): Promise<void>;
  pause?(time: Millis): Promise<void>;
  elapsed?(): Millis;
};

/**
 * Whether a storage takes changes, as far as the last failed change and the probes after it show. A
 * successful batch does not prove it, because a full disk accepts a batch that changes nothing, and often a
 * small one. After a change failed for lack of room, nothing is probed for 10 s. Then the probe writes as
 * much as a full batch does, and at least the bodies of the change that failed.
 */
export class StorageHealth {
  readonly #storage: ProbedStorage;
  /** The storage was unavailable for a batch or could not store it, and no probe has been stored since. */
  #isInDoubt = false;
  /** The number of failures. */
  #failures = 0;
  /** When a change last failed for lack of room; null if a probe has been stored since. */
  #lackedRoomAt: Millis | null = null;
  /** The maximum number of bytes of bodies in a change that failed for lack of room since then. */
  #lackedBytes = 0;
  #probing: Promise<void> | null = null;

  constructor(storage: ProbedStorage) {
    this.#storage = storage;
  }

  /** Records that a change with bodies of this many bytes could not be stored. */
  fail(error: Error, bytes = 0): void {
    this.#isInDoubt = true;
    this.#failures++;
    if (!lacksRoom(error)) return;
    this.#lackedRoomAt = this.#storage.elapsed?.() ?? -Infinity;
    this.#lackedBytes = Math.max(this.#lackedBytes, Math.min(bytes, maxProbeBytes));
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
    const failuresBefore = this.#failures;
    try {
      await probe?.(this.#lackedRoomAt === null ? 0 : Math.max(batchBytes, this.#lackedBytes));
      // If another change has failed in the meantime, the storage is still in doubt.
      if (this.#failures === failuresBefore) {
        this.#isInDoubt = false;
        this.#lackedRoomAt = null;
        this.#lackedBytes = 0;
      }
    } catch (error) {
      this.fail(error instanceof Error ? error : new Error(String(error)));
    }
    if (pause === undefined) queueMicrotask(() => (this.#probing = null));
    else void pause(probePause).then(() => (this.#probing = null));
  }
}
