import {
  closeSync,
  existsSync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import type { ReplicaBase, ReplicaIdentity, ReplicaRecord } from "./record.ts";
import { readOffset, readRecord, readRecordLength, recordHeaderBytes, replicaFiles } from "./record.ts";

/** The folder cannot have this replica. The text says what to do. */
export class WriterRefused extends Error {}

type WriterOptions = {
  folder: string;
  /** The identity of the store. */
  store: string;
  /** The path of the database file. */
  database: string;
  report(line: object): void;
  /** Waits for this many milliseconds. */
  pause(time: number): Promise<void>;
  /** A monotonic clock. */
  elapsed(): number;
  /** Replaces sizes in tests, in bytes. */
  sizes?: Partial<Sizes>;
};

/**
 * `segment`: the size at which a file of the log ends. `copy`: the most that is copied at once. `base`: a
 * smaller base counts as this large.
 */
type Sizes = { segment: number; copy: number; base: number };

const mebi = 1024 * 1024;
const defaultSizes: Sizes = { segment: 16 * mebi, copy: mebi, base: 64 * mebi };
/** The log is synced this long after the first record that is not synced, in milliseconds. */
const syncDelay = 100;
const retryPause = 1_000;
/** A new base is made when the log has this many times its bytes, so that bases cost a sixth of the log. */
const logPerBase = 6;

/** Writes the files of a replica. All of its calls may block while the disk does. */
export class ReplicaWriter {
  readonly #options: WriterOptions;
  readonly #sizes: Sizes;
  /** The part of the stream that is not a whole record yet, and the bytes that the next record needs. */
  #received: Buffer[] = [];
  #receivedBytes = 0;
  #neededBytes = recordHeaderBytes;
  /** The folder of the present generation. */
  #folder = "";
  #segment: { path: string; file: number; bytes: number } | null = null;
  /** The names of the files in it that a restore needs. */
  readonly #files = new Set<string>();
  #offset = 0;
  #isSynced = true;
  #base: ReplicaBase | null = null;
  #copy: { start: number; bytes: number; checksum: number } | null = null;
  #hasAsked = false;

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#sizes = { ...defaultSizes, ...options.sizes };
    this.#claimFolder();
    this.#removeGenerations((name) => !this.#isComplete(name));
  }

  /** Writes the records of the next part of the stream. Resolves when more can be taken. */
  async receive(bytes: Buffer): Promise<void> {
    this.#received.push(bytes);
    this.#receivedBytes += bytes.length;
    if (this.#receivedBytes < this.#neededBytes) return;
    const [only = bytes] = this.#received;
    const all = this.#received.length === 1 ? only : Buffer.concat(this.#received);
    let at = 0;
    this.#neededBytes = recordHeaderBytes;
    while (all.length - at >= recordHeaderBytes) {
      const length = readRecordLength(all.subarray(at));
      if (length === null) throw new Error("the stream of the server is damaged");
      this.#neededBytes = length;
      if (all.length - at < length) break;
      await this.#writeRecord(all.subarray(at, at + length));
      at += length;
      this.#neededBytes = recordHeaderBytes;
    }
    this.#received = [all.subarray(at)];
    this.#receivedBytes = all.length - at;
  }

  /**
   * Brings the log to the disk, and reports how far it is. Throws if the log was removed, because a restore
   * would not find it.
   */
  flush(): void {
    if (this.#isSynced) return;
    if (this.#segment) fdatasyncSync(this.#segment.file);
    this.#checkSegment();
    this.#isSynced = true;
    this.#options.report({ written: this.#offset });
  }

  /** Throws if a file that a restore needs was removed or renamed. */
  check(): void {
    const files = [...this.#files].map((name) => join(this.#folder, name));
    for (const path of [join(this.#options.folder, replicaFiles.identity), ...files])
      if (!existsSync(path)) throw new Error(`${path} was removed or renamed`);
    this.#checkSegment();
  }

  #checkSegment(): void {
    if (this.#segment === null) return;
    const { path, file } = this.#segment;
    if (statSync(path, { throwIfNoEntry: false })?.ino !== fstatSync(file).ino)
      throw new Error(`${path} was removed or renamed`);
  }

  async #writeRecord(bytes: Buffer): Promise<void> {
    // The checksum of the payload is checked by a restore.
    const record = readRecord(bytes);
    this.#openGeneration(record);
    if (record.kind === "base") return this.#beginBase(record.offset);
    if (record.kind === "mark") return this.#completeBase();
    while (!this.#append(bytes, record.offset)) await this.#options.pause(retryPause);
    this.#offset = record.offset + bytes.length;
    if (this.#isSynced) void this.#options.pause(syncDelay).then(() => this.#flushOrEnd());
    this.#isSynced = false;
    this.#askForBase();
  }

  #flushOrEnd(): void {
    try {
      this.flush();
    } catch (error) {
      // After a failed sync, it is unknown what the disk has.
      this.#options.report({ problem: toText(error) });
      process.exit(1);
    }
  }

  /** Appends a record to the log. If the disk is full, leaves the log as it was and returns false. */
  #append(bytes: Buffer, offset: number): boolean {
    if (this.#segment && this.#segment.bytes >= this.#sizes.segment) {
      fdatasyncSync(this.#segment.file);
      closeSync(this.#segment.file);
      this.#segment = null;
    }
    try {
      if (this.#segment === null) {
        const path = join(this.#folder, replicaFiles.log(offset));
        this.#segment = { path, file: openSync(path, "wx", 0o600), bytes: 0 };
        this.#files.add(replicaFiles.log(offset));
        syncFolder(this.#folder);
      }
      writeAll(this.#segment.file, bytes, this.#segment.bytes);
      this.#segment.bytes += bytes.length;
      return true;
    } catch (error) {
      if (!isFull(error)) throw error;
      if (this.#segment) ftruncateSync(this.#segment.file, this.#segment.bytes);
      this.#options.report({ waiting: toText(error) });
      return false;
    }
  }

  #openGeneration({ generation, time }: ReplicaRecord): void {
    if (this.#folder !== "") return;
    this.#folder = join(this.#options.folder, `${String(time).padStart(15, "0")}-${generation}`);
    mkdirSync(this.#folder, { mode: 0o700 });
    syncFolder(this.#options.folder);
  }

  #askForBase(): void {
    if (this.#base === null || this.#copy !== null || this.#hasAsked) return;
    const { start, bytes } = this.#base;
    if (this.#offset - start < logPerBase * Math.max(bytes, this.#sizes.base)) return;
    this.#hasAsked = true;
    this.#options.report({ wantsBase: true });
  }

  /**
   * Copies the database file while the server changes it. Pages that change meanwhile are in the log too,
   * which is applied to them.
   */
  #beginBase(start: number): void {
    this.#hasAsked = false;
    this.#copy = { start, bytes: 0, checksum: 0 };
    void this.#copyFile(start).catch((error: unknown) => {
      this.#options.report({ problem: toText(error) });
      process.exit(1);
    });
  }

  async #copyFile(start: number): Promise<void> {
    const { database, elapsed, pause } = this.#options;
    const source = openSync(database, "r");
    const target = openSync(join(this.#folder, `${replicaFiles.base(start)}.part`), "w", 0o600);
    const buffer = Buffer.alloc(this.#sizes.copy);
    const copy = { start, bytes: 0, checksum: 0 };
    for (;;) {
      const since = elapsed();
      const length = readSync(source, buffer, 0, buffer.length, copy.bytes);
      if (length === 0) break;
      const part = buffer.subarray(0, length);
      writeAll(target, part, copy.bytes);
      copy.bytes += length;
      copy.checksum = crc32(part, copy.checksum);
      await pause(Math.max(1, elapsed() - since));
    }
    fsyncSync(target);
    closeSync(target);
    closeSync(source);
    this.#copy = copy;
    this.#options.report({ copied: true });
  }

  /** All changes that the copied file had are in the log now. Older files are then of no use. */
  #completeBase(): void {
    if (this.#copy === null) throw new Error("a mark without a base");
    const { start, bytes, checksum } = this.#copy;
    this.flush();
    const base: ReplicaBase = { start, end: this.#offset, bytes, checksum };
    const name = join(this.#folder, replicaFiles.base(start));
    renameSync(`${name}.part`, name);
    writeDurably(join(this.#folder, replicaFiles.complete(start)), base);
    this.#copy = null;
    this.#base = base;
    this.#files.add(replicaFiles.base(start)).add(replicaFiles.complete(start));
    this.#removeGenerations((other) => join(this.#options.folder, other) !== this.#folder);
    this.#removeBefore(start);
    this.#options.report({ complete: true, bytes });
  }

  /** Removes the bases before an offset, and the parts of the log that end before it. */
  #removeBefore(start: number): void {
    const names = readdirSync(this.#folder).toSorted();
    const logs = names.filter((name) => readOffset(name, "log") !== null);
    const needed = logs.findLast((name) => (readOffset(name, "log") ?? 0) <= start);
    for (const name of names) {
      const isOldLog = logs.includes(name) && needed !== undefined && name < needed;
      const isOldBase =
        name.startsWith("base-") && !name.startsWith(`base-${String(start).padStart(16, "0")}`);
      if (!isOldLog && !isOldBase) continue;
      rmSync(join(this.#folder, name));
      this.#files.delete(name);
    }
  }

  #claimFolder(): void {
    const { folder, store } = this.#options;
    if (!existsSync(folder)) {
      if (!existsSync(dirname(folder)))
        throw new WriterRefused(`${folder}: its parent folder does not exist; mount the disk, or create it`);
      mkdirSync(folder, { mode: 0o700 });
    }
    const path = join(folder, replicaFiles.identity);
    if (existsSync(path)) {
      const identity = JSON.parse(readFileSync(path, "utf8")) as ReplicaIdentity;
      if (identity.format !== 1)
        throw new WriterRefused(`${folder}: has a replica of another version; ${other}`);
      if (identity.store !== store)
        throw new WriterRefused(`${folder}: has the replica of another store; ${other}`);
      return;
    }
    const unfinished = `${replicaFiles.identity}.new`;
    if (readdirSync(folder).some((name) => name !== "lost+found" && name !== unfinished))
      throw new WriterRefused(`${folder}: has other files; choose an empty folder for --replicate`);
    writeDurably(path, { format: 1, store } satisfies ReplicaIdentity);
  }

  #isComplete(name: string): boolean {
    return readdirSync(join(this.#options.folder, name)).some(
      (file) => file.endsWith(".json") && readOffset(file, "base") !== null,
    );
  }

  #removeGenerations(isOld: (name: string) => boolean): void {
    const { folder } = this.#options;
    for (const name of readdirSync(folder))
      if (/^\d{15}-[0-9a-f]{16}$/.test(name) && isOld(name)) rmSync(join(folder, name), { recursive: true });
  }
}

const other = "choose an empty folder for --replicate, or remove the replica if it is not needed";

function writeAll(file: number, bytes: Buffer, position: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at, bytes.length - at, position + at);
}

/** Writes a file that is complete if it has its name. */
function writeDurably(path: string, value: object): void {
  writeFileSync(`${path}.new`, JSON.stringify(value), { mode: 0o600, flush: true });
  renameSync(`${path}.new`, path);
  syncFolder(dirname(path));
}

function syncFolder(path: string): void {
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

const isFull = (error: unknown): boolean =>
  ["ENOSPC", "EDQUOT"].includes(String(Reflect.get(error as object, "code")));
const toText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
