import { DatabaseSync } from "node:sqlite";
import type { Stats } from "node:fs";
import { accessSync, chmodSync, constants, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { minute } from "../core/values/time.ts";

/** The data folder cannot be used; the text says why, and what to do. */
export class DataFolderRefused extends Error {}

/** A server has it. */
export class FolderTaken extends DataFolderRefused {}

/** The file of the embedded store. */
export const toStorePath = (folder: string): string => join(folder, "waypost.db");

/** Whether there is a store in the folder. */
export const hasStore = (folder: string): boolean => existsSync(toStorePath(folder));

/** Bits of the mode of a folder: its group, or every user of the machine, can write to it. Windows reports neither truthfully. */
const [groupWriteBit, othersWriteBit] = process.platform === "win32" ? [0, 0] : [0o020, 0o002];

/**
 * Returns the folder that a server uses if it is asked to use this one. In a folder to which every user can write, such as `/tmp`, that is
 * its own subfolder: others could replace the files. A store that is there already is used where it is.
 */
export function resolveDataFolder(folder: string): string {
  return allCanWrite(folder) && !hasStore(folder) ? join(folder, "waypost") : folder;
}

const allCanWrite = (folder: string): boolean => {
  const found = statIfPresent(folder);
  return found !== null && found.isDirectory() && (found.mode & othersWriteBit) !== 0;
};

/** Null if there is nothing, or if it cannot be looked at. */
function statIfPresent(path: string, stat: (path: string) => Stats = statSync): Stats | null {
  try {
    return stat(path);
  } catch {
    return null;
  }
}

/** Returns why the folder is not safe from other users of the machine, or null. */
export function findFolderWarning(folder: string): string | null {
  const mode = statIfPresent(folder)?.mode ?? 0;
  if (mode & othersWriteBit)
    return `${folder}: every user of this machine can replace its files; take the right to write away (chmod go-w)`;
  if (mode & groupWriteBit)
    return `${folder}: its group can replace its files; take the right to write away if others are in it (chmod g-w)`;
  return null;
}

/**
 * Throws if another user may have made the folder or the store in it. That is checked only in places where every user can write; elsewhere
 * the owner of a folder is a question of how volumes are mounted.
 */
function requireOwnFolder(folder: string): void {
  const paths = [
    { path: folder, within: dirname(resolve(folder)) },
    { path: toStorePath(folder), within: folder },
  ];
  for (const { path, within: parent } of paths) {
    // The owner of a link is the user who made it lead there.
    const owner = allCanWrite(parent) ? statIfPresent(path, lstatSync)?.uid : undefined;
    if (owner === undefined || owner === 0 || owner === process.getuid?.()) continue;
    throw new DataFolderRefused(
      `${path}: belongs to another user (${owner}), in a folder to which every user can write; choose another folder with --data`,
    );
  }
}

const temporaryPrefix = "waypost-dev-";
/** A folder that was made so lately may be about to be taken by its server. */
const abandonedAfter = minute;

/** A new folder for a server that keeps nothing. Those of servers that were killed, and could not clean up, go now. */
export function createTemporaryDataFolder(now: number): string {
  for (const name of readdirSync(tmpdir()).filter((entry) => entry.startsWith(temporaryPrefix))) removeAbandoned(join(tmpdir(), name), now);
  return mkdtempSync(join(tmpdir(), temporaryPrefix));
}

function removeAbandoned(folder: string, now: number): void {
  try {
    if (now - statSync(folder).mtimeMs < abandonedAfter) return;
    lockDataFolder(folder)();
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // Somebody is using it, or it is not ours.
  }
}

/**
 * Makes the folder if need be, readable by nobody else, and takes it for this process. The lock is the operating
 * system's, so it is gone the moment the process is, however that ends. Returns what gives it back.
 */
export function lockDataFolder(folder: string): () => void {
  // Whatever is made from here on is for this user alone, also in a folder that was there before: it holds tokens and keys.
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
      `${folder}: cannot be written (${toErrorText(error)}); choose another folder with --data, or change its rights`,
    );
  }
  requireOwnFolder(folder);
  return lockFolder(folder);
}

/** One after the other: Node tries without end to make one within a folder that says it is not there (as /proc does). */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder);
}

/**
 * Locks the folder by a separate file, since the database stays open to tools. A lock file that was removed under a server says nothing,
 * so a lock file that is new is marked only after nobody else had the database open.
 */
function lockFolder(folder: string): () => void {
  const file = new DatabaseSync(join(folder, "waypost.lock"));
  try {
    file.exec("pragma journal_mode = memory; pragma locking_mode = exclusive; begin exclusive");
    if (file.prepare("pragma user_version").get()?.user_version !== checkedVersion) {
      requireUnusedDatabase(folder);
      file.exec(`pragma user_version = ${checkedVersion}`);
    }
    // In this mode the lock stays.
    file.exec("commit");
  } catch (error) {
    file.close();
    if (error instanceof DataFolderRefused) throw error;
    if (isLocked(error)) {
      throw new FolderTaken(`${folder}: another waypost server is using it; stop that one, or choose another folder with --data`);
    }
    throw new DataFolderRefused(`${folder}: cannot be locked (${toErrorText(error)})`);
  }
  return () => file.close();
}

/** The mark of a lock file whose folder had no other server. */
const checkedVersion = 1;
/** Tools that read a list are done sooner. */
const busyTimeout = 2_000;

/** Throws if another process has the database open. SQLite keeps a shared lock on the file itself for as long as a server has it open. */
function requireUnusedDatabase(folder: string): void {
  if (!hasStore(folder)) return;
  let database: DatabaseSync | null = null;
  try {
    database = new DatabaseSync(toStorePath(folder));
    database.exec(`pragma busy_timeout = ${busyTimeout}; pragma locking_mode = exclusive; begin exclusive; rollback`);
  } catch (error) {
    if (isLocked(error)) {
      throw new FolderTaken(
        `${folder}: its lock file is new, and another process has ${toStorePath(folder)} open, perhaps a waypost server that is using it; ` +
          `stop that process, or choose another folder with --data`,
      );
    }
    // Anything else that is wrong with the file is reported when the store opens it.
  } finally {
    database?.close();
  }
}

const isLocked = (error: unknown): boolean => /locked|busy/.test(toErrorText(error));
const toErrorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
