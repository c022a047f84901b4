import type { Rows, TableName } from "../../../src/engine/core/decision/command.ts";
import type { Commands } from "../../../src/engine/store/catalog/commands.ts";
import type { DeliveryCapacity } from "../../../src/engine/core/admission/capacity.ts";
import type { StoreBackend } from "../../../src/engine/store/batch/groupCommit.ts";
import { Memory, memoryParts } from "../../model/memoryStore.ts";
import { beginMembership } from "../../../src/engine/store/postgres/membership.ts";
import { createQueries } from "../../../src/engine/store/catalog/queries.ts";
import { runSqlBatch } from "../../../src/engine/store/sql/transaction.ts";
import { readNextDueAt, createSqlReads } from "../../../src/engine/store/sql/reads.ts";
import { openSqlite } from "../../../src/engine/store/sqlite/database.ts";
import type { BatchResult, CommandCall, RunBatch, MomentSource } from "../../../src/engine/store/store.ts";
import { Unavailable } from "../../../src/engine/store/layout/storageErrors.ts";
import { tableNames } from "../../../src/engine/store/catalog/order.ts";
import type { Change, Changes, Tables } from "./changes.ts";
import { noChanges } from "./changes.ts";
import type { Written } from "./rowWatch.ts";
import { RowWatch } from "./rowWatch.ts";
import type { PendingWork } from "../virtualTime.ts";

/** The shared storage of all nodes in a simulation, with a view of the changes of each batch. */
export interface Storage {
  open(source: MomentSource): NodeStorage;
  readonly tables: Tables;
  /** Starts a membership of a node and returns its number. See `engine/core/cluster/takeover.ts`. */
  beginMembership(node: string): Promise<number>;
  /** Returns the changes since the last call. */
  changes(): Promise<Changes>;
  /**
   * Runs two batches at the same time, if the store allows that. Returns how often one of them had to start
   * again.
   */
  together?(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<number>;
  /** The real work that is pending. */
  readonly atWork: PendingWork;
  close(): Promise<void>;
}

/** The connection of one node to the storage. */
export type NodeStorage = Omit<StoreBackend, "runBatch"> & {
  /**
   * Runs a batch, during which the connection may be lost. Rejects with `UnreportedBatch` if the batch was
   * still stored.
   */
  runBatch(
    calls: readonly CommandCall[],
    capacity: DeliveryCapacity,
    loss?: ConnectionLoss | null,
  ): Promise<BatchResult>;
  /**
   * Returns the rows that other nodes wrote while the last batch of this node ran, by table and key. Missing
   * if batches never overlap.
   */
  rowsMet?(): ReadonlySet<string>;
  /** Cuts all connections while they are idle. */
  hangUp?(): void;
};

/**
 * When a connection is lost during a transaction. A number means before its nth statement (from 0), or before
 * the last one if there are fewer. The other times are with the commit, which does not arrive (`unstored`);
 * or with the answer to the commit (`stored`). `dies`: the node dies as well, so it does not connect again.
 */
export type ConnectionLoss = { at: number | "unstored" | "stored"; dies: boolean };

/** The batch was stored, but its answer was lost. */
export class UnreportedBatch extends Unavailable {
  readonly result: BatchResult;

  constructor(result: BatchResult) {
    super("storage: the connection was lost with the answer");
    this.result = result;
  }
}

/**
 * Simulates a loss for stores without a connection. Before the commit nothing is stored, so a living node
 * retries.
 */
const loseBatch =
  (runBatch: RunBatch): NodeStorage["runBatch"] =>
  async (calls, capacity, loss) => {
    if (loss && loss.at !== "stored" && (loss.dies || loss.at === "unstored"))
      throw new Unavailable("storage: the connection was lost");
    if (loss?.at !== "stored") return runBatch(calls, capacity);
    const { denied: _, ...silent } = capacity;
    throw new UnreportedBatch(await runBatch(calls, silent));
  };

/**
 * Returns a storage in memory. `decisions` replaces the real ones, for mutants. `reads` says how rows are
 * loaded: see `Memory`.
 */
export function memoryStorage(
  decisions?: Commands,
  reads?: { readsAtOnce?: boolean; usesHints?: boolean },
): Storage {
  const memory = new Memory(reads);
  const touched = new Map<string, () => void>();
  let changes = noChanges();
  for (const table of tableNames) watch(table);

  function watch<T extends TableName>(table: T): void {
    const rows: Map<string, Rows[T]> = memory.tables[table];
    const set = rows.set.bind(rows);
    const remove = rows.delete.bind(rows);
    const touch = (key: string): void => {
      const before = rows.get(key);
      const name = `${table} ${key}`;
      if (!touched.has(name))
        touched.set(name, () => addChange(changes, table, { before, after: rows.get(key) }));
    };
    rows.set = (key, row) => {
      touch(key);
      return set(key, row);
    };
    rows.delete = (key) => {
      touch(key);
      return remove(key);
    };
  }

  return {
    open: (source) => {
      const parts = memoryParts(source, memory, decisions);
      return { ...parts, runBatch: loseBatch(parts.runBatch) };
    },
    tables: memory.tables,
    beginMembership: async (node) => {
      const membership = (memory.memberships.get(node) ?? 0) + 1;
      memory.memberships.set(node, membership);
      return membership;
    },
    changes: async () => {
      changes = noChanges();
      for (const tell of touched.values()) tell();
      touched.clear();
      return changes;
    },
    atWork: () => null,
    close: async () => undefined,
  };
}

function addChange<T extends TableName>(changes: Changes, table: T, change: Change<T>): void {
  if (change.before !== change.after) changes[table].push(change);
}

/** Returns a storage on one SQLite database in memory, shared by all nodes. */
export async function sqliteStorage(): Promise<Storage> {
  const database = openSqlite(":memory:");
  await database.createTables();
  const { connection } = database;
  const watch = new RowWatch();
  const written: Written[] = [];
  const watched = watch.recordWrites(connection, written);
  return {
    open: (source) => ({
      runBatch: loseBatch((calls, capacity) =>
        runSqlBatch(
          {
            database: {
              ...database,
              transaction: (run) => database.transaction((_, started) => run(watched, started)),
            },
            momentSource: source,
          },
          calls,
          capacity,
        ),
      ),
      read: createQueries(createSqlReads(connection)),
      nextDueAt: () => readNextDueAt(connection),
      close: async () => undefined,
    }),
    tables: watch.tables,
    beginMembership: (node) => beginMembership(connection, { node }, 0),
    changes: async () => {
      watch.add(written.splice(0));
      return watch.changes(connection);
    },
    atWork: () => null,
    close: async () => database.close(),
  };
}
