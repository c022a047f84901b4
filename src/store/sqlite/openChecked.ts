import { rmSync } from "node:fs";
import type { OnDamage } from "./fileCheck.ts";
import { checkFiles, formatRemedy } from "./fileCheck.ts";
import type { SqliteDatabase, SqliteOptions } from "./database.ts";
import { openSqlite } from "./database.ts";
import { listColumns } from "../sql/statements.ts";
import { StorageRefused } from "../store.ts";
import { tables } from "../sql/tables.ts";
import type { LogDamage } from "./writeAheadLog.ts";
import { keepDamagedLog } from "./writeAheadLog.ts";

/** Opens the database of a store, after a look at its files, and creates its tables if there are none. Throws `StorageRefused`. */
export async function openChecked(path: string, options: SqliteOptions): Promise<SqliteDatabase> {
  const { cut } = checkFiles(path);
  if (cut) keepLogCopy(path, cut, options.onDamage ?? (() => undefined));
  const database = openSqlite(path, options);
  try {
    // New commits would come between frames that SQLite does not read, and the next start would take the rest of these for altered ones.
    if (cut) await database.connection.query("pragma wal_checkpoint(truncate)", []);
    await database.createTables();
    await checkTables(database, path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Keeps a copy of a log that SQLite will not read to its end. If the database file has all of it, it goes; else SQLite reads its beginning. */
function keepLogCopy(path: string, { frame, frames, checkpointed }: LogDamage, onDamage: OnDamage): void {
  const copy = `a copy of the log is kept as ${keepDamagedLog(path)}`;
  if (checkpointed === "all") {
    rmSync(`${path}-wal`);
    rmSync(`${path}-shm`, { force: true });
    return onDamage({
      isFile: false,
      text: `${path}-wal: damaged at frame ${frame}; all of it is in ${path}, so nothing is lost; ${copy}`,
    });
  }
  const lost = `the ${frames} frames from there on are not read: after a power failure these were not acknowledged`;
  onDamage({
    isFile: false,
    text: `${path}-wal: damaged at frame ${frame}; ${lost}; compare what was published last with what is there; ${copy}`,
  });
}

/** Throws `StorageRefused` if a table or a column has lost its name: each statement that needs it would fail, and nothing would say why. */
async function checkTables({ connection }: SqliteDatabase, path: string): Promise<void> {
  for (const table of Object.values(tables)) {
    await connection.query(`select ${listColumns(table)} from ${table.name} limit 0`, []).catch((error: unknown) => {
      throw new StorageRefused(`${path}: damaged: ${error instanceof Error ? error.message : String(error)}; ${formatRemedy(path)}`);
    });
  }
}
