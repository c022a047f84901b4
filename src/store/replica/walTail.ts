import { closeSync, openSync, readSync } from "node:fs";
import { frameHeaderBytes } from "./record.ts";

const logHeaderBytes = 32;
/** The header of the index of the log, which SQLite keeps twice. */
const indexHeaderBytes = 48;
const framesPerRead = 128;

type Position = { salts: string; frame: number };

/**
 * Reads the frames that are added to the write-ahead log of SQLite. Only the thread that writes to the log
 * may use it: it must read after each of its transactions, so that no frame is overwritten unread. `version`
 * returns a number that changes when another process has written.
 */
export class WalTail {
  readonly #log: number;
  readonly #index: number;
  readonly #version: () => number;
  readonly #header = Buffer.alloc(2 * indexHeaderBytes);
  #position: Position | null = null;
  #lastVersion = 0;

  constructor(path: string, version: () => number) {
    this.#log = openSync(`${path}-wal`, "r");
    this.#index = openSync(`${path}-shm`, "r");
    this.#version = version;
  }

  /**
   * Passes all frames of whole transactions that were not read yet, in order. `restarts`: the log has begun
   * again from its beginning before these frames.
   */
  read(onFrames: (frames: Buffer, about: { pageBytes: number; restarts: boolean }) => void): void {
    readSync(this.#index, this.#header, 0, this.#header.length, 0);
    const { frames, salts, pageBytes } = this.#parseHeader();
    const version = this.#version();
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
    closeSync(this.#log);
    closeSync(this.#index);
  }

  /** The index is in the byte order of the processor, and the page size 65,536 is stored as 1. */
  #parseHeader(): { frames: number; salts: string; pageBytes: number } {
    const header = this.#header;
    const copy = header.subarray(indexHeaderBytes);
    if (!header.subarray(0, indexHeaderBytes).equals(copy) || header[12] !== 1)
      throw new Error("the index of the write-ahead log cannot be read");
    const view = new DataView(header.buffer, header.byteOffset);
    const pageBytes = view.getUint16(14, isLittleEndian);
    return {
      frames: view.getUint32(16, isLittleEndian),
      salts: header.toString("hex", 32, 40),
      pageBytes: pageBytes === 1 ? 65_536 : pageBytes,
    };
  }

  #readFrames(part: { from: number; count: number; pageBytes: number; salts: string }): Buffer {
    const frameBytes = frameHeaderBytes + part.pageBytes;
    const frames = Buffer.allocUnsafe(part.count * frameBytes);
    const length = readSync(this.#log, frames, 0, frames.length, logHeaderBytes + part.from * frameBytes);
    for (let at = 0; at < frames.length; at += frameBytes)
      if (length < frames.length || frames.toString("hex", at + 8, at + 16) !== part.salts)
        throw new Error("the write-ahead log differs from its index");
    return frames;
  }
}

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
