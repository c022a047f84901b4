import { DatabaseSync } from "node:sqlite";
import type { Cell, TableLayout, MoveEndpoint } from "./move.ts";
import { isChecksum, unmovedTables } from "./move.ts";
import { checkFiles } from "../../engine/store/sqlite/fileCheck.ts";
import { openSqlite } from "../../engine/store/sqlite/database.ts";
import { StorageRefused } from "../../engine/store/layout/storageErrors.ts";

/**
 * Opens the file of an embedded store for `move`, and creates its tables if there are none. The caller must
 * keep servers from using it.
 */
export async function openSqliteForMove(
  path: string,
  { name, isTarget }: { name: string; isTarget: boolean },
): Promise<MoveEndpoint> {
  if (checkFiles(path).cut)
    throw new StorageRefused(
      `${path}-wal: damaged; start a server on this folder first, which reports what is lost`,
    );
  const database = openSqlite(path);
  await database.createTables({ isMoveTarget: isTarget }).finally(() => database.close());
  const db = new DatabaseSync(path);
  db.exec("pragma synchronous = full");
  const readRows = (sql: string, values: readonly Cell[]): Cell[][] => {
    const statement = db.prepare(sql);
    statement.setReturnArrays(true);
    statement.setReadBigInts(true);
    return statement.all(...values) as unknown as Cell[][];
  };
  const listTableNames = (): string[] =>
    readRows(
      `select name from sqlite_schema where type = 'table' and name not like 'sqlite\\_%' escape '\\'`,
      [],
    ).map(([one]) => String(one));
  return {
    name,
    tables: async () =>
      listTableNames()
        .filter((table) => !unmovedTables.includes(table))
        .map((table) =>
          toTableLayout(
            table,
            readRows(`select name, lower(type), pk from pragma_table_info(?) order by cid`, [table]),
          ),
        ),
    query: async (sql, values) => readRows(sql, values),
    insert: async ({ name: table, columns }, rows) => {
      const names = columns.map((column) => column.name).join(", ");
      const placeholders = columns.map(() => "?").join(", ");
      const statement = db.prepare(`insert into ${table} (${names}) values (${placeholders})`);
      db.exec("begin immediate");
      try {
        for (const row of rows) statement.run(...row);
        db.exec("commit");
      } catch (error) {
        db.exec("rollback");
        throw error;
      }
    },
    // Each statement is its own transaction.
    commit: async () => undefined,
    // Servers plan without statistics, so the file must not have any.
    finish: async () => undefined,
    close: async () => db.close(),
  };
}

/** Returns the layout of a table. `pk` is a column's position in the primary key, counted from 1. */
function toTableLayout(name: string, columnRows: readonly Cell[][]): TableLayout {
  const columns = columnRows
    .map(([column, type]) => ({ name: String(column), type: String(type) }))
    .filter(({ name: column }) => !isChecksum(column));
  const key = columnRows.filter(([, , pk]) => Number(pk) > 0).sort((a, b) => Number(a[2]) - Number(b[2]));
  return { name, columns, key: key.map(([column]) => String(column)) };
}
