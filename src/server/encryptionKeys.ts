import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ServerConfig } from "./config.ts";
import { hasStore, toStorePath } from "./dataFolder.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { makeKeyLine, parseKeyRing, readKeyRing, withChecksum } from "../store/sql/keyRing.ts";
import type { EncryptedTableName, EncryptionStatus } from "../store/queries/storageReads.ts";
import { openSqlite } from "../store/sqlite/database.ts";
import { createSqlReads } from "../store/sql/reads.ts";
import type { Store } from "../store/store.ts";
import { StorageRefused } from "../store/store.ts";

type KeySettings = Pick<ServerConfig, "databaseUrl" | "data" | "keys" | "keysFile">;

/** The keys can neither be used nor changed so; the text says what to do. */
export class KeysRefused extends Error {}

const toKeysFile = (folder: string): string => join(folder, "keys");

/** Where the keys of a store are. Null: it is in PostgreSQL, and nothing says where. */
export function findKeySource({ databaseUrl, data, keys, keysFile }: KeySettings): KeySource {
  if (keys !== "" && keysFile !== "") throw new KeysRefused("WAYPOST_KEYS and WAYPOST_KEYS_FILE: both are set; take one of them away");
  if (keys !== "") return { keyRing: keys };
  if (keysFile !== "") return { file: keysFile };
  return databaseUrl === "" ? { file: toKeysFile(data) } : null;
}

/**
 * The same for whoever is about to open the store. The first start of a server in a folder makes its keys; where secrets
 * are sealed already, keys that are not there are lost, and no others are made. Throws `StorageRefused`.
 */
export async function prepareKeys(settings: KeySettings): Promise<KeySource> {
  const source = findKeySource(settings);
  if (source === null) return null;
  const isInDataFolder = "file" in source && settings.keysFile === "";
  if (isInDataFolder && !existsSync(source.file) && !(hasStore(settings.data) && (await hasEncryptedRows(settings.data)))) {
    // What a first start that was killed has left. Nobody else can be at it: there are no keys yet that could be changed.
    rmSync(toTemporaryFile(source.file), { force: true });
    writeKeys(source.file, [makeKeyLine(1)]);
  }
  readKeyRing(source);
  return source;
}

async function hasEncryptedRows(folder: string): Promise<boolean> {
  const database = openSqlite(toStorePath(folder), { readOnly: true });
  try {
    const [table] = await database.connection.query("select 1 as one from sqlite_schema where name = 'accounts'", []);
    if (!table) return false;
    const storageReads = createSqlReads(database.connection);
    for await (const { keyVersion } of readAllStatuses((range) => storageReads.encryptionStatus("accounts", range)))
      if (typeof keyVersion === "number") return true;
    return false;
  } finally {
    database.close();
  }
}

const keysFileHeading = `# The keys that the secrets of this store are sealed with; the first one seals. Keep a copy, apart from those of the data:
# without them no account of the store can be used. "waypost keys rotate" adds a key.
`;

/** Where a file of keys is written before it takes the place of the old one. */
const toTemporaryFile = (file: string): string => `${file}.new`;

/** Writes a file of keys as a whole: it is the old one or the new one, whatever happens. Throws `KeysRefused`. */
export function writeKeys(file: string, lines: readonly string[]): void {
  const temporary = toTemporaryFile(file);
  let descriptor: number;
  try {
    descriptor = openSync(temporary, "wx", 0o600);
  } catch (error) {
    const reason = error instanceof Error && "code" in error && error.code === "EEXIST" ? "it is there already" : String(error);
    throw new KeysRefused(
      `${temporary}: cannot be written (${reason}); when no other command changes the keys now, remove it, and try again`,
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

/** Not every system lets a folder be opened; those that do not need it keep names by themselves. */
function syncFolder(folder: string): void {
  if (process.platform === "win32") return;
  const opened = openSync(folder, "r");
  fsyncSync(opened);
  closeSync(opened);
}

/** Looked at, and sealed again, in one go. */
const rowsPerRead = 200;
const encryptedTableNames: readonly EncryptedTableName[] = ["accounts", "sources"];

type ReadStatus = (range: { after: readonly [string, string]; limit: number }) => Promise<readonly EncryptionStatus[]>;

async function* readAllStatuses(readStatuses: ReadStatus): AsyncGenerator<EncryptionStatus> {
  for (let after: readonly [string, string] = ["", ""]; ;) {
    const found = await readStatuses({ after, limit: rowsPerRead });
    yield* found;
    const last = found.at(-1);
    if (!last || found.length < rowsPerRead) return;
    after = [last.account, last.id];
  }
}

/** How many rows are sealed with each key, and how many are in clear. */
export async function countKeyUse(read: Store["read"]): Promise<Map<number | "clear", number>> {
  const uses = new Map<number | "clear", number>();
  for (const table of encryptedTableNames)
    for await (const { keyVersion } of readAllStatuses((range) => read.listEncryptionStatus(table, range)))
      if (keyVersion !== "nothing") uses.set(keyVersion, (uses.get(keyVersion) ?? 0) + 1);
  return uses;
}

/** Throws `StorageRefused` where any secret is sealed with a key that is not there. */
export async function checkKeys(read: Store["read"], source: KeySource): Promise<void> {
  const versions = new Set<number | "clear">(source === null ? [] : readKeyRing(source).map(({ version }) => version));
  for (const [version, rows] of await countKeyUse(read)) {
    if (version === "clear" || versions.has(version)) continue;
    const where = source === null ? "WAYPOST_KEYS and WAYPOST_KEYS_FILE are not set" : "file" in source ? source.file : "WAYPOST_KEYS";
    throw new StorageRefused(
      `keys: ${rows} rows of this store are sealed with key ${version}, which is not there (${where}); give it back from a copy`,
    );
  }
}

/**
 * Seals with the first key whatever is not sealed with it, a portion at a time. Answers how many rows that were. It can be
 * broken off: what is sealed with another key stays readable, and is found the next time.
 */
export async function reencrypt(store: Store, source: NonNullable<KeySource>): Promise<number> {
  const [{ version: current }] = readKeyRing(source);
  let reencrypted = 0;
  const reencryptRows = async (table: EncryptedTableName, rows: readonly EncryptionStatus[]): Promise<void> => {
    if (rows.length === 0) return;
    const ids = table === "accounts" ? rows.map(({ account }) => account) : [];
    const keys = table === "sources" ? rows.map(({ account, id }) => [account, id] as const) : [];
    reencrypted += (await store.execute("rewrite", { accounts: ids, sources: keys })).rewritten;
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

/** The lines of a file of keys, as they are to be written again. */
export const formatKeyLines = (text: string, where: string): string[] =>
  parseKeyRing(text, where).map(({ version, key }) => `${version}:${key.toString("base64")}`);
