import { DatabaseSync, type StatementSync } from "node:sqlite";
import type { TableCreation } from "../sql/schema.ts";
import { createTables } from "../sql/schema.ts";
import type { DatabaseConnection, Database, Dialect } from "../sql/database.ts";
import { LostUpdate } from "../sql/database.ts";
import type { OnDamage } from "./fileCheck.ts";
import { formatRemedy } from "./fileCheck.ts";
import type { WalLength } from "./walCheckpoint.ts";
import type { KeySource, SecretCipher } from "../sql/keyRing.ts";
import { createCipher } from "../sql/keyRing.ts";
import { RecentRows } from "../sql/recentRows.ts";
import { RecentTimeIndex } from "../batch/recentTimeIndex.ts";
import { StorageRefused, Unavailable } from "../store.ts";
import type { Columns, Value } from "../sql/tables.ts";

/** SQLite takes its rows one by one: a prepared statement run in a loop costs less than any list of values. */
const dialect: Dialect = {
  givenRows: (types) => ({
    values: `values (${types.map((_, index) => `?${index + 1}`).join(", ")})`,
    from: "",
    also: "",
    using: "",
    column: (index) => `?${index + 1}`,
  }),
  // There is one writer, so nothing has to be locked.
  lock: () => "",
  isRow: (columns, key) => columns.map((column, index) => `${column} = ${key[index]}`).join(" and "),
  // Without statistics it goes through all rows of an account rather than through the few of an index that begins with it.
  useIndex: (index) => `indexed by ${index}`,
  checksums: true,
};

export type SqliteDatabase = Database & {
  recent: RecentRows;
  connection: DatabaseConnection;
  /** How many statements that may write were run: when it has not grown, there is nothing to bring to the disk. */
  writeCount(): number;
  /** How long the write-ahead log is. */
  walLength(): WalLength;
  /** Creates the tables if there are none. Throws `StorageRefused` if they are those of another version. */
  createTables(how?: { isMoveTarget?: boolean }): Promise<void>;
  /** Stores a change that means nothing. Rejects when that is not possible. */
  probe(): Promise<void>;
  close(): void;
};

export type SqliteOptions = {
  readOnly?: boolean;
  keys?: KeySource;
  /** Not given: a commit is on the disk when it returns. */
  deferredSync?: DeferredSync;
  /** Hears of all that is found damaged. */
  onDamage?: OnDamage;
};

/**
 * For a thread that has other things to do than to wait for the disk: a commit is whole, but not on the disk when it returns, and the
 * write-ahead log is left to somebody else; see `embeddedStore.ts`. `pause`: between two tries while others keep the file locked.
 */
export type DeferredSync = { pause(): Promise<void>; maxTries: number };

/** Of files that are made from now on; others keep theirs. See docs/decisions/0038. */
const pageSize = 8_192;

/** Bytes of the log. Zero: never by itself, where nobody would hear that the disk has not kept it. */
const autoCheckpointBytes = { synchronous: 32 * 1024 * 1024, deferred: 0 } as const;
const busyTimeout = 5_000;

/** Opens a database file, or `:memory:`. The write-ahead log is folded back every 32 MiB, and cut to 64 MiB after a burst. */
export function openSqlite(path: string, { readOnly = false, keys = null, deferredSync, onDamage }: SqliteOptions = {}): SqliteDatabase {
  const cipher = createCipher(keys);
  const db = withStoreErrors(path, () => new DatabaseSync(path, { readOnly }));
  withStoreErrors(path, () => db.exec(`pragma busy_timeout = ${busyTimeout}; select count(*) from sqlite_schema`));
  if (!readOnly) {
    const modes = `pragma page_size = ${pageSize}; pragma journal_mode = wal; pragma synchronous = ${deferredSync ? "normal" : "full"}`;
    withStoreErrors(path, () => db.exec(`${modes}; pragma journal_size_limit = 67108864`));
    db.exec(
      `pragma wal_autocheckpoint = ${(deferredSync ? autoCheckpointBytes.deferred : autoCheckpointBytes.synchronous) / readPageSize(db)}`,
    );
  }
  if (deferredSync) db.exec("pragma busy_timeout = 0");
  // A larger cache costs more than it saves: after most page splits, a commit looks through the table of all cached pages.
  db.exec(`pragma cache_size = -8192; pragma temp_store = memory; pragma mmap_size = 0`);
  const { connection, writeCount } = createConnection(db, { cipher, path, onDamage });
  const recent = new RecentRows();
  const recentTimeIndex = new RecentTimeIndex();
  // Changes when anybody but this connection has written, such as a tool that somebody let loose on the file.
  const version = db.prepare("pragma data_version");
  // Their texts would be read anew each time.
  const beginStatement = db.prepare("begin immediate");
  const commitStatement = db.prepare("commit");
  const checkpointStatus = db.prepare("pragma wal_checkpoint(noop)");
  const pageBytes = readPageSize(db);
  let lastVersion: unknown;
  const transaction: Database["transaction"] = async (run) => {
    await begin(beginStatement, path, deferredSync);
    try {
      const now = version.get()?.data_version;
      if (now !== lastVersion) for (const cache of [recent, recentTimeIndex]) cache.forget();
      lastVersion = now;
      const result = await run(connection, noStartTime);
      commitStatement.run();
      return result;
    } catch (error) {
      if (db.isTransaction) db.exec("rollback");
      throw toStoreError(path, error);
    }
  };
  return {
    connection,
    transaction,
    recent,
    recentTimeIndex,
    writeCount,
    walLength: () => {
      const { log, checkpointed } = checkpointStatus.get() ?? {};
      return { written: Number(log) * pageBytes, checkpointed: Number(checkpointed) * pageBytes };
    },
    createTables: (how) => transaction(() => createTables(connection, "sqlite", { ...creationIn(db, path), ...how })),
    isConflict: (error) => error instanceof LostUpdate,
    // A row that is stored again as it is would not reach the disk. Nobody reads this number.
    probe: () => transaction(async () => db.exec("pragma user_version = 1")),
    close: () => db.close(),
  };
}

const creationIn = (db: DatabaseSync, path: string): TableCreation => ({
  name: path,
  place: "an empty data folder",
  run: async (sql) => db.exec(sql),
  hasTable: async (name) => db.prepare("select 1 from sqlite_schema where type = 'table' and name = ?").get(name) !== undefined,
});

/** Whoever writes is alone, so its own time will do. */
const noStartTime = Promise.resolve(null);

const readPageSize = (db: DatabaseSync): number => Number(db.prepare("pragma page_size").get()?.page_size);

const busyCode = 5;
/** Read-only, input/output error, disk full, cannot open: the disk's fault, and perhaps better soon. */
const cannotWriteCodes: ReadonlySet<number> = new Set([8, 10, 13, 14]);
/** Damaged, or no database at all. */
const damagedCodes: ReadonlySet<number> = new Set([11, 26]);

/** The primary result code of SQLite, or zero. */
const readResultCode = (error: unknown): number =>
  error instanceof Error && "errcode" in error && typeof error.errcode === "number" ? error.errcode & 0xff : 0;

const toErrorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Says of a file that cannot be used, or written, what it is, and what to do. */
function toStoreError(path: string, error: unknown): unknown {
  if (readResultCode(error) === busyCode) return new Unavailable("another process keeps the database file locked", { cause: error });
  if (cannotWriteCodes.has(readResultCode(error)))
    return new Unavailable(`the disk does not take it: ${toErrorText(error)}`, { cause: error });
  if (!damagedCodes.has(readResultCode(error))) return error;
  return new StorageRefused(
    `${path}: damaged, or not a store of waypost (${toErrorText(error)}); ${formatRemedy(path)}; or choose another folder`,
  );
}

function withStoreErrors<T>(path: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** There is one writer, and it waits some seconds for others, such as tools that somebody let loose on the file. */
async function begin(beginStatement: StatementSync, path: string, deferredSync: DeferredSync | undefined): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return void beginStatement.run();
    } catch (error) {
      if (readResultCode(error) !== busyCode || !deferredSync || tries === deferredSync.maxTries) throw toStoreError(path, error);
      await deferredSync.pause();
    }
  }
}

type ConnectionOptions = { cipher: SecretCipher; path: string; onDamage: OnDamage | undefined };

function createConnection(
  db: DatabaseSync,
  { cipher, path, onDamage }: ConnectionOptions,
): { connection: DatabaseConnection; writeCount(): number } {
  const statements = new Map<string, PreparedStatement>();
  let writeCount = 0;
  const prepare = (sql: string): PreparedStatement => {
    let statement = statements.get(sql);
    if (!statement) statements.set(sql, (statement = prepareStatement(db, sql)));
    if (statement.mayWrite) writeCount++;
    return statement;
  };
  const reportingDamage = <T>(run: () => T): T => {
    try {
      return run();
    } catch (error) {
      if (!damagedCodes.has(readResultCode(error))) throw error;
      const refusal = toStoreError(path, error);
      onDamage?.({ isFile: true, text: toErrorText(refusal) });
      throw refusal;
    }
  };
  const connection: DatabaseConnection = {
    dialect,
    cipher,
    foundDamaged: (table, key) =>
      onDamage?.({ isFile: false, text: `${path}: ${table} ${key.join(" ")} is damaged, and is not used; restore a backup, or delete it` }),
    query: async (sql, values) => reportingDamage(() => prepare(sql).all(values)),
    each: async (sql, _types, rows) =>
      reportingDamage(() => {
        const { returnsRows, all, run } = prepare(sql);
        if (returnsRows) return rows.flatMap(all);
        for (const row of rows) run(row);
        return [];
      }),
  };
  return { connection, writeCount: () => writeCount };
}

/** `answers`: it has rows to give back. */
type PreparedStatement = {
  returnsRows: boolean;
  mayWrite: boolean;
  all(values: readonly Value[]): Columns[];
  run(values: readonly Value[]): void;
};

/** Rows come as lists and get their names here: SQLite's own would be written anew for every row. */
function prepareStatement(db: DatabaseSync, sql: string): PreparedStatement {
  // A bare parameter as the limit would have SQLite plan the statement anew each time it is bound, which takes 12 µs.
  const statement = db.prepare(withoutNumbers(sql.replaceAll("limit ?", "limit 0 + ?")));
  statement.setReturnArrays(true);
  const names = statement.columns().map(({ name }) => name);
  const toColumns = (row: unknown): Columns => {
    const values = row as Value[];
    const columns = {} as Columns;
    names.forEach((name, index) => (columns[name] = values[index] ?? null));
    return columns;
  };
  return {
    returnsRows: names.length > 0,
    mayWrite: !sql.startsWith("select"),
    all: (values) => statement.all(...values).map(toColumns),
    // `run` would count what changed, and make an object of it.
    run: (values) => void statement.get(...values),
  };
}

/** Numbers that only say the order are left out: Node asks for the name of each parameter it binds, and `?7` is one, found by counting. */
function withoutNumbers(sql: string): string {
  const numbers = [...sql.matchAll(/\?(\d*)/g)].map(([, number]) => Number(number));
  return numbers.every((number, index) => number === index + 1) ? sql.replace(/\?\d+/g, "?") : sql;
}
