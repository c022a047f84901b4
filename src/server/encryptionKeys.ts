import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Settings } from "./config.ts";
import { hasStore, storePath } from "./dataFolder.ts";
import type { KeySource } from "../store/sql/keyRing.ts";
import { newKeyLine, parseRing, readRing, withChecksum } from "../store/sql/keyRing.ts";
import type { SealedName, Sealing } from "../store/queries/storageReads.ts";
import { openSqlite } from "../store/sqlite/database.ts";
import { sqlShelf } from "../store/sql/reads.ts";
import type { Store } from "../store/store.ts";
import { StorageRefused } from "../store/store.ts";

type Where = Pick<Settings, "databaseUrl" | "data" | "keys" | "keysFile">;

/** The keys can neither be used nor changed so; the text says what to do. */
export class KeysRefused extends Error {}

const fileIn = (folder: string): string => join(folder, "keys");

/** Where the keys of a store are. Null: it is in PostgreSQL, and nothing says where. */
export function keySourceOf({ databaseUrl, data, keys, keysFile }: Where): KeySource {
  if (keys !== "" && keysFile !== "") throw new KeysRefused("WAYPOST_KEYS and WAYPOST_KEYS_FILE: both are set; take one of them away");
  if (keys !== "") return { ring: keys };
  if (keysFile !== "") return { file: keysFile };
  return databaseUrl === "" ? { file: fileIn(data) } : null;
}

/**
 * The same for whoever is about to open the store. The first start of a server in a folder makes its keys; where secrets
 * are sealed already, keys that are not there are lost, and no others are made. Throws `StorageRefused`.
 */
export async function readyKeys(where: Where): Promise<KeySource> {
  const source = keySourceOf(where);
  if (source === null) return null;
  const isOurs = "file" in source && where.keysFile === "";
  if (isOurs && !existsSync(source.file) && !(hasStore(where.data) && (await isAnySealed(where.data)))) {
    // What a first start that was killed has left. Nobody else can be at it: there are no keys yet that could be changed.
    rmSync(nextOf(source.file), { force: true });
    writeKeys(source.file, [newKeyLine(1)]);
  }
  readRing(source);
  return source;
}

async function isAnySealed(folder: string): Promise<boolean> {
  const database = openSqlite(storePath(folder), { readOnly: true });
  try {
    const [table] = await database.connection.query("select 1 as one from sqlite_schema where name = 'accounts'", []);
    if (!table) return false;
    const shelf = sqlShelf(database.connection);
    for await (const { seal } of allOf((range) => shelf.sealing("accounts", range))) if (typeof seal === "number") return true;
    return false;
  } finally {
    database.close();
  }
}

const heading = `# The keys that the secrets of this store are sealed with; the first one seals. Keep a copy, apart from those of the data:
# without them no account of the store can be used. "waypost keys rotate" adds a key.
`;

/** Where a file of keys is written before it takes the place of the old one. */
const nextOf = (file: string): string => `${file}.new`;

/** Writes a file of keys as a whole: it is the old one or the new one, whatever happens. Throws `KeysRefused`. */
export function writeKeys(file: string, lines: readonly string[]): void {
  const next = nextOf(file);
  let written: number;
  try {
    written = openSync(next, "wx", 0o600);
  } catch (error) {
    const why = error instanceof Error && "code" in error && error.code === "EEXIST" ? "it is there already" : String(error);
    throw new KeysRefused(`${next}: cannot be written (${why}); when no other command changes the keys now, remove it, and try again`);
  }
  try {
    writeSync(written, withChecksum(`${heading}${lines.join("\n")}\n`));
    fsyncSync(written);
    closeSync(written);
    renameSync(next, file);
  } catch (error) {
    rmSync(next, { force: true });
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
const portion = 200;
const sealedNames: readonly SealedName[] = ["accounts", "sources"];

type Ask = (range: { after: readonly [string, string]; limit: number }) => Promise<readonly Sealing[]>;

async function* allOf(ask: Ask): AsyncGenerator<Sealing> {
  for (let after: readonly [string, string] = ["", ""]; ;) {
    const found = await ask({ after, limit: portion });
    yield* found;
    const last = found.at(-1);
    if (!last || found.length < portion) return;
    after = [last.account, last.id];
  }
}

/** How many rows are sealed with each key, and how many are in clear. */
export async function keyUse(read: Store["read"]): Promise<Map<number | "clear", number>> {
  const uses = new Map<number | "clear", number>();
  for (const table of sealedNames)
    for await (const { seal } of allOf((range) => read.sealing(table, range)))
      if (seal !== "nothing") uses.set(seal, (uses.get(seal) ?? 0) + 1);
  return uses;
}

/** Throws `StorageRefused` where any secret is sealed with a key that is not there. */
export async function checkKeys(read: Store["read"], source: KeySource): Promise<void> {
  const versions = new Set<number | "clear">(source === null ? [] : readRing(source).map(({ version }) => version));
  for (const [version, rows] of await keyUse(read)) {
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
export async function sealAgain(store: Store, source: NonNullable<KeySource>): Promise<number> {
  const [{ version: current }] = readRing(source);
  let sealed = 0;
  const seal = async (table: SealedName, rows: readonly Sealing[]): Promise<void> => {
    if (rows.length === 0) return;
    const ids = table === "accounts" ? rows.map(({ account }) => account) : [];
    const keys = table === "sources" ? rows.map(({ account, id }) => [account, id] as const) : [];
    sealed += (await store.execute("rewrite", { accounts: ids, sources: keys })).rewritten;
  };
  for (const table of sealedNames) {
    let stale: Sealing[] = [];
    for await (const row of allOf((range) => store.read.sealing(table, range))) {
      if (row.seal !== current && row.seal !== "nothing") stale.push(row);
      if (stale.length < portion) continue;
      await seal(table, stale);
      stale = [];
    }
    await seal(table, stale);
  }
  return sealed;
}

/** The lines of a file of keys, as they are to be written again. */
export const linesOf = (text: string, where: string): string[] =>
  parseRing(text, where).map(({ version, key }) => `${version}:${key.toString("base64")}`);
