import { DatabaseSync } from "node:sqlite";
import type { Stats } from "node:fs";
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { minute } from "../engine/core/values/time.ts";

/** Thrown if the data folder cannot be used. The text gives the reason and what to do. */
export class DataFolderRefused extends Error {}

/** Thrown if another server uses the folder. */
export class FolderTaken extends DataFolderRefused {}

/** Returns the path of the embedded store. */
export const toStorePath = (folder: string): string => join(folder, "waypost.db");

/** Reports whether a folder contains a store. */
export const hasStore = (folder: string): boolean => existsSync(toStorePath(folder));

/**
 * Mode bits of a folder that let its group, or every user of the machine, write to it. Windows does not
 * report them correctly.
 */
const [groupWriteBit, othersWriteBit] = process.platform === "win32" ? [0, 0] : [0o020, 0o002];

/**
 * Returns the folder that a server uses for this setting. If every user can write to the given folder, such
 * as `/tmp`, others could replace the files in it. The server then uses a subfolder, unless the given folder
 * already has a store.
 */
export function resolveDataFolder(folder: string): string {
  return allCanWrite(folder) && !hasStore(folder) ? join(folder, "waypost") : folder;
}

const allCanWrite = (folder: string): boolean => {
  const found = statIfPresent(folder);
  return found !== null && found.isDirectory() && (found.mode & othersWriteBit) !== 0;
};

/** Returns null if the path does not exist or cannot be read. */
function statIfPresent(path: string, stat: (path: string) => Stats = statSync): Stats | null {
  try {
    return stat(path);
  } catch {
    return null;
  }
}

/** Returns a warning if other users of the machine can change the folder, otherwise null. */
export function findFolderWarning(folder: string): string | null {
  const mode = statIfPresent(folder)?.mode ?? 0;
  if (mode & othersWriteBit)
    return (
      `${folder}: every user of this machine can replace its files; ` +
      "remove the write permission (chmod go-w)"
    );
  if (mode & groupWriteBit)
    return (
      `${folder}: its group can replace its files; ` +
      "remove the write permission if others are in the group (chmod g-w)"
    );
  return null;
}

/**
 * Throws if another user may have made the folder or the store in it. This is checked only where every user
 * can write: elsewhere the owner depends on how volumes are mounted.
 */
function assertOwnFolder(folder: string): void {
  const paths = [
    { path: folder, within: dirname(resolve(folder)) },
    { path: toStorePath(folder), within: folder },
  ];
  for (const { path, within: parent } of paths) {
    // The owner of a link is the user who chose its target.
    const owner = allCanWrite(parent) ? statIfPresent(path, lstatSync)?.uid : undefined;
    if (owner === undefined || owner === 0 || owner === process.getuid?.()) continue;
    throw new DataFolderRefused(
      `${path}: belongs to another user (${owner}), in a folder to which every user can write; ` +
        "choose another folder with --data",
    );
  }
}

const temporaryPrefix = "waypost-dev-";
/**
 * The minimum age of a folder that is removed as abandoned. A server may be about to lock a younger folder.
 */
const abandonedAfter = minute;

/**
 * Returns a new folder for a server that keeps no data after it ends. Also removes the folders of servers
 * that were killed.
 */
export function createTemporaryDataFolder(now: number): string {
  for (const name of readdirSync(tmpdir()).filter((entry) => entry.startsWith(temporaryPrefix)))
    removeAbandoned(join(tmpdir(), name), now);
  return mkdtempSync(join(tmpdir(), temporaryPrefix));
}

function removeAbandoned(folder: string, now: number): void {
  try {
    if (now - statSync(folder).mtimeMs < abandonedAfter) return;
    lockDataFolder(folder)();
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // The folder is in use, or belongs to another user.
  }
}

/**
 * Creates the folder if necessary, readable only by this user, and locks it for this process. The operating
 * system holds the lock and releases it when the process ends for any reason. Returns a function that
 * releases it.
 */
export function lockDataFolder(folder: string): () => void {
  // Files created from here on are readable only by this user, also in an existing folder: they contain
  // tokens and keys.
  process.umask(0o077);
  try {
    if (!existsSync(folder)) {
      makeFolder(resolve(folder));
      chmodSync(folder, 0o700);
    }
    if (!statSync(folder).isDirectory()) throw new Error("it is a file, not a folder");
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new DataFolderRefused(
      `${folder}: cannot be written (${toErrorText(error)}); ` +
        "choose another folder with --data, or change its permissions",
    );
  }
  assertOwnFolder(folder);
  return lockFolder(folder);
}

/**
 * Creates the folders of a path one by one. Node's recursive `mkdir` never returns in a folder such as /proc,
 * which reports that the new folder does not exist.
 */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder);
}

/**
 * Locks the folder with a separate file, so that tools can still open the database. If someone deletes the
 * lock file of a running server, another server can create and lock a new one. A new lock file is therefore
 * marked as checked only after a check that no other process has the database open.
 */
function lockFolder(folder: string): () => void {
  const file = new DatabaseSync(join(folder, "waypost.lock"));
  try {
    file.exec("pragma journal_mode = memory; pragma locking_mode = exclusive; begin exclusive");
    if (file.prepare("pragma user_version").get()?.user_version !== checkedVersion) {
      assertUnusedDatabase(folder);
      file.exec(`pragma user_version = ${checkedVersion}`);
    }
    // In this locking mode the lock remains after the commit.
    file.exec("commit");
  } catch (error) {
    file.close();
    if (error instanceof DataFolderRefused) throw error;
    if (isLocked(error)) {
      throw new FolderTaken(
        `${folder}: another waypost server is using it; stop that server, ` +
          "or choose another folder with --data",
      );
    }
    throw new DataFolderRefused(`${folder}: cannot be locked (${toErrorText(error)})`);
  }
  return () => file.close();
}

/** The mark of a lock file whose folder was checked for another server. */
const checkedVersion = 1;
/**
 * How long to wait for the lock of another process, in milliseconds. A tool that reads from the database
 * holds its lock for a shorter time.
 */
const busyTimeout = 2_000;

/**
 * Throws if another process has the database open. A server holds a shared lock on the SQLite file as long as
 * it is open.
 */
function assertUnusedDatabase(folder: string): void {
  if (!hasStore(folder)) return;
  let database: DatabaseSync | null = null;
  try {
    database = new DatabaseSync(toStorePath(folder));
    database.exec(
      `pragma busy_timeout = ${busyTimeout}; pragma locking_mode = exclusive; begin exclusive; rollback`,
    );
  } catch (error) {
    if (isLocked(error)) {
      throw new FolderTaken(
        `${folder}: its lock file is new, but another process, perhaps a waypost server, has ` +
          `${toStorePath(folder)} open; stop that process, or choose another folder with --data`,
      );
    }
    // Other errors of the file are reported when the store opens it.
  } finally {
    database?.close();
  }
}

const isLocked = (error: unknown): boolean => /locked|busy/.test(toErrorText(error));
const toErrorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
