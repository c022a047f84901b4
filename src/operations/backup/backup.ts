import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { ServerConfig } from "../../settings/config.ts";
import { hasStore, lockDataFolder, toStorePath } from "../../settings/dataFolder.ts";
import {
  assertKeys,
  findKeySource,
  formatKeyLines,
  syncFolder,
  writeKeys,
} from "../../settings/encryptionKeys.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { elapsed } from "../../engine/clock/clock.ts";
import type { KeySource } from "../../engine/store/layout/keyRing.ts";
import { readKeyRing } from "../../engine/store/layout/keyRing.ts";
import { isReplica, readReplica } from "./replica/readReplica.ts";
import { StorageRefused } from "../../engine/store/layout/storageErrors.ts";
import { checkCopy, copyDatabase, syncFile } from "./copy.ts";

/** A backup or a restore is not possible. Nothing was changed. The text says what to do. */
export class BackupRefused extends Error {}

type StoreSettings = Pick<ServerConfig, "databaseUrl" | "data" | "keys" | "keysFile">;

/**
 * The result of a backup. `keysFile`: the file with the keys, if they were included. `missingKeys`: where the
 * keys are that the backup needs and does not have. Both are null if the store has no keys. `damage`: what is
 * damaged in the store and so in the backup, or null.
 */
export type BackupReport = {
  bytes: number;
  took: Millis;
  keysFile: string | null;
  missingKeys: string | null;
  damage: string | null;
};

const postgresAdvice =
  "a PostgreSQL database is backed up with its own tools; use pg_dump --format=custom --file <file> <url>";

/**
 * Copies the store of a data folder into a new file, which only this user can read. A server may be running.
 * Nothing has the name of the file before the copy is complete, checked and on the disk. With `withKeys`, the
 * keys are written to the same name with the ending `.keys`. A store with damaged rows is copied as well,
 * because the rest of it may be needed.
 */
export async function backupStore(
  settings: StoreSettings,
  filePath: string,
  { withKeys, report }: { withKeys: boolean; report?(line: string): void },
): Promise<BackupReport> {
  if (settings.databaseUrl !== "") throw new BackupRefused(postgresAdvice);
  const { data } = settings;
  if (!hasStore(data)) throw new BackupRefused(`${data}: no store found; name the data folder with --data`);
  const file = resolve(filePath);
  const keysFile = `${file}.keys`;
  for (const path of withKeys ? [file, keysFile] : [file])
    if (existsSync(path)) throw new BackupRefused(`${path}: already exists; choose another name`);
  const source = findKeySource(settings);
  const keyLines = source && hasKeys(source) ? readKeyLines(source) : null;
  const since = elapsed();
  const part = createPart(file);
  let damage: string | null;
  try {
    await copyDatabase(toStorePath(data), part, elapsed).catch((error: unknown) => {
      throw new BackupRefused(
        `${file}: cannot be written (${toText(error)}); free space, or choose another disk`,
      );
    });
    // The version of the store may have to restore it.
    damage = await checkCopy(part, {
      name: `the copy of ${toStorePath(data)}`,
      keepsVersion: true,
      checksContents: true,
      ...(report && { report }),
    });
    if (withKeys && keyLines) writeKeys(keysFile, keyLines);
    renameSync(part, file);
    syncFolder(dirname(file));
  } catch (error) {
    removeDatabase(part);
    throw error;
  }
  const isIncluded = withKeys && keyLines !== null;
  return {
    bytes: statSync(file).size,
    took: elapsed() - since,
    keysFile: isIncluded ? keysFile : null,
    missingKeys: keyLines === null || isIncluded ? null : nameOf(source),
    damage,
  };
}

const toText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
const hasKeys = (source: NonNullable<KeySource>): boolean => !("file" in source) || existsSync(source.file);
const nameOf = (source: KeySource): string => (source && "file" in source ? source.file : "WAYPOST_KEYS");

const readKeyLines = (source: NonNullable<KeySource>): string[] =>
  readKeyRing(source).map(({ version, key }) => `${version}:${key.toString("base64")}`);

/** Creates the file that is written before it gets its name. Only this user can read it. */
function createPart(file: string): string {
  const part = `${file}.part`;
  try {
    closeSync(openSync(part, "wx", 0o600));
  } catch (error) {
    const isThere = Reflect.get(error as object, "code") === "EEXIST";
    throw new BackupRefused(
      isThere
        ? `${part}: already exists; if no other backup is being written, remove it`
        : `${file}: cannot be written (${toText(error)}); choose a folder that exists and can be written`,
    );
  }
  return part;
}

/** Removes a database with the other files of SQLite. */
function removeDatabase(path: string): void {
  for (const ending of ["", "-wal", "-shm", "-journal"]) rmSync(`${path}${ending}`, { force: true });
}

/**
 * Puts a backup into a data folder without a store. Checks its pages, its version and its keys before
 * anything has its final name. Keys beside the backup (`.keys`) are restored with it. Without `force`, a
 * backup with damaged contents is refused.
 */
export async function restoreStore(
  settings: StoreSettings,
  filePath: string,
  { force = false, report }: { force?: boolean; report?(line: string): void } = {},
): Promise<{ bytes: number; took: Millis; endedAt: Millis | null }> {
  if (settings.databaseUrl !== "") throw new BackupRefused(postgresAdvice);
  const file = resolve(filePath);
  const isFolder = isReplica(file);
  if (!isFolder && !statSync(file, { throwIfNoEntry: false })?.isFile())
    throw new BackupRefused(
      `${file}: no such file; name a file that "waypost backup" has written, or a folder of --replicate`,
    );
  const { data } = settings;
  const target = toStorePath(data);
  const existing = [target, `${target}-wal`].find((path) => existsSync(path));
  if (existing !== undefined)
    throw new BackupRefused(`${existing}: already exists; choose an empty folder with --data`);
  const since = elapsed();
  const isNewFolder = !existsSync(data);
  const release = lockDataFolder(data);
  const part = `${target}.part`;
  let result;
  try {
    const endedAt = isFolder ? unpackInto(file, part) : copyInto(file, part);
    const { source, lines } = findRestoredKeys(settings, file);
    const damage = await checkCopy(part, {
      name: file,
      keys: source,
      checksContents: !force,
      ...(report && { report }),
      check: async (read) => {
        await assertKeys(read, source);
        // Fails if a key is not the one that encrypted the secrets.
        await read.accounts();
      },
    });
    if (damage !== null)
      throw new StorageRefused(
        `${file}: ${damage}; use another backup; --force restores it anyway, and the server then does not ` +
          "use rows that differ from their checksums",
      );
    syncFile(part);
    if (lines !== null) writeKeys(join(data, "keys"), lines);
    renameSync(part, target);
    syncFolder(data);
    result = { bytes: statSync(target).size, took: elapsed() - since, endedAt };
  } catch (error) {
    removeDatabase(part);
    release();
    if (isNewFolder) removeEmpty(data);
    throw error;
  }
  release();
  return result;
}

/** Writes the store of a replica to a file. Returns the time of its last change, or null. */
function unpackInto(folder: string, part: string): Millis | null {
  try {
    closeSync(openSync(part, "wx", 0o600));
    return readReplica(folder, part).endedAt;
  } catch (error) {
    if (error instanceof StorageRefused) throw error;
    throw new BackupRefused(`${folder}: cannot be restored to ${part} (${toText(error)})`);
  }
}

function copyInto(file: string, part: string): null {
  try {
    copyFileSync(file, part, constants.COPYFILE_FICLONE);
    return null;
  } catch (error) {
    throw new BackupRefused(
      `${part}: cannot be written (${toText(error)}); free space, or choose another folder`,
    );
  }
}

/** Returns the keys of a backup, and the lines to write into the data folder. Null: nothing to write. */
function findRestoredKeys(
  settings: StoreSettings,
  file: string,
): { source: KeySource; lines: string[] | null } {
  const beside = `${file}.keys`;
  const source = findKeySource(settings);
  const isSet = settings.keys !== "" || settings.keysFile !== "";
  if (isSet || !existsSync(beside)) return { source: source && hasKeys(source) ? source : null, lines: null };
  const lines = formatKeyLines(readFileSync(beside, "utf8"), beside);
  const own = join(settings.data, "keys");
  if (existsSync(own) && readKeyLines({ file: own }).join() !== lines.join())
    throw new BackupRefused(
      `${own}: contains different keys than ${beside}; move it away, or choose another folder`,
    );
  return { source: { file: beside }, lines: existsSync(own) ? null : lines };
}

/** Removes a folder that this process created, with its lock. */
function removeEmpty(folder: string): void {
  const lock = "waypost.lock";
  if (readdirSync(folder).some((name) => !name.startsWith(lock))) return;
  for (const name of readdirSync(folder)) rmSync(join(folder, name));
  rmdirSync(folder);
}
