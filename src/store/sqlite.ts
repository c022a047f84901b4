import { DatabaseSync } from "node:sqlite";
import type { StatementSync } from "node:sqlite";
import { migrate } from "./migrate.ts";
import type { Connection, Database, Dialect } from "./sql.ts";
import { LostUpdate } from "./sql.ts";
import type { Columns } from "./tables.ts";

/** SQLite takes its rows one by one: a prepared statement run in a loop costs less than any list of values. */
const dialect: Dialect = {
  given: (types) => ({
    ...{ values: `values (${types.map((_, index) => `?${index + 1}`).join(", ")})`, from: "", also: "", using: "" },
    column: (index) => `?${index + 1}`,
  }),
  // There is one writer, so nothing has to be locked.
  lock: () => "",
};

export type SqliteDatabase = Database & { connection: Connection; migrate(): Promise<void>; close(): void };

/**
 * Opens a database file, or `:memory:`. A commit is on the disk when it returns (`synchronous=FULL`); the
 * write-ahead log is folded back every 2,000 pages and cut to 64 MiB after a burst.
 */
export function openSqlite(path: string, { readOnly = false } = {}): SqliteDatabase {
  const db = new DatabaseSync(path, { readOnly });
  db.exec(`pragma busy_timeout = 5000`);
  if (!readOnly) {
    db.exec(`pragma journal_mode = wal; pragma synchronous = full; pragma wal_autocheckpoint = 2000; pragma journal_size_limit = 67108864`);
  }
  db.exec(`pragma cache_size = -32768; pragma temp_store = memory; pragma mmap_size = 0`);
  const connection = connectionOf(db);
  const transaction: Database["transaction"] = async (run) => {
    db.exec("begin immediate");
    try {
      const result = await run(connection);
      db.exec("commit");
      return result;
    } catch (error) {
      if (db.isTransaction) db.exec("rollback");
      throw error;
    }
  };
  return {
    connection,
    transaction,
    migrate: () => transaction(() => migrate(connection, "sqlite", async (sql) => db.exec(sql))),
    isConflict: (error) => error instanceof LostUpdate,
    close: () => db.close(),
  };
}

function connectionOf(db: DatabaseSync): Connection {
  const statements = new Map<string, StatementSync>();
  const prepare = (sql: string): StatementSync => {
    const known = statements.get(sql);
    if (known) return known;
    const statement = db.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
  return {
    dialect,
    query: async (sql, values) => prepare(sql).all(...values) as Columns[],
    each: async (sql, _types, rows) => {
      const statement = prepare(sql);
      const found: Columns[] = [];
      if (!/^select|returning/.test(sql)) {
        for (const row of rows) statement.run(...row);
      } else {
        for (const row of rows) for (const columns of statement.all(...row)) found.push(columns as Columns);
      }
      return found;
    },
  };
}

