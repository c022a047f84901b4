import { DatabaseSync, type StatementSync } from "node:sqlite";
import type { TableCreation } from "../sql/schema.ts";
import { createTables, type StoreName } from "../sql/schema.ts";
import type { DatabaseConnection, Database, Dialect } from "../sql/database.ts";
import { LostUpdate } from "../sql/database.ts";
import type { OnDamage } from "./fileCheck.ts";
import { formatRemedy } from "./fileCheck.ts";
import type { FileSpace } from "./diskGuard.ts";
import type { WalLength } from "./walCheckpoint.ts";
import type { KeySource, SecretCipher } from "../layout/keyRing.ts";
import { createCipher } from "../layout/keyRing.ts";
import { countPagesToGiveBack } from "../../core/node/freeSpace.ts";
import { RecentRows } from "../sql/recentRows.ts";
import { RecentHistories } from "../histories/recentHistories.ts";
import { RecentTimeIndex } from "../batch/recentTimeIndex.ts";
import type { Columns, Value } from "../catalog/tables.ts";
import { StorageRefused, Unavailable } from "../layout/storageErrors.ts";
import { NoRoom } from "../layout/storageErrors.ts";

/**
 * The dialect of SQLite. It takes rows one by one, because a prepared statement in a loop is faster than a
 * list of values.
 */
const dialect: Dialect = {
  givenRows: (types) => ({
    values: `values (${types.map((_, index) => `?${index + 1}`).join(", ")})`,
    from: "",
    also: "",
    using: "",
    column: (index) => `?${index + 1}`,
  }),
  // There is only one writer, so no locks are needed.
  lock: () => "",
  isRow: (columns, key) => columns.map((column, index) => `${column} = ${key[index]}`).join(" and "),
  // SQLite has no statistics here. It would scan all rows of an account instead of the few rows that the
  // index yields.
  useIndex: (index) => `indexed by ${index}`,
  checksums: true,
};

/** One connection to an SQLite file. */
export type SqliteDatabase = Database & {
  recent: RecentRows;
  connection: DatabaseConnection;
  /**
   * Returns how many statements that may write have been run. If the number has not grown, there is nothing
   * to sync.
   */
  writeCount(): number;
  /** Returns the length of the write-ahead log. */
  walLength(): WalLength;
  /** Returns the bytes of the file, and those of its free pages. */
  readFile(): FileSpace;
  /**
   * Gives some free pages of the file back to the disk, in one transaction. Reports whether it gave any. The
   * file becomes smaller at the next checkpoint.
   */
  giveBackSpace(keepsNone: boolean): Promise<boolean>;
  /** Creates the tables if there are none. Throws `StorageRefused` if another version created them. */
  createTables(
    how?: Partial<StoreName & Pick<TableCreation, "isMoveTarget" | "keepsVersion" | "onMoved">>,
  ): Promise<void>;
  /** Writes this many bytes, which nothing reads. Rejects if the disk cannot store them. */
  probe(bytes: number): Promise<void>;
  close(): void;
};

/** How a file is opened. */
export type SqliteOptions = {
  readOnly?: boolean;
  keys?: KeySource;
  /** Absent: a commit is on the disk when it returns. */
  deferredSync?: DeferredSync;
  /** Receives everything that is found damaged. */
  onDamage?: OnDamage;
  /** Called in each transaction before it writes. Must not throw. */
  onBegin?(): void;
};

/**
 * Options for a thread that must not wait for the disk. A commit is complete, but not on the disk, when it
 * returns. The caller syncs and checkpoints the write-ahead log; see `embeddedStore.ts`. `pause` waits
 * between two tries while another process locks the file.
 */
export type DeferredSync = { pause(): Promise<void>; maxTries: number };

/**
 * The modes of new files: pages of 4 KiB, and free pages that can be given back. Existing files keep theirs,
 * and to set the second mode again would write to the file, so that other connections forget what they cache.
 * See docs/decisions/0038 and 0071.
 */
const newFileModes = "pragma page_size = 4096; pragma auto_vacuum = incremental";

/**
 * The length of the write-ahead log, in bytes, at which SQLite checkpoints it. With a deferred sync it is 0,
 * which turns this off: a failure of such a checkpoint would not be reported.
 */
const autoCheckpointBytes = { synchronous: 32 * 1024 * 1024, deferred: 0 } as const;
const busyTimeout = 5_000;

/**
 * Opens a database file, or `:memory:`. Without `deferredSync`, SQLite checkpoints the write-ahead log every
 * 32 MiB. A log that has grown longer is truncated to 64 MiB.
 */
export function openSqlite(
  path: string,
  { readOnly = false, keys = null, deferredSync, onDamage, onBegin }: SqliteOptions = {},
): SqliteDatabase {
  const cipher = createCipher(keys);
  const db = withStoreErrors(path, () => new DatabaseSync(path, { readOnly }));
  withStoreErrors(path, () =>
    db.exec(`pragma busy_timeout = ${busyTimeout}; select count(*) from sqlite_schema`),
  );
  if (!readOnly) withStoreErrors(path, () => setModes(db, deferredSync));
  if (deferredSync) db.exec("pragma busy_timeout = 0");
  // A larger cache would cost more than it saves, because a commit scans the table of all cached pages after
  // most page splits.
  db.exec(`pragma cache_size = -8192; pragma temp_store = memory; pragma mmap_size = 0`);
  const { connection, writeCount } = createConnection(db, { cipher, path, onDamage });
  const recent = new RecentRows();
  const recentTimeIndex = new RecentTimeIndex();
  const recentHistories = new RecentHistories();
  // Changes if anyone but this connection has written, such as an external tool.
  const version = db.prepare("pragma data_version");
  // Prepared once, so that their texts are not parsed for each batch.
  const beginStatement = db.prepare("begin immediate");
  const commitStatement = db.prepare("commit");
  const checkpointStatus = db.prepare("pragma wal_checkpoint(noop)");
  const pageBytes = readPageSize(db);
  let lastVersion: unknown;
  const transaction: Database["transaction"] = async (run) => {
    await begin(beginStatement, path, deferredSync);
    try {
      onBegin?.();
      const now = version.get()?.data_version;
      const caches = [recent, recentTimeIndex, recentHistories];
      if (now !== lastVersion) for (const cache of caches) cache.forget();
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
    recentHistories,
    writeCount,
    walLength: () => {
      const { log, checkpointed } = checkpointStatus.get() ?? {};
      return { written: Number(log) * pageBytes, checkpointed: Number(checkpointed) * pageBytes };
    },
    readFile: createFileReader(db, pageBytes),
    giveBackSpace: (keepsNone) => transaction(async () => giveBackSpace(db, keepsNone)),
    createTables: (how) =>
      transaction(() => createTables(connection, "sqlite", { ...creationIn(db, path), ...how })),
    isConflict: (error) => error instanceof LostUpdate,
    probe: (bytes) => writeProbe(transaction, bytes),
    close: () => db.close(),
  };
}

/** Sets how a database is written. Writes nothing to a file that has these modes. */
function setModes(db: DatabaseSync, deferredSync?: SqliteOptions["deferredSync"]): void {
  const synchronous = deferredSync ? "normal" : "full";
  if (db.prepare("pragma page_count").get()?.page_count === 0) db.exec(newFileModes);
  db.exec(
    `pragma journal_mode = wal; pragma synchronous = ${synchronous}; pragma journal_size_limit = 67108864`,
  );
  const checkpointBytes = deferredSync ? autoCheckpointBytes.deferred : autoCheckpointBytes.synchronous;
  db.exec(`pragma wal_autocheckpoint = ${checkpointBytes / readPageSize(db)}`);
}

/** The second transaction frees the pages of the first. */
async function writeProbe(transaction: Database["transaction"], bytes: number): Promise<void> {
  const sql = "update storage_probe set probed_at = ";
  await transaction(({ query }) => query(`${sql}zeroblob(${bytes})`, []));
  await transaction(({ query }) => query(`${sql}0`, []));
}

function createFileReader(db: DatabaseSync, pageBytes: number): () => FileSpace {
  const pageCount = db.prepare("pragma page_count");
  const freeCount = db.prepare("pragma freelist_count");
  return () => ({
    store: Number(pageCount.get()?.page_count) * pageBytes,
    reusable: Number(freeCount.get()?.freelist_count) * pageBytes,
  });
}

function giveBackSpace(db: DatabaseSync, keepsNone: boolean): boolean {
  const read = (name: string): number => Number(db.prepare(`pragma ${name}`).get()?.[name]);
  const pages = { pages: read("page_count"), free: read("freelist_count") };
  const count = countPagesToGiveBack(pages, keepsNone);
  if (count > 0) db.exec(`pragma incremental_vacuum(${count})`);
  return count > 0;
}

const creationIn = (db: DatabaseSync, path: string): TableCreation => ({
  name: path,
  place: "an empty data folder",
  run: async (sql) => db.exec(sql),
  hasTable: async (name) =>
    db.prepare("select 1 from sqlite_schema where type = 'table' and name = ?").get(name) !== undefined,
});

/** There is only one writer, so no time of the database is needed. */
const noStartTime = Promise.resolve(null);

const readPageSize = (db: DatabaseSync): number => Number(db.prepare("pragma page_size").get()?.page_size);

const busyCode = 5;
const fullCode = 13;
/** The codes of failures of the disk that may pass: read-only, input/output error, disk full, cannot open. */
const cannotWriteCodes: ReadonlySet<number> = new Set([8, 10, fullCode, 14]);
/** The codes of a file that is damaged or is not a database. */
const damagedCodes: ReadonlySet<number> = new Set([11, 26]);

/** Returns the primary result code of SQLite, or 0. */
const readResultCode = (error: unknown): number =>
  error instanceof Error && "errcode" in error && typeof error.errcode === "number"
    ? error.errcode & 0xff
    : 0;

const toErrorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/**
 * Converts an error about a file that cannot be used or written. The new error says what is wrong and what to
 * do.
 */
function toStoreError(path: string, error: unknown): unknown {
  if (readResultCode(error) === busyCode)
    return new Unavailable("another process has locked the database file; end it or retry later", {
      cause: error,
    });
  if (cannotWriteCodes.has(readResultCode(error))) {
    const Failure = readResultCode(error) === fullCode ? NoRoom : Unavailable;
    return new Failure(`the disk failed to store data: ${toErrorText(error)}`, { cause: error });
  }
  if (!damagedCodes.has(readResultCode(error))) return error;
  return new StorageRefused(
    `${path}: damaged, or not a store of waypost (${toErrorText(error)}); ` +
      `${formatRemedy(path)}; or choose another folder`,
  );
}

function withStoreErrors<T>(path: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** Begins a transaction. Waits up to 5 s for other processes, such as external tools, that lock the file. */
async function begin(
  beginStatement: StatementSync,
  path: string,
  deferredSync: DeferredSync | undefined,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return void beginStatement.run();
    } catch (error) {
      if (readResultCode(error) !== busyCode || !deferredSync || tries === deferredSync.maxTries)
        throw toStoreError(path, error);
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
      onDamage?.({
        isFile: false,
        text:
          `${path}: ${table} ${key.join(" ")} is damaged and is not used; ` +
          "restore the file from a backup, or delete this entry",
      }),
    query: async (sql, values) => reportingDamage(() => prepare(sql).all(values)),
    each: async (sql, _types, rows) =>
      reportingDamage(() => {
        const { returnsRows, all, run } = prepare(sql);
        if (returnsRows) return rows.flatMap(all);
        for (const row of rows) run(row);
        return [];
      }),
    now: (sql, values) => reportingDamage(() => prepare(sql).all(values)),
  };
  return { connection, writeCount: () => writeCount };
}

/** A statement that was prepared. `returnsRows` is true for a query. */
type PreparedStatement = {
  returnsRows: boolean;
  mayWrite: boolean;
  all(values: readonly Value[]): Columns[];
  run(values: readonly Value[]): void;
};

/**
 * Prepares a statement. Rows are read as lists, and the names of the columns are added here. SQLite would
 * create the names again for every row.
 */
function prepareStatement(db: DatabaseSync, sql: string): PreparedStatement {
  // If the limit were a bare parameter, SQLite would plan the statement again at each binding, which takes 12
  // µs.
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
    all: (values) => {
      try {
        return statement.all(...values).map(toColumns);
      } catch (error) {
        // A statement that changes rows must not run twice. It returns no numbers of rows.
        if (!isTooLarge(error) || sql.includes(" returning ")) throw error;
        return readLarge(statement, values).map(toColumns);
      }
    },
    // `get` is used because `run` would count the changes and allocate an object for the counts.
    run: (values) => void statement.get(...values),
  };
}

/** Reports whether Node has refused to read an integer above 2^53. Only a damaged row has one. */
const isTooLarge = (error: unknown): boolean =>
  error instanceof RangeError && Reflect.get(error, "code") === "ERR_OUT_OF_RANGE";

/** Reads rows with integers above 2^53, which are rounded. A checksum then shows that the row is damaged. */
function readLarge(statement: StatementSync, values: readonly Value[]): unknown[] {
  statement.setReadBigInts(true);
  try {
    return statement
      .all(...values)
      .map((row) =>
        (row as unknown as (Value | bigint)[]).map((value) =>
          typeof value === "bigint" ? Number(value) : value,
        ),
      );
  } finally {
    statement.setReadBigInts(false);
  }
}

/**
 * Removes the numbers of parameters if they only repeat the order. Without numbers, binding is faster: Node
 * looks up the name of each parameter, and finds a name such as `?7` by counting.
 */
function withoutNumbers(sql: string): string {
  const numbers = [...sql.matchAll(/\?(\d*)/g)].map(([, number]) => Number(number));
  return numbers.every((number, index) => number === index + 1) ? sql.replace(/\?\d+/g, "?") : sql;
}
