import { closeSync, openSync, readSync } from "node:fs";
import { leaveOutOverwritten } from "./overwritten.ts";
import { frameHeaderBytes } from "./record.ts";
import type { WalIndex, WalState } from "../../../engine/store/sqlite/walIndex.ts";

const logHeaderBytes = 32;
const maxBytesAtOnce = 2 * 1024 * 1024;

/** `restarts`: the log has begun again from its beginning before these frames. */
export type LogPart = { frames: Buffer; pageBytes: number; restarts: boolean };

/**
 * Reads the frames that are added to the write-ahead log of SQLite. Only the thread that writes to the log
 * may use it. It must call `readBeforeWrite` and `afterWrite` in each of its transactions, so that no frame
 * is overwritten unread.
 */
export class WalTail {
  readonly #file: number;
  readonly #index: WalIndex;
  #buffer: Buffer = Buffer.alloc(0);
  #position: { salts: string; frame: number } | null = null;
  /** The log has begun again, and no frame was passed since. */
  #restarts = false;
  /** All frames were read before the present transaction, which may begin the log again. */
  #mayRestart = false;

  constructor(path: string, index: WalIndex) {
    this.#file = openSync(`${path}-wal`, "r");
    this.#index = index;
  }

  /**
   * Reads all frames if this transaction may begin the log again. It may do so only if the database file has
   * the whole log. Must be called after the transaction has begun, because a checkpoint can end at any time.
   * Returns whether the frames were read.
   */
  readBeforeWrite(onPart: (part: LogPart) => void): boolean {
    if (!this.#index.isCheckpointed()) return false;
    this.read(onPart);
    this.#mayRestart = true;
    return true;
  }

  /** Must be called after each transaction. */
  afterWrite(): void {
    if (!this.#mayRestart) return;
    this.#follow(this.#index.read());
    this.#mayRestart = false;
  }

  /** Reports whether the log has frames that were not read. */
  hasMore(): boolean {
    const state = this.#index.read();
    this.#follow(state);
    return this.#position !== null && this.#position.frame < state.frames;
  }

  /**
   * Passes all frames of whole transactions that were not read yet, in order. A frame is left out if a later
   * one that is passed with it has the same page.
   */
  read(onPart: (part: LogPart) => void): void {
    const state = this.#index.read();
    this.#follow(state);
    const position = this.#position;
    while (position !== null && position.frame < state.frames) {
      const frames = this.#readFrames(position.frame, state);
      position.frame += frames.length / (frameHeaderBytes + state.pageBytes);
      const { pageBytes } = state;
      onPart({ frames: leaveOutOverwritten(frames, pageBytes), pageBytes, restarts: this.#restarts });
      this.#restarts = false;
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  /** Goes to the beginning of the log if it has begun again. */
  #follow({ salts, frames }: WalState): void {
    const position = this.#position;
    if (position?.salts === salts || (position === null && frames === 0)) return;
    if (position !== null && !(this.#mayRestart && countRestarts(position.salts, salts) === 1))
      throw new Error("another program has written to the store, and parts of its log were not seen");
    this.#position = { salts, frame: 0 };
    this.#restarts = true;
    this.#mayRestart = false;
  }

  /** Returns some of the next frames, in a buffer that the next call uses again. */
  #readFrames(from: number, { frames: end, pageBytes, salts }: WalState): Buffer {
    const frameBytes = frameHeaderBytes + pageBytes;
    const most = Math.floor(maxBytesAtOnce / frameBytes);
    if (this.#buffer.length < most * frameBytes) this.#buffer = Buffer.alloc(most * frameBytes);
    const frames = this.#buffer.subarray(0, Math.min(most, end - from) * frameBytes);
    const length = readSync(this.#file, frames, 0, frames.length, logHeaderBytes + from * frameBytes);
    for (let at = 0; at < frames.length; at += frameBytes)
      if (length < frames.length || frames.toString("hex", at + 8, at + 16) !== salts)
        throw new Error("the write-ahead log differs from its index");
    return frames;
  }
}

/** Returns how often the log has begun again: SQLite then adds 1 to the first salt. */
const countRestarts = (before: string, now: string): number =>
  (Number.parseInt(now.slice(0, 8), 16) - Number.parseInt(before.slice(0, 8), 16)) >>> 0;
