import { crc32 } from "node:zlib";

/**
 * A record of the stream to a replica. `frames` are whole frames of the write-ahead log of SQLite, as in its
 * file. `base` asks for a copy of the database file, to which the log from `offset` is applied. `mark` ends
 * that copy: all changes that the file had when it was copied precede the mark.
 */
export type ReplicaRecord = {
  kind: "frames" | "base" | "mark";
  /** 16 hexadecimal digits that belong to one stream. */
  generation: string;
  /** The bytes of the log before this record. */
  offset: number;
  /** When the record was made, in milliseconds since 1970. */
  time: number;
  pageBytes: number;
  payload: Buffer;
};

const magic = 0x57_50_52_31;
const kinds = ["frames", "base", "mark"] as const;
/** The bytes of a record before its payload. */
export const recordHeaderBytes = 48;
const maxPayload = 64 * 1024 * 1024;

/** Returns a record as bytes: 48 bytes with two checksums, and the payload. */
export const formatRecord = (record: ReplicaRecord): Buffer =>
  Buffer.concat([formatRecordHeader(record), record.payload]);

/** Returns the bytes of a record before its payload. */
export function formatRecordHeader(record: ReplicaRecord): Buffer {
  const { kind, generation, offset, time, pageBytes, payload } = record;
  const header = Buffer.alloc(recordHeaderBytes);
  header.writeUInt32BE(magic, 0);
  header.writeUInt32BE(kinds.indexOf(kind), 4);
  header.writeUInt32BE(payload.length, 8);
  header.writeUInt32BE(crc32(payload), 12);
  header.writeDoubleBE(offset, 16);
  header.writeDoubleBE(time, 24);
  header.write(generation, 32, "hex");
  header.writeUInt32BE(pageBytes, 40);
  header.writeUInt32BE(crc32(header.subarray(0, 44)), 44);
  return header;
}

/** Returns how many bytes a record has, from its header, or null if the header is damaged. */
export function readRecordLength(bytes: Buffer): number | null {
  if (bytes.readUInt32BE(0) !== magic || bytes.readUInt32BE(44) !== crc32(bytes.subarray(0, 44))) return null;
  const length = bytes.readUInt32BE(8);
  return length <= maxPayload ? recordHeaderBytes + length : null;
}

/** Returns the record that these bytes are, or null if they are damaged. */
export function parseRecord(bytes: Buffer): ReplicaRecord | null {
  if (bytes.length < recordHeaderBytes || readRecordLength(bytes) !== bytes.length) return null;
  return bytes.readUInt32BE(12) === crc32(bytes.subarray(recordHeaderBytes)) ? readRecord(bytes) : null;
}

/** Returns the record that these bytes are. Does not check the payload, unlike `parseRecord`. */
export function readRecord(bytes: Buffer): ReplicaRecord {
  return {
    kind: kinds[bytes.readUInt32BE(4)] ?? "frames",
    generation: bytes.toString("hex", 32, 40),
    offset: bytes.readDoubleBE(16),
    time: bytes.readDoubleBE(24),
    pageBytes: bytes.readUInt32BE(40),
    payload: bytes.subarray(recordHeaderBytes),
  };
}

/** The bytes of a frame before its page: https://sqlite.org/fileformat2.html#the_write_ahead_log. */
export const frameHeaderBytes = 24;

/** The names of the files of a replica. Numbers are offsets in the log, so that names sort. */
export const replicaFiles = {
  identity: "replica.json",
  log: (offset: number): string => `log-${pad(offset)}`,
  base: (offset: number): string => `base-${pad(offset)}.db`,
  /** Describes a base that is complete. */
  complete: (offset: number): string => `base-${pad(offset)}.json`,
};

const pad = (offset: number): string => String(offset).padStart(16, "0");

/** Returns the offset in the name of a file of a replica, or null if the name does not begin with `kind`. */
export function readOffset(name: string, kind: "log" | "base"): number | null {
  const [, digits] = new RegExp(`^${kind}-(\\d{16})(\\.json)?$`).exec(name) ?? [];
  return digits === undefined ? null : Number(digits);
}

/** Describes a base. The log from `start` is applied to it, at least up to `end`. */
export type ReplicaBase = { start: number; end: number; bytes: number; checksum: number };
/** The identity of the store whose replica a folder has. */
export type ReplicaIdentity = { format: 1; store: string };
