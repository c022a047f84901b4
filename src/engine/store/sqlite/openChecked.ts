import { rmSync } from "node:fs";
import type { OnDamage } from "./fileCheck.ts";
import { checkFiles, formatDifference, formatRemedy } from "./fileCheck.ts";
import { findDifferences } from "./contentCheck.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import type { SqliteDatabase, SqliteOptions } from "./database.ts";
import { openSqlite } from "./database.ts";
import { listColumns } from "../sql/statements.ts";
import { tables } from "../catalog/tables.ts";
import { StorageRefused } from "../layout/storageErrors.ts";
import type { OnMoved } from "../sql/schema.ts";
import type { LogDamage } from "./writeAheadLog.ts";
import { keepDamagedLog } from "./writeAheadLog.ts";

/**
 * Checks the files of a store, opens its database, and creates its tables if there are none. Throws
 * `StorageRefused`. `onMoved` is called for a store from which everything was moved, see `createTables`.
 */
export async function openChecked(
  path: string,
  options: SqliteOptions,
  onMoved?: OnMoved,
): Promise<SqliteDatabase> {
  const { cut } = checkFiles(path);
  if (cut) setAsideDamagedLog(path, cut, options.onDamage ?? (() => undefined));
  const database = openSqlite(path, options);
  try {
    // The log is emptied. Otherwise new commits would overwrite only the first of the frames that SQLite does
    // not read, and the next start would report the remaining frames as altered.
    if (cut) await database.connection.query("pragma wal_checkpoint(truncate)", []);
    await database.createTables({ onMoved });
    await checkTables(database, path);
    await assertTables(database, path);
    if (path !== ":memory:") await checkContents(path, options);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/**
 * Copies a log that SQLite will not read to its end. If the database file contains all of the log, removes
 * the log. Otherwise SQLite reads the log up to the damage.
 */
function setAsideDamagedLog(
  path: string,
  { frame, frames, checkpointed }: LogDamage,
  onDamage: OnDamage,
): void {
  const copy = `a copy of the log is kept as ${keepDamagedLog(path)}`;
  if (checkpointed === "all") {
    rmSync(`${path}-wal`);
    rmSync(`${path}-shm`, { force: true });
    return onDamage({
      isFile: false,
      text: `${path}-wal: damaged at frame ${frame}; all of it is in ${path}, so nothing is lost; ${copy}`,
    });
  }
  const lost = `the ${frames} frames from there on are not read`;
  onDamage({
    isFile: false,
    text:
      `${path}-wal: damaged at frame ${frame}; ${lost}; if the cause is a power failure, they were never ` +
      `acknowledged; otherwise compare the last published messages with the stored ones; ${copy}`,
  });
}

/** Reports what contradicts itself in a store. A page that cannot be read is reported by the connection. */
async function checkContents(path: string, { keys = null, onDamage }: SqliteOptions): Promise<void> {
  if (!onDamage) return;
  const { connection, close } = openSqlite(path, { readOnly: true, keys, onDamage });
  try {
    for (const { isFile, text } of await findDifferences(connection))
      onDamage({ isFile, text: formatDifference(path, text) });
  } catch (error) {
    if (!(error instanceof StorageRefused)) throw error;
  } finally {
    close();
  }
}

/** Throws `StorageRefused` if the tables and indexes of a store are not those of this version. */
async function assertTables({ connection }: SqliteDatabase, path: string): Promise<void> {
  const altered = await findAlteredTable(connection);
  if (altered !== null) throw new StorageRefused(`${path}: damaged: ${altered}; ${formatRemedy(path)}`);
}

/**
 * Returns which table or index of a store is not that of this version, or null. A newer version may have
 * added columns.
 */
export async function findAlteredTable(connection: DatabaseConnection): Promise<string | null> {
  const fresh = openSqlite(":memory:");
  await fresh.createTables();
  const expected = await readTables(fresh.connection);
  fresh.close();
  const present = await readTables(connection);
  for (const [name, words] of expected) {
    const others = present.get(name);
    if (others && words.every((word) => countOf(word, others) >= countOf(word, words))) continue;
    return `the definition of ${name} ${others ? "is altered" : "is missing"}`;
  }
  return null;
}

const countOf = (word: string, words: readonly string[]): number =>
  words.filter((other) => other === word).length;

/** Returns the words that define each table and index. */
async function readTables(connection: DatabaseConnection): Promise<Map<string, string[]>> {
  const sql = "select type, name, tbl_name, coalesce(sql, '') as sql from sqlite_schema";
  return new Map(
    (await connection.query(sql, [])).map(({ type, name, tbl_name: table, sql: definition }) => [
      String(name),
      [String(type), String(table), ...(String(definition).match(/\w+|[^\s\w"]/g) ?? [])],
    ]),
  );
}

/**
 * Throws `StorageRefused` if a table or column has lost its name. Otherwise every statement that needs it
 * would fail without an explanation.
 */
async function checkTables({ connection }: SqliteDatabase, path: string): Promise<void> {
  for (const table of Object.values(tables)) {
    await connection
      .query(`select ${listColumns(table)} from ${table.name} limit 0`, [])
      .catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        throw new StorageRefused(`${path}: damaged: ${reason}; ${formatRemedy(path)}`);
      });
  }
}
