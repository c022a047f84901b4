import { DatabaseSync } from "node:sqlite";
import type { StatementSync } from "node:sqlite";
import { migrate } from "./migrate.ts";
import type { Connection, Database, Dialect } from "./database.ts";
import { LostUpdate } from "./database.ts";
import { groupCommit } from "./group.ts";
import { queriesOf } from "./queries.ts";
import { nextDueAt, runSqlBatch, sqlShelf } from "./sql.ts";
import type { Source, Store } from "./store.ts";
import { Unavailable } from "./store.ts";
import type { Columns } from "./tables.ts";

/** SQLite takes its rows one by one: a prepared statement run in a loop costs less than any list of values. */
const dialect: Dialect = {
  given: (types) => ({
    ...{ values: `values (${types.map((_, index) => `?${index + 1}`).join(", ")})`, from: "", also: "", using: "" },
    column: (index) => `?${index + 1}`,
  }),
  // There is one writer, so nothing has to be locked.
  lock: () => "",
  lockInOrder: () => "",
};

/** SQLite on the caller's own thread, in a file or in `:memory:`: for tests and tools. A server uses `threadStore`. */
export async function sqliteStore(path: string, source: Source): Promise<Store> {
  const writer = openSqlite(path);
  await writer.migrate();
  const reader = path === ":memory:" ? writer : openSqlite(path, { readOnly: true });
  // On one connection a read must not see a transaction that is under way.
  let turn: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(run: () => Promise<T>): Promise<T> => {
    const done = turn.then(run);
    turn = done.catch(() => undefined);
    return done;
  };
  const shelf = sqlShelf({ ...reader.connection, ...turnsOf(reader.connection, inTurn) });
  return groupCommit({
    runBatch: (calls, hands) => inTurn(() => runSqlBatch(writer, source, calls, hands)),
    read: queriesOf(shelf),
    nextDueAt: () => inTurn(() => nextDueAt(reader.connection)),
    close: async () => {
      if (reader !== writer) reader.close();
      writer.close();
    },
  });
}

const turnsOf = (connection: Connection, inTurn: <T>(run: () => Promise<T>) => Promise<T>): Pick<Connection, "query" | "each"> => ({
  query: (sql, values) => inTurn(() => connection.query(sql, values)),
  each: (sql, types, rows) => inTurn(() => connection.each(sql, types, rows)),
});

export type SqliteDatabase = Database & { connection: Connection; migrate(): Promise<void>; close(): void };

/**
 * Opens a database file, or `:memory:`. A commit is on the disk when it returns (`synchronous=FULL`); the
 * write-ahead log is folded back every 8,000 pages (32 MiB) and cut to 64 MiB after a burst.
 */
export function openSqlite(path: string, { readOnly = false } = {}): SqliteDatabase {
  const db = new DatabaseSync(path, { readOnly });
  db.exec(`pragma busy_timeout = 5000`);
  if (!readOnly) {
    db.exec(`pragma journal_mode = wal; pragma synchronous = full; pragma wal_autocheckpoint = 8000; pragma journal_size_limit = 67108864`);
  }
  db.exec(`pragma cache_size = -32768; pragma temp_store = memory; pragma mmap_size = 0`);
  const connection = connectionOf(db);
  const transaction: Database["transaction"] = async (run) => {
    begin(db);
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

const busy = 5;

/** There is one writer, and it waits some seconds for others, such as tools that somebody let loose on the file. */
function begin(db: DatabaseSync): void {
  try {
    db.exec("begin immediate");
  } catch (error) {
    const isBusy = error instanceof Error && "errcode" in error && error.errcode === busy;
    throw isBusy ? new Unavailable("another process keeps the database file locked", { cause: error }) : error;
  }
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
