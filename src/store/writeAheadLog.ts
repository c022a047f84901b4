import { closeSync, copyFileSync, fstatSync, openSync, readSync } from "node:fs";

/** The contents of a write-ahead log of SQLite: https://sqlite.org/fileformat2.html#the_write_ahead_log. */
export type LogCheck = {
  /** The size of the file in pages at the last commit that SQLite will read. Null: it will read none. */
  pages: number | null;
  /** The pages that it will read from the log. */
  inLog: ReadonlySet<number>;
  /** The log was altered: from this frame on (the first is 0) it is not read, and there are commits behind. Null: it is whole. */
  cut: { at: number; frames: number } | null;
};

const [headerBytes, frameHeaderBytes] = [32, 24];
/** The lowest bit of the first word says in which order the checksum reads bytes. */
const magic = 0x377f0682;
const batchBytes = 1024 * 1024;

const untouched: LogCheck = { pages: null, inLog: new Set(), cut: null };

/**
 * Reads the write-ahead log as SQLite does at its next start, and behind the place at which SQLite stops. A commit behind that place, of the
 * same log, shows that something before it was altered, or never came to the disk: a log only grows at its end.
 */
export function checkLog(path: string): LogCheck {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return untouched;
  }
  try {
    return new LogReader(file).check();
  } finally {
    closeSync(file);
  }
}

/** Keeps a copy of the log of a database that will be cut, in the place of an earlier one. Null: there is no room. */
export function keepDamagedLog(path: string): string | null {
  const copy = `${path}-wal.damaged`;
  try {
    copyFileSync(`${path}-wal`, copy);
    return copy;
  } catch {
    return null;
  }
}

type Sum = readonly [number, number];
type Frame = { page: number; size: number; salts: string; stored: Sum; at: number };

class LogReader {
  readonly #file: number;
  #batch = Buffer.alloc(0);
  #batchAt = 0;
  readonly #size: number;

  constructor(file: number) {
    this.#file = file;
    this.#size = fstatSync(file).size;
  }

  check(): LogCheck {
    const header = this.#at(0, headerBytes);
    if (!header) return untouched;
    const isBigEndian = header.readUInt32BE(0) === magic + 1;
    const isKnown = isBigEndian || header.readUInt32BE(0) === magic;
    const pageBytes = header.readUInt32BE(8);
    const isPage = pageBytes >= 512 && pageBytes <= 65_536 && (pageBytes & (pageBytes - 1)) === 0;
    const start = sumOf(header.subarray(0, 24), [0, 0], isBigEndian);
    const isWhole = isKnown && isPage && isSame(start, [header.readUInt32BE(24), header.readUInt32BE(28)]);
    // If the header was altered, these are guesses: the page size of new files, and the byte order of most processors.
    const of = { pageBytes: isPage ? pageBytes : 8_192, isBigEndian: isKnown && isBigEndian };
    return this.#frames(of, isWhole ? { salts: header.toString("hex", 16, 24), sum: start } : null);
  }

  /** `begun`: what the header says. Null: it was altered, and SQLite reads nothing. */
  #frames({ pageBytes, isBigEndian }: { pageBytes: number; isBigEndian: boolean }, begun: { salts: string; sum: Sum } | null): LogCheck {
    const committed = new Set<number>();
    let pages: number | null = null;
    let pending: number[] = [];
    let salts = begun?.salts;
    let sum: Sum | null = begun?.sum ?? null;
    let stoppedAt: number | null = begun ? null : 0;
    let lastCommit = -1;
    for (let n = 0; ; n++) {
      const at = headerBytes + n * (frameHeaderBytes + pageBytes);
      const bytes = this.#at(at, frameHeaderBytes + pageBytes);
      if (!bytes) break;
      const frame = frameOf(bytes, n);
      salts ??= frame.salts;
      const isFollowing =
        sum !== null &&
        isSame(sumOf(bytes.subarray(frameHeaderBytes), sumOf(bytes.subarray(0, 8), sum, isBigEndian), isBigEndian), frame.stored);
      const isOfLog = frame.salts === salts && frame.page > 0;
      if (stoppedAt === null && isFollowing && isOfLog) {
        pending.push(frame.page);
        if (frame.size > 0) {
          for (const page of pending) committed.add(page);
          [pages, pending] = [frame.size, []];
        }
      } else {
        stoppedAt ??= n;
        // It follows the frame before it, even if that one was altered.
        if (isFollowing && isOfLog && frame.size > 0) lastCommit = n;
      }
      sum = frame.stored;
    }
    const cut = stoppedAt !== null && lastCommit >= stoppedAt ? { at: stoppedAt, frames: lastCommit + 1 - stoppedAt } : null;
    return { pages, inLog: committed, cut };
  }

  /** Null: the file ends before. */
  #at(offset: number, length: number): Buffer | null {
    if (offset + length > this.#size) return null;
    if (offset < this.#batchAt || offset + length > this.#batchAt + this.#batch.length) {
      const batch = Buffer.alloc(Math.min(Math.max(batchBytes, length), this.#size - offset));
      this.#batch = batch.subarray(0, readSync(this.#file, batch, 0, batch.length, offset));
      this.#batchAt = offset;
    }
    const from = offset - this.#batchAt;
    return from + length <= this.#batch.length ? this.#batch.subarray(from, from + length) : null;
  }
}

const frameOf = (bytes: Buffer, at: number): Frame => ({
  ...{ at, page: bytes.readUInt32BE(0), size: bytes.readUInt32BE(4), salts: bytes.toString("hex", 8, 16) },
  stored: [bytes.readUInt32BE(16), bytes.readUInt32BE(20)],
});

const isSame = (one: Sum, other: Sum): boolean => one[0] === other[0] && one[1] === other[1];

/** The checksum of SQLite over words of 32 bits, which continues the checksum of the bytes before. */
function sumOf(bytes: Buffer, [first, second]: Sum, isBigEndian: boolean): Sum {
  let [one, two] = [first | 0, second | 0];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.byteLength; at += 8) {
    one = (one + view.getInt32(at, !isBigEndian) + two) | 0;
    two = (two + view.getInt32(at + 4, !isBigEndian) + one) | 0;
  }
  return [one >>> 0, two >>> 0];
}
