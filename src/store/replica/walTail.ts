import { closeSync, openSync, readSync } from "node:fs";
import type { FollowedLog } from "./walIndex.ts";
import { frameHeaderBytes } from "./record.ts";

const logHeaderBytes = 32;
const framesPerRead = 128;

type Position = { salts: string; frame: number };

/**
 * Reads the frames that are added to the write-ahead log of SQLite. Only the thread that writes to the log
 * may use it: it must read after each of its transactions, so that no frame is overwritten unread.
 */
export class WalTail {
  readonly #file: number;
  readonly #log: FollowedLog;
  #position: Position | null = null;
  #lastVersion = 0;

  constructor(path: string, log: FollowedLog) {
    this.#file = openSync(`${path}-wal`, "r");
    this.#log = log;
  }

  /**
   * Passes all frames of whole transactions that were not read yet, in order. `restarts`: the log has begun
   * again from its beginning before these frames.
   */
  read(onFrames: (frames: Buffer, about: { pageBytes: number; restarts: boolean }) => void): void {
    const { frames, salts, pageBytes } = this.#log.index.read();
    const version = this.#log.version();
    if (frames === 0) {
      this.#lastVersion = version;
      return;
    }
    let restarts = false;
    if (salts !== this.#position?.salts) {
      if (this.#position !== null && version !== this.#lastVersion)
        throw new Error("another program has written to the store, and parts of its log were not seen");
      this.#position = { salts, frame: 0 };
      restarts = true;
    }
    this.#lastVersion = version;
    const position = this.#position;
    while (position.frame < frames) {
      const count = Math.min(framesPerRead, frames - position.frame);
      const read = this.#readFrames({ from: position.frame, count, pageBytes, salts });
      position.frame += count;
      onFrames(read, { pageBytes, restarts });
      restarts = false;
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  #readFrames(part: { from: number; count: number; pageBytes: number; salts: string }): Buffer {
    const frameBytes = frameHeaderBytes + part.pageBytes;
    const frames = Buffer.allocUnsafe(part.count * frameBytes);
    const length = readSync(this.#file, frames, 0, frames.length, logHeaderBytes + part.from * frameBytes);
    for (let at = 0; at < frames.length; at += frameBytes)
      if (length < frames.length || frames.toString("hex", at + 8, at + 16) !== part.salts)
        throw new Error("the write-ahead log differs from its index");
    return frames;
  }
}
