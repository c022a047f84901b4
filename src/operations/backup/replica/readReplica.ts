import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import type { Millis } from "../../../engine/core/values/basics.ts";
import { StorageRefused } from "../../../engine/store/layout/storageErrors.ts";
import type { ReplicaBase, ReplicaIdentity, ReplicaRecord } from "./record.ts";
import {
  frameHeaderBytes,
  parseRecord,
  readOffset,
  readRecordLength,
  recordHeaderBytes,
  replicaFiles,
} from "./record.ts";

/** Reports whether a folder has a replica. */
export const isReplica = (folder: string): boolean => existsSync(join(folder, replicaFiles.identity));

/**
 * Writes the database of a replica to an empty file, as it was at the end of the last transaction that the
 * replica has as a whole. Throws `StorageRefused` if the replica is not complete or damaged. Returns the time
 * of that transaction, or null if nothing has changed since the copy of the store.
 */
export function readReplica(folder: string, target: string): { endedAt: Millis | null } {
  const { path, base } = findBase(folder);
  const file = openSync(target, "r+");
  try {
    copyBase(path, { base, file });
    const applier = new Applier(file);
    const end = readLog(path, { base, onFrames: (record) => applier.apply(record) });
    if (end < base.end)
      throw damaged(folder, `its log ends at ${end}, and the copy of the store needs it up to ${base.end}`);
    applier.finish();
    fsyncSync(file);
    return { endedAt: applier.endedAt };
  } finally {
    closeSync(file);
  }
}

const damaged = (folder: string, what: string): StorageRefused =>
  new StorageRefused(`${folder}: the replica is damaged: ${what}; use a backup, or another replica`);

/** Returns the newest copy of the store in a replica. */
function findBase(folder: string): { path: string; base: ReplicaBase } {
  const identity = JSON.parse(
    readFileSync(join(folder, replicaFiles.identity), "utf8"),
  ) as Partial<ReplicaIdentity>;
  if (identity.format !== 1)
    throw new StorageRefused(`${folder}: has a replica of another version; restore it with that version`);
  const generations = readdirSync(folder).filter((name) => /^\d{15}-[0-9a-f]{16}$/.test(name));
  for (const name of generations.toSorted().toReversed()) {
    const path = join(folder, name);
    const complete = readdirSync(path).filter(
      (file) => file.endsWith(".json") && readOffset(file, "base") !== null,
    );
    const newest = complete.toSorted().at(-1);
    if (newest !== undefined)
      return { path, base: JSON.parse(readFileSync(join(path, newest), "utf8")) as ReplicaBase };
  }
  throw new StorageRefused(
    `${folder}: the replica is not complete: the first copy of the store has not ended; use a backup`,
  );
}

const copyBytes = 1024 * 1024;

function copyBase(path: string, { base, file }: { base: ReplicaBase; file: number }): void {
  const source = openSync(join(path, replicaFiles.base(base.start)), "r");
  const buffer = Buffer.alloc(copyBytes);
  let checksum = 0;
  let at = 0;
  try {
    for (let length; (length = readSync(source, buffer, 0, buffer.length, at)) > 0; at += length) {
      checksum = crc32(buffer.subarray(0, length), checksum);
      writeAll(file, buffer.subarray(0, length), at);
    }
  } finally {
    closeSync(source);
  }
  if (at !== base.bytes || checksum !== base.checksum)
    throw damaged(path, "the copy of the store differs from its checksum");
}

/**
 * Passes the records of the log from the beginning of a base. The log may end with an incomplete record: the
 * writer ended there. A record that does not match its checksum elsewhere is damage. Returns where the log
 * ends.
 */
function readLog(
  path: string,
  { base, onFrames }: { base: ReplicaBase; onFrames(record: ReplicaRecord): void },
): number {
  const offsets = readdirSync(path)
    .flatMap((name) => readOffset(name, "log") ?? [])
    .toSorted((a, b) => a - b);
  const first = offsets.findLast((offset) => offset <= base.start) ?? base.start;
  const generation = path.slice(-16);
  let end = base.start;
  const needed = offsets.filter((offset) => offset >= first);
  for (const [index, start] of needed.entries()) {
    if (index === 0) end = start;
    if (start !== end) throw damaged(path, `the log from ${end} to ${start} is missing`);
    const isLast = index === needed.length - 1;
    for (const record of readRecords(join(path, replicaFiles.log(start)), isLast)) {
      if (record.generation !== generation || record.offset !== end)
        throw damaged(path, `${replicaFiles.log(start)} belongs to another time or another replica`);
      if (record.offset >= base.start) onFrames(record);
      end += recordHeaderBytes + record.payload.length;
    }
  }
  return end;
}

function* readRecords(path: string, isLast: boolean): Generator<ReplicaRecord> {
  const file = openSync(path, "r");
  try {
    const { size } = fstatSync(file);
    const header = Buffer.alloc(recordHeaderBytes);
    for (let at = 0; at < size;) {
      const isHeader = readSync(file, header, 0, recordHeaderBytes, at) === recordHeaderBytes;
      const length = isHeader ? readRecordLength(header) : null;
      const bytes = Buffer.alloc(Math.min(length ?? 0, size - at));
      readSync(file, bytes, 0, bytes.length, at);
      const record = length === null ? null : parseRecord(bytes);
      if (record === null) {
        // The last record may have been written in part. Anything after it shows that it was not the last.
        if (isLast && (!isHeader || (length !== null && at + length >= size))) return;
        throw damaged(path, `the record at ${at} differs from its checksum`);
      }
      yield record;
      at += recordHeaderBytes + record.payload.length;
    }
  } finally {
    closeSync(file);
  }
}

/** Applies the pages of whole transactions to a file. */
class Applier {
  readonly #file: number;
  readonly #pages = new Map<number, Buffer>();
  #bytes: number | null = null;
  endedAt: Millis | null = null;

  constructor(file: number) {
    this.#file = file;
  }

  apply({ payload, pageBytes, time }: ReplicaRecord): void {
    const frameBytes = frameHeaderBytes + pageBytes;
    for (let at = 0; at < payload.length; at += frameBytes) {
      const page = payload.subarray(at + frameHeaderBytes, at + frameBytes);
      this.#pages.set(payload.readUInt32BE(at), page);
      const pagesOfFile = payload.readUInt32BE(at + 4);
      if (pagesOfFile === 0) continue;
      for (const [number, content] of this.#pages) writeAll(this.#file, content, (number - 1) * pageBytes);
      this.#pages.clear();
      this.#bytes = pagesOfFile * pageBytes;
      this.endedAt = time;
    }
  }

  /** Pages of a transaction without an end are dropped. */
  finish(): void {
    if (this.#bytes !== null) ftruncateSync(this.#file, this.#bytes);
  }
}

function writeAll(file: number, bytes: Buffer, position: number): void {
  for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at, bytes.length - at, position + at);
}
