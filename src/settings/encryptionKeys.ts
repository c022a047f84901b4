import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ServerConfig } from "./config.ts";
import { hasStore, toStorePath } from "./dataFolder.ts";
import type { KeySource } from "../engine/store/layout/keyRing.ts";
import { makeKeyLine, parseKeyRing, readKeyRing, withChecksum } from "../engine/store/layout/keyRing.ts";
import type { EncryptedTableName, EncryptionStatus } from "../engine/store/layout/storageReads.ts";
import { openSqlite } from "../engine/store/sqlite/database.ts";
import { createSqlReads } from "../engine/store/sql/reads.ts";
import type { Store } from "../engine/store/store.ts";
import { StorageRefused } from "../engine/store/layout/storageErrors.ts";

type KeySettings = Pick<ServerConfig, "databaseUrl" | "data" | "keys" | "keysFile">;

/** Thrown if the keys cannot be used, or cannot be changed as requested. The text says what to do. */
export class KeysRefused extends Error {}

const toKeysFile = (folder: string): string => join(folder, "keys");

/** Returns where the keys of a store are. Returns null if the store is in PostgreSQL and no keys are set. */
export function findKeySource({ databaseUrl, data, keys, keysFile }: KeySettings): KeySource {
  if (keys !== "" && keysFile !== "")
    throw new KeysRefused("WAYPOST_KEYS and WAYPOST_KEYS_FILE: both are set; remove one");
  if (keys !== "") return { keyRing: keys };
  if (keysFile !== "") return { file: keysFile };
  return databaseUrl === "" ? { file: toKeysFile(data) } : null;
}

/**
 * Returns where the keys are, before a store is opened. The first start of a server in a folder creates its
 * keys. If the store already has encrypted secrets and the keys file is missing, no new keys are created.
 * Throws `StorageRefused`.
 */
export async function prepareKeys(settings: KeySettings): Promise<KeySource> {
  const source = findKeySource(settings);
  if (source === null) return null;
  const isInDataFolder = "file" in source && settings.keysFile === "";
  if (
    isInDataFolder &&
    !existsSync(source.file) &&
    !(hasStore(settings.data) && (await hasEncryptedRows(settings.data)))
  ) {
    // A first start that was killed leaves this file. No other command uses it, because there are no keys
    // yet.
    rmSync(toTemporaryFile(source.file), { force: true });
    writeKeys(source.file, [makeKeyLine(1)]);
  }
  readKeyRing(source);
  return source;
}

async function hasEncryptedRows(folder: string): Promise<boolean> {
  const database = openSqlite(toStorePath(folder), { readOnly: true });
  try {
    const [table] = await database.connection.query(
      "select 1 as one from sqlite_schema where name = 'accounts'",
      [],
    );
    if (!table) return false;
    const storageReads = createSqlReads(database.connection);
    for await (const { keyVersion } of readAllStatuses((range) =>
      storageReads.encryptionStatus("accounts", range),
    ))
      if (typeof keyVersion === "number") return true;
    return false;
  } finally {
    database.close();
  }
}

const keysFileHeading =
  "# The keys that encrypt the secrets of this store; the first one encrypts. Keep a copy, " +
  "apart from the data:\n" +
  '# without the keys no account of the store can be used. "waypost keys rotate" adds a key.\n';

/** Returns where a keys file is written before it replaces the old one. */
const toTemporaryFile = (file: string): string => `${file}.new`;

/**
 * Replaces a keys file as a whole: after a crash it is either the old or the new one. Throws `KeysRefused`.
 */
export function writeKeys(file: string, lines: readonly string[]): void {
  const temporary = toTemporaryFile(file);
  let descriptor: number;
  try {
    descriptor = openSync(temporary, "wx", 0o600);
  } catch (error) {
    const reason =
      error instanceof Error && "code" in error && error.code === "EEXIST"
        ? "it already exists"
        : String(error);
    throw new KeysRefused(
      `${temporary}: cannot be written (${reason}); ` +
        "if no other command is changing the keys, remove the file and try again",
    );
  }
  try {
    writeSync(descriptor, withChecksum(`${keysFileHeading}${lines.join("\n")}\n`));
    fsyncSync(descriptor);
    closeSync(descriptor);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
  syncFolder(dirname(file));
}

/** Makes a new name in a folder durable. Windows cannot open folders, and does not need this. */
export function syncFolder(folder: string): void {
  if (process.platform === "win32") return;
  const opened = openSync(folder, "r");
  fsyncSync(opened);
  closeSync(opened);
}

/** How many rows are read, or encrypted again, at once. */
const rowsPerRead = 200;
const encryptedTableNames: readonly EncryptedTableName[] = ["accounts", "sources", "serverSettings"];

type ReadStatus = (range: {
  after: readonly [string, string];
  limit: number;
}) => Promise<readonly EncryptionStatus[]>;

async function* readAllStatuses(readStatuses: ReadStatus): AsyncGenerator<EncryptionStatus> {
  for (let after: readonly [string, string] = ["", ""]; ;) {
    const found = await readStatuses({ after, limit: rowsPerRead });
    yield* found;
    const last = found.at(-1);
    if (!last || found.length < rowsPerRead) return;
    after = [last.account, last.id];
  }
}

/** Counts the rows with secrets by the key that encrypts them, and those with unencrypted secrets. */
export async function countKeyUse(read: Store["read"]): Promise<Map<number | "clear", number>> {
  const uses = new Map<number | "clear", number>();
  for (const table of encryptedTableNames)
    for await (const { keyVersion } of readAllStatuses((range) => read.listEncryptionStatus(table, range)))
      if (keyVersion !== "nothing") uses.set(keyVersion, (uses.get(keyVersion) ?? 0) + 1);
  return uses;
}

/** Throws `StorageRefused` if a secret is encrypted with a missing key. */
export async function assertKeys(read: Store["read"], source: KeySource): Promise<void> {
  const versions = new Set<number | "clear">(
    source === null ? [] : readKeyRing(source).map(({ version }) => version),
  );
  for (const [version, rows] of await countKeyUse(read)) {
    if (version === "clear" || versions.has(version)) continue;
    const where =
      source === null
        ? "WAYPOST_KEYS and WAYPOST_KEYS_FILE are not set"
        : "file" in source
          ? source.file
          : "WAYPOST_KEYS";
    throw new StorageRefused(
      `keys: ${rows} rows of this store are encrypted with key ${version}, which is missing (${where}); ` +
        "restore it from a copy",
    );
  }
}

/**
 * Encrypts, in batches, all secrets that are not yet encrypted with the first key. Returns the number of rows
 * that it encrypted. If it is interrupted, secrets encrypted with another key stay readable, and the next run
 * continues.
 */
export async function reencrypt(store: Store, source: NonNullable<KeySource>): Promise<number> {
  const [{ version: current }] = readKeyRing(source);
  let reencrypted = 0;
  const reencryptRows = async (
    table: EncryptedTableName,
    rows: readonly EncryptionStatus[],
  ): Promise<void> => {
    if (rows.length === 0) return;
    const ids = table === "accounts" ? rows.map(({ account }) => account) : [];
    const keys = table === "sources" ? rows.map(({ account, id }) => [account, id] as const) : [];
    const settings = table === "serverSettings" ? rows.map(({ account }) => account) : [];
    reencrypted += (await store.execute("rewrite", { accounts: ids, sources: keys, settings })).rewritten;
  };
  for (const table of encryptedTableNames) {
    let stale: EncryptionStatus[] = [];
    for await (const row of readAllStatuses((range) => store.read.listEncryptionStatus(table, range))) {
      if (row.keyVersion !== current && row.keyVersion !== "nothing") stale.push(row);
      if (stale.length < rowsPerRead) continue;
      await reencryptRows(table, stale);
      stale = [];
    }
    await reencryptRows(table, stale);
  }
  return reencrypted;
}

/** Returns the keys in the text of a keys file, as lines that can be written to a keys file again. */
export const formatKeyLines = (text: string, where: string): string[] =>
  parseKeyRing(text, where).map(({ version, key }) => `${version}:${key.toString("base64")}`);
