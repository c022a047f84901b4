import { backup, DatabaseSync } from "node:sqlite";
import type { Millis } from "../../engine/core/values/basics.ts";
import { createQueries, type Queries } from "../../engine/store/catalog/queries.ts";
import { tables } from "../../engine/store/catalog/tables.ts";
import { isIntact } from "../../engine/store/layout/checksums.ts";
import type { KeySource } from "../../engine/store/layout/keyRing.ts";
import { StorageRefused } from "../../engine/store/layout/storageErrors.ts";
import type { Columns, TableSchema, Value } from "../../engine/store/layout/table.ts";
import { createSqlReads } from "../../engine/store/sql/reads.ts";
import { listColumns } from "../../engine/store/sql/statements.ts";
import { isReplaced, isSchemaKnown } from "../../engine/store/sql/schema.ts";
import { findDifferences } from "../../engine/store/sqlite/contentCheck.ts";
import type { SqliteDatabase } from "../../engine/store/sqlite/database.ts";
import { openSqlite } from "../../engine/store/sqlite/database.ts";
import { findAlteredTable } from "../../engine/store/sqlite/openChecked.ts";
import { closeSync, fsyncSync, openSync, statSync } from "node:fs";

/** How many pages of 4 KiB are copied at once. */
const pagesPerStep = 1_000;

/**
 * Copies the database of a store into an empty file, while a server may be using the store. The copy has the
 * state of one moment, and is on the disk when this resolves. After each step it pauses for as long as the
 * step took, so that a server on the same disk is not slowed down. `elapsed` is a monotonic clock.
 */
export async function copyDatabase(path: string, target: string, elapsed: () => Millis): Promise<void> {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    // Outside of a transaction, the copy would begin again with every change of the server.
    database.exec("begin");
    database.prepare("select count(*) from sqlite_schema").get();
    let since = elapsed();
    const progress = (): void => {
      Atomics.wait(sleeper, 0, 0, Math.min(elapsed() - since, longestPause));
      since = elapsed();
    };
    await backup(database, target, { rate: pagesPerStep, progress });
  } finally {
    database.close();
  }
  syncFile(target);
}

const sleeper = new Int32Array(new SharedArrayBuffer(4));
const longestPause: Millis = 1_000;

/** Brings the content of a file to the disk. */
export function syncFile(path: string): void {
  const file = openSync(path, "r+");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

type CopyChecks = {
  name: string;
  keys?: KeySource;
  keepsVersion?: boolean;
  check?: (read: Queries) => Promise<void>;
  /** Whether what the tables contain is checked as well: each row with its checksum, and the counts. */
  checksContents?: boolean;
  /** Receives what is being done with a large copy, as a line for people. */
  report?(line: string): void;
};

/**
 * Checks a copy of a store: all its pages, and its tables. Tables of an older version are upgraded, unless
 * `keepsVersion` is true. Throws `StorageRefused` with the reason; `name` is what the error calls the copy.
 * With `keys`, `check` reads the copy. Returns the damage of the contents as a string, or null if there is
 * none.
 */
export async function checkCopy(
  path: string,
  { name, keys = null, keepsVersion = false, check, checksContents = false, report }: CopyChecks,
): Promise<string | null> {
  const { size } = statSync(path);
  const reportStep = (step: string): void => {
    if (size >= largeCopy) report?.(`${step} of ${Math.round(size / 1_000_000)} MB`);
  };
  reportStep("checking the pages");
  assertIntact(path, name);
  const database = openSqlite(path, { keys });
  try {
    const hasTable = async (table: string): Promise<boolean> => {
      const sql = "select 1 as found from sqlite_schema where type = 'table' and name = ?";
      return (await database.connection.query(sql, [table])).length > 0;
    };
    if (!(await hasTable("dead_letters"))) throw new StorageRefused(notAStore(name));
    await database.createTables({ name, place: "an empty data folder", keepsVersion });
    if (checksContents) reportStep("checking the rows");
    const damage = checksContents ? await findDamage(path, database) : [];
    await check?.(createQueries(createSqlReads(database.connection)));
    return damage.length === 0 ? null : damage.join("; ");
  } finally {
    database.close();
  }
}

/** From this size in bytes on, the checks take long enough to be named. */
const largeCopy = 100_000_000;
const maxNamed = 20;

/** Returns what is damaged in the contents of a copy. */
async function findDamage(path: string, { connection }: SqliteDatabase): Promise<string[]> {
  const [known] = await connection.query(`select ${isSchemaKnown("sqlite")}`, []);
  // The tables of an older version may lack columns.
  if (isReplaced(known)) return [];
  const altered = await findAlteredTable(connection);
  if (altered !== null) return [altered];
  const { damaged, unreadable } = listDamagedRows(path);
  const found = [...formatRows(damaged), ...unreadable];
  try {
    const differences = await findDifferences(connection, { wholeUpTo: 0 });
    return [...found, ...differences.map(({ text }) => text)];
  } catch (error) {
    // A table that cannot be read is named already.
    return unreadable.length > 0
      ? found
      : [...found, `the indexes and counts cannot be compared: ${toText(error)}`];
  }
}

const toText = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function formatRows(damaged: readonly string[]): string[] {
  if (damaged.length === 0) return [];
  const others = damaged.length > maxNamed ? `, and ${damaged.length - maxNamed} more` : "";
  return [
    `${damaged.length} rows differ from their checksums: ${damaged.slice(0, maxNamed).join(", ")}${others}`,
  ];
}

/**
 * Returns the tables and the keys of the rows that differ from their checksums, and why tables cannot be read
 * to their end. For example, a damaged number may be too large to be read.
 */
function listDamagedRows(path: string): { damaged: string[]; unreadable: string[] } {
  const damaged: string[] = [];
  const unreadable: string[] = [];
  const { storedMessages, deadLetters, urlGroups, schedules, steps } = tables;
  const database = new DatabaseSync(path, { readOnly: true });
  const tryTable = (name: string, read: () => void): void => {
    try {
      read();
    } catch (error) {
      unreadable.push(`${name}: cannot be read: ${toText(error)}`);
    }
  };
  try {
    for (const table of [storedMessages, deadLetters, urlGroups, schedules, steps])
      tryTable(table.name, () => {
        for (const columns of iterateRows(database, table))
          if (!isIntact(columns)) damaged.push(`${table.name} ${readKey(table, columns).join(" ")}`);
      });
    tryTable("store_counts", () => void database.prepare("select value from store_counts").all());
  } finally {
    database.close();
  }
  return { damaged, unreadable };
}

const readKey = ({ key }: TableSchema, columns: Columns): Value[] =>
  key.map((column) => columns[column] ?? null);

/** Iterates over all rows of a table. Only one is in memory at a time, because each may have 64 MiB. */
const iterateRows = (database: DatabaseSync, table: TableSchema): Iterable<Columns> =>
  database.prepare(`select ${listColumns(table)} from ${table.name}`).iterate() as Iterable<Columns>;

const notAStore = (name: string): string =>
  `${name}: is not a backup of waypost; name a file that "waypost backup" has written`;

function assertIntact(path: string, name: string): void {
  let found: readonly unknown[];
  try {
    const database = new DatabaseSync(path);
    try {
      found = database
        .prepare("pragma integrity_check(3)")
        .all()
        .map((row) => row.integrity_check);
    } finally {
      database.close();
    }
  } catch (error) {
    const isNoDatabase = Reflect.get(error as object, "errcode") === 26;
    if (isNoDatabase) throw new StorageRefused(notAStore(name));
    found = [toText(error)];
  }
  if (found.length === 1 && found[0] === "ok") return;
  throw new StorageRefused(`${name}: damaged (${found.join("; ")}); use another backup`);
}
