import { DatabaseSync } from "node:sqlite";
import { accessSync, chmodSync, constants, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

/** The data folder cannot be used; the text says why, and what to do. */
export class DataFolderRefused extends Error {}

/** A server has it. */
export class FolderTaken extends DataFolderRefused {}

/** The file of the embedded store. */
export const storePath = (folder: string): string => join(folder, "waypost.db");

/** Whether there is a store in the folder. */
export const hasStore = (folder: string): boolean => existsSync(storePath(folder));

const temporaryPrefix = "waypost-dev-";
/** A folder that was made so lately may be about to be taken by its server. */
const justMade = 60_000;

/** A new folder for a server that keeps nothing. Those of servers that were killed, and could not clean up, go now. */
export function temporaryDataFolder(now: number): string {
  for (const name of readdirSync(tmpdir()).filter((entry) => entry.startsWith(temporaryPrefix))) removeAbandoned(join(tmpdir(), name), now);
  return mkdtempSync(join(tmpdir(), temporaryPrefix));
}

function removeAbandoned(folder: string, now: number): void {
  try {
    if (now - statSync(folder).mtimeMs < justMade) return;
    takeDataFolder(folder)();
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // Somebody is using it, or it is not ours.
  }
}

/**
 * Makes the folder if need be, readable by nobody else, and takes it for this process. The lock is the operating
 * system's, so it is gone the moment the process is, however that ends. Returns what gives it back.
 */
export function takeDataFolder(folder: string): () => void {
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
      `${folder}: cannot be written (${reasonOf(error)}); choose another folder with --data, or change its rights`,
    );
  }
  return lock(folder);
}

/** One after the other: Node tries without end to make one within a folder that says it is not there (as /proc does). */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder));
  mkdirSync(folder);
}

function lock(folder: string): () => void {
  const file = new DatabaseSync(join(folder, "waypost.lock"));
  try {
    file.exec("pragma locking_mode = exclusive; begin exclusive");
  } catch (error) {
    file.close();
    if (/locked|busy/.test(reasonOf(error))) {
      throw new FolderTaken(`${folder}: another waypost server is using it; stop that one, or choose another folder with --data`);
    }
    throw new DataFolderRefused(`${folder}: cannot be locked (${reasonOf(error)})`);
  }
  return () => file.close();
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
