import { closeSync, openSync, readSync } from "node:fs";

/** The end of the last transaction in a write-ahead log. The salts change when the log begins again. */
export type WalState = { frames: number; salts: string; pageBytes: number };

/** The header of the index, which SQLite keeps twice: https://sqlite.org/walformat.html#wal_index_header. */
const headerBytes = 48;
/** After both headers: how many frames the database file has too. */
const checkpointedBytes = 4;

/**
 * Reads the index of a write-ahead log. It may be closed only after all connections of this process. When a
 * process closes any descriptor of a file, the operating system ends all of its locks on that file. Another
 * program would then take the index for unused, and truncate it.
 */
export class WalIndex {
  readonly #file: number;
  readonly #bytes = Buffer.alloc(2 * headerBytes + checkpointedBytes);
  readonly #numbers = new DataView(this.#bytes.buffer, this.#bytes.byteOffset);

  /** `path`: of the database file. */
  constructor(path: string) {
    this.#file = openSync(`${path}-shm`, "r");
  }

  /** The index is in the byte order of the processor, and the page size 65,536 is stored as 1. */
  read(): WalState {
    this.#load();
    const bytes = this.#bytes;
    const copy = bytes.subarray(headerBytes, 2 * headerBytes);
    if (!bytes.subarray(0, headerBytes).equals(copy) || bytes[12] !== 1)
      throw new Error("the index of the write-ahead log cannot be read");
    const pageBytes = this.#numbers.getUint16(14, isLittleEndian);
    return {
      frames: this.#readFrameCount(),
      salts: bytes.toString("hex", 32, 40),
      pageBytes: pageBytes === 1 ? 65_536 : pageBytes,
    };
  }

  /** Reports whether the database file has the whole log. */
  isCheckpointed(): boolean {
    this.#load();
    return this.#numbers.getUint32(2 * headerBytes, isLittleEndian) >= this.#readFrameCount();
  }

  close(): void {
    closeSync(this.#file);
  }

  #readFrameCount(): number {
    return this.#numbers.getUint32(16, isLittleEndian);
  }

  #load(): void {
    readSync(this.#file, this.#bytes, 0, this.#bytes.length, 0);
  }
}

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
