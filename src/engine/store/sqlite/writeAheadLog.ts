import { closeSync, copyFileSync, existsSync, fstatSync, openSync, readSync } from "node:fs";

/** The content of a write-ahead log of SQLite: https://sqlite.org/fileformat2.html#the_write_ahead_log. */
export type LogCheck = {
  /** The size of the file in pages at the last commit that SQLite will read, or null if it will read none. */
  pages: number | null;
  /** The pages that SQLite will read from the log. */
  inLog: ReadonlySet<number>;
  /** The altered place, if commits follow it. Null if no commit follows a place at which SQLite stops. */
  cut: LogDamage | null;
};

/** A place in a log at which SQLite stops reading. */
export type LogDamage = {
  /** The first frame that does not match its checksum, counted from 0. */
  frame: number;
  /** The number of frames from that frame to the last commit. */
  frames: number;
  /** The number of commits after that frame. */
  commits: number;
  /**
   * The part of the log that the database file contains. `all`: the whole log, so nothing is lost. `behind`:
   * pages from after the altered place. `none`: neither.
   */
  checkpointed: "all" | "behind" | "none";
};

const headerBytes = 32;
const frameHeaderBytes = 24;
/** The first word of a log. Its lowest bit gives the byte order of the checksum. */
const magic = 0x377f0682;
const batchBytes = 1024 * 1024;

const emptyCheck: LogCheck = { pages: null, inLog: new Set(), cut: null };

/**
 * Reads the write-ahead log as SQLite will at its next start, and also the part after the place at which
 * SQLite stops. A log only grows at its end. If a commit of the same log follows that place, an earlier frame
 * was altered or never reached the disk.
 */
export function checkLog(path: string): LogCheck {
  const log = openIfPresent(`${path}-wal`);
  if (log === null) return emptyCheck;
  const database = openIfPresent(path);
  try {
    return new LogReader(log, database).check();
  } finally {
    closeSync(log);
    if (database !== null) closeSync(database);
  }
}

function openIfPresent(path: string): number | null {
  try {
    return openSync(path, "r");
  } catch {
    return null;
  }
}

/**
 * Copies a damaged log to a new file beside the database, under an unused name, and returns that name. Throws
 * if the disk has no space.
 */
export function keepDamagedLog(path: string): string {
  let copy = `${path}-wal.damaged`;
  for (let n = 2; existsSync(copy); n++) copy = `${path}-wal.damaged-${n}`;
  copyFileSync(`${path}-wal`, copy);
  return copy;
}

type Checksum = readonly [number, number];
type Frame = { page: number; size: number; salts: string; stored: Checksum; at: number };

class LogReader {
  readonly #file: number;
  #batch = Buffer.alloc(0);
  #batchAt = 0;
  readonly #size: number;

  readonly #database: number | null;

  constructor(file: number, database: number | null) {
    this.#file = file;
    this.#database = database;
    this.#size = fstatSync(file).size;
  }

  check(): LogCheck {
    const header = this.#readAt(0, headerBytes);
    if (!header) return emptyCheck;
    const isBigEndian = header.readUInt32BE(0) === magic + 1;
    const isKnown = isBigEndian || header.readUInt32BE(0) === magic;
    const pageBytes = header.readUInt32BE(8);
    const isPage = pageBytes >= 512 && pageBytes <= 65_536 && (pageBytes & (pageBytes - 1)) === 0;
    const start = computeChecksum(header.subarray(0, 24), [0, 0], isBigEndian);
    const isWhole = isKnown && isPage && isSame(start, [header.readUInt32BE(24), header.readUInt32BE(28)]);
    // If the header was altered, these are guesses: the page size of new files, and the usual byte order of
    // processors.
    const format = { pageBytes: isPage ? pageBytes : 4_096, isBigEndian: isKnown && isBigEndian };
    return this.#readFrames(format, isWhole ? { salts: header.toString("hex", 16, 24), sum: start } : null);
  }

  /** `header` is null if it was altered; SQLite then reads nothing. */
  #readFrames(
    { pageBytes, isBigEndian }: { pageBytes: number; isBigEndian: boolean },
    header: { salts: string; sum: Checksum } | null,
  ): LogCheck {
    const committed = new Set<number>();
    let pages: number | null = null;
    let pending: number[] = [];
    let salts = header?.salts;
    let sum: Checksum | null = header?.sum ?? null;
    let stoppedAt: number | null = header ? null : 0;
    let lastCommit = -1;
    let commits = 0;
    // The last frame of each page: before the place at which SQLite stops, and after it.
    const validFrames = new Map<number, number>();
    const laterFrames = new Map<number, number>();
    for (let n = 0; ; n++) {
      const at = headerBytes + n * (frameHeaderBytes + pageBytes);
      const bytes = this.#readAt(at, frameHeaderBytes + pageBytes);
      if (!bytes) break;
      const frame = parseFrame(bytes, n);
      salts ??= frame.salts;
      const isFollowing =
        sum !== null &&
        isSame(
          computeChecksum(
            bytes.subarray(frameHeaderBytes),
            computeChecksum(bytes.subarray(0, 8), sum, isBigEndian),
            isBigEndian,
          ),
          frame.stored,
        );
      const isSameLog = frame.salts === salts && frame.page > 0;
      if (stoppedAt === null && isFollowing && isSameLog) {
        pending.push(frame.page);
        if (frame.size > 0) {
          for (const page of pending) committed.add(page);
          pages = frame.size;
          pending = [];
        }
        validFrames.set(frame.page, n);
      } else {
        stoppedAt ??= n;
        if (n === stoppedAt || (isFollowing && isSameLog)) laterFrames.set(frame.page, n);
        // The checksum of this frame follows from that of the frame before it, even if that frame was
        // altered.
        if (isFollowing && isSameLog && frame.size > 0) {
          lastCommit = n;
          commits++;
        }
      }
      sum = frame.stored;
    }
    if (stoppedAt === null || lastCommit < stoppedAt) return { pages, inLog: committed, cut: null };
    const checkpointed = this.#readCheckpointed({ pageBytes, validFrames, laterFrames, stoppedAt });
    return {
      pages,
      inLog: committed,
      cut: { frame: stoppedAt, frames: lastCommit + 1 - stoppedAt, commits, checkpointed },
    };
  }

  /**
   * Compares the last image of each page in the log with the file. The first frame that does not match may
   * differ in up to 16 bytes.
   */
  #readCheckpointed({
    pageBytes,
    validFrames,
    laterFrames,
    stoppedAt,
  }: PageImages): LogDamage["checkpointed"] {
    let isAll = true;
    let isBehind = false;
    for (const [page, frame] of [...validFrames, ...laterFrames]) {
      if (laterFrames.has(page) && laterFrames.get(page) !== frame) continue;
      const inFile = this.#isInFile(frame, {
        page,
        pageBytes,
        mayDiffer: frame === stoppedAt ? maxDifferingBytes : 0,
      });
      isAll &&= inFile;
      const earlier = validFrames.get(page);
      if (inFile && laterFrames.has(page) && frame !== stoppedAt)
        isBehind ||= earlier === undefined || !this.#isInFile(earlier, { page, pageBytes, mayDiffer: 0 });
    }
    return isAll ? "all" : isBehind ? "behind" : "none";
  }

  #isInFile(
    frame: number,
    { page, pageBytes, mayDiffer }: { page: number; pageBytes: number; mayDiffer: number },
  ): boolean {
    const image = this.#readAt(
      headerBytes + frame * (frameHeaderBytes + pageBytes) + frameHeaderBytes,
      pageBytes,
    );
    const there = Buffer.alloc(pageBytes);
    if (image === null || this.#database === null || page < 1) return false;
    if (readSync(this.#database, there, 0, pageBytes, (page - 1) * pageBytes) < pageBytes) return false;
    if (image.equals(there)) return true;
    let differing = 0;
    for (let at = 0; at < pageBytes && differing <= mayDiffer; at++) if (image[at] !== there[at]) differing++;
    return differing <= mayDiffer;
  }

  /** Returns null if the file ends earlier. */
  #readAt(offset: number, length: number): Buffer | null {
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

type PageImages = {
  pageBytes: number;
  validFrames: ReadonlyMap<number, number>;
  laterFrames: ReadonlyMap<number, number>;
  stoppedAt: number;
};

/** The number of bytes in which an altered frame may differ from the page in the file. */
const maxDifferingBytes = 16;

const parseFrame = (bytes: Buffer, at: number): Frame => ({
  at,
  page: bytes.readUInt32BE(0),
  size: bytes.readUInt32BE(4),
  salts: bytes.toString("hex", 8, 16),
  stored: [bytes.readUInt32BE(16), bytes.readUInt32BE(20)],
});

const isSame = (one: Checksum, other: Checksum): boolean => one[0] === other[0] && one[1] === other[1];

/** Computes SQLite's checksum over 32-bit words, starting from the checksum of the bytes before. */
function computeChecksum(bytes: Buffer, [first, second]: Checksum, isBigEndian: boolean): Checksum {
  let one = first | 0;
  let two = second | 0;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.byteLength; at += 8) {
    one = (one + view.getInt32(at, !isBigEndian) + two) | 0;
    two = (two + view.getInt32(at + 4, !isBigEndian) + one) | 0;
  }
  return [one >>> 0, two >>> 0];
}
