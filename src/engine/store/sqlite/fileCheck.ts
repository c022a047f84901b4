import { closeSync, openSync, readSync, statSync } from "node:fs";
import { StorageRefused } from "../layout/storageErrors.ts";
import type { LogDamage, LogCheck } from "./writeAheadLog.ts";
import { checkLog } from "./writeAheadLog.ts";

/**
 * A damage that was found. With `isFile`, SQLite found it in the structure of the file; otherwise one row is
 * damaged.
 */
export type Damage = { isFile: boolean; text: string };
/** Receives each damage that is found. */
export type OnDamage = (damage: Damage) => void;

/** Returns the advice for a damaged database file. */
export const formatRemedy = (path: string): string =>
  `restore it from a backup; or, with the server stopped: sqlite3 ${path} reindex, ` +
  `if "pragma integrity_check" finds damage in indexes alone, ` +
  `else sqlite3 ${path} .recover, which saves what can be read`;

/** Returns the report of a database file that contradicts itself. */
export const formatDifference = (path: string, text: string): string =>
  `${path}: damaged: ${text}; what it sends and shows may be incomplete; ${formatRemedy(path)}`;

/** SQLite never uses the page at this offset, because it locks bytes of the page. */
const lockByteOffset = 0x40000000;

/**
 * Checks the files of a database before SQLite opens them. SQLite does not report an altered log. It notices
 * that the end of the file is missing only when it reads there. Throws `StorageRefused` if the file is
 * shorter than it was.
 */
export function checkFiles(path: string): Pick<LogCheck, "cut"> {
  const { pages, inLog, cut } = checkLog(path);
  if (cut !== null) assertTornLog(path, cut);
  const file = readHeader(path);
  if (!file) return { cut };
  const presentPages = Math.floor(file.bytes / file.pageBytes);
  const lockPage = Math.floor(lockByteOffset / file.pageBytes) + 1;
  const expectedPages = pages ?? file.pages;
  for (let page = presentPages + 1; page <= expectedPages; page++) {
    if (inLog.has(page) || page === lockPage) continue;
    throw new StorageRefused(
      `${path}: damaged: the file has ${presentPages} pages, ` +
        `and page ${page} of ${expectedPages} is missing; ${formatRemedy(path)}`,
    );
  }
  return { cut };
}

/**
 * The maximum number of commits in a log that have not been synced: those of two batches and of a disk probe.
 */
const maxUnsyncedCommits = 3;

/**
 * Throws `StorageRefused` if the log was altered. After a power failure, the last commits may be torn; they
 * were never acknowledged. If more than 3 commits follow the damaged place, or if the database file already
 * contains pages of them, the log was altered and not torn. If the database file contains all of the log,
 * nothing is lost.
 */
function assertTornLog(path: string, { frame, frames, commits, checkpointed }: LogDamage): void {
  if (checkpointed === "all" || (checkpointed === "none" && commits <= maxUnsyncedCommits)) return;
  const finding =
    `${path}-wal: damaged at frame ${frame}; ` +
    `${commits} acknowledged changes follow it, in ${frames} frames; no file was changed`;
  const lastBytes =
    `copy both files, cut the log there (truncate -s <bytes> ${path}-wal, see docs/security.md), ` +
    'and check with "pragma integrity_check"';
  throw new StorageRefused(
    `${finding}; restore both files from a backup; or, to continue without these changes: ${lastBytes}`,
  );
}

/**
 * Returns the length of a database file, and the length that its header claims. Returns null if the file does
 * not exist, is new, or is not a database.
 */
function readHeader(path: string): { bytes: number; pageBytes: number; pages: number } | null {
  const bytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (bytes < 100) return null;
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(100);
    readSync(file, head, 0, head.length, 0);
    if (!head.toString("latin1").startsWith("SQLite format 3\0")) return null;
    const size = head.readUInt16BE(16);
    return size === 0 ? null : { bytes, pageBytes: size === 1 ? 65_536 : size, pages: head.readUInt32BE(28) };
  } finally {
    closeSync(file);
  }
}
