import type { OnDamage } from "./fileCheck.ts";
import { checkFiles, remedyOf } from "./fileCheck.ts";
import type { SqliteDatabase, SqliteOptions } from "./sqlite.ts";
import { openSqlite } from "./sqlite.ts";
import { columnsOf } from "./statements.ts";
import { StorageRefused } from "./store.ts";
import { tables } from "./tables.ts";
import { keepDamagedLog } from "./writeAheadLog.ts";

/** Opens the database of a store, after a look at its files, and brings its tables up to this version. Throws `StorageRefused`. */
export async function openChecked(path: string, options: SqliteOptions): Promise<SqliteDatabase> {
  const { cut } = checkFiles(path);
  const kept = cut && keepDamagedLog(path);
  const database = openSqlite(path, options);
  try {
    if (cut) await goOnAfterCut(database, { path, cut, kept, onDamage: options.onDamage ?? (() => undefined) });
    await database.migrate();
    await checkTables(database, path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Throws `StorageRefused` if a table or a column has lost its name: each statement that needs it would fail, and nothing would say why. */
async function checkTables({ connection }: SqliteDatabase, path: string): Promise<void> {
  for (const table of Object.values(tables)) {
    await connection.query(`select ${columnsOf(table)} from ${table.name} limit 0`, []).catch((error: unknown) => {
      throw new StorageRefused(`${path}: damaged: ${error instanceof Error ? error.message : String(error)}; ${remedyOf(path)}`);
    });
  }
}

type Cut = { path: string; cut: { at: number; frames: number }; kept: string | null; onDamage: OnDamage };

/**
 * SQLite has read the log up to a frame that was altered. Pages that were folded before may be newer, so all of the file is
 * checked. Then the log starts again from an empty file, so that the rest of the old one is not found at the next start.
 */
async function goOnAfterCut({ connection }: SqliteDatabase, { path, cut, kept, onDamage }: Cut): Promise<void> {
  const lost = `${path}-wal: damaged at frame ${cut.at}, so it and the ${cut.frames - 1} frames behind are lost, with what was stored last`;
  const copy = kept === null ? "" : `; the damaged log is kept as ${kept}`;
  const [found] = await connection.query("pragma integrity_check(1)", []);
  if (found?.integrity_check !== "ok") {
    throw new StorageRefused(`${lost}${copy}; what is left does not fit together: ${remedyOf(path)}`);
  }
  onDamage({ isFile: false, text: `${lost}${copy}; compare what was published last with what is there, or restore a backup` });
  await connection.query("pragma wal_checkpoint(truncate)", []);
}
