import { isDeepStrictEqual } from "node:util";
import type { Rows, TableName } from "../../src/core/command.ts";
import type { Commands } from "../../src/core/commands.ts";
import type { Parts } from "../../src/store/group.ts";
import { Memory, memoryParts } from "../../src/store/memory.ts";
import { queriesOf } from "../../src/store/queries.ts";
import type { SqliteDatabase } from "../../src/store/sqlite.ts";
import { runSqlBatch } from "../../src/store/sql.ts";
import { nextDueAt, sqlShelf } from "../../src/store/sqlShelf.ts";
import { openSqlite } from "../../src/store/sqlite.ts";
import type { Source } from "../../src/store/store.ts";
import { tableNames } from "../../src/store/store.ts";
import type { Table, Value } from "../../src/store/tables.ts";
import { tables as shapes } from "../../src/store/tables.ts";

export type Tables = { readonly [T in TableName]: ReadonlyMap<string, Rows[T]> };
export type Change<T extends TableName> = { before: Rows[T] | undefined; after: Rows[T] | undefined };
export type Changes = { [T in TableName]: Change<T>[] };

/** Where all nodes of a simulation keep their rows, with a view of what each batch changed. */
export interface Storage {
  /** A way into it for one node. */
  open(source: Source): Parts;
  readonly tables: Tables;
  /** What changed since this was last asked. */
  changes(): Promise<Changes>;
  close(): void;
}

const noChanges = (): Changes => ({
  ...{ accounts: [], envelopes: [], messages: [], deduplications: [] },
  ...{ deadLetters: [], lines: [], log: [], flows: [], slots: [] },
  ...{ groups: [], schedules: [], sources: [], tokens: [], rejections: [], marks: [] },
  ...{ runs: [], activeRuns: [], steps: [], waiters: [], notifications: [], usage: [], dayCounts: [], audit: [] },
});

/** The memory store. `decisions`: others than the real ones, for mutants. */
export function memoryStorage(decisions?: Commands): Storage {
  const memory = new Memory();
  const touched = new Map<string, () => void>();
  let changes = noChanges();
  for (const table of tableNames) watch(table);

  function watch<T extends TableName>(table: T): void {
    const rows: Map<string, Rows[T]> = memory.tables[table];
    const [set, remove] = [rows.set.bind(rows), rows.delete.bind(rows)];
    const touch = (key: string): void => {
      const before = rows.get(key);
      const name = `${table} ${key}`;
      if (!touched.has(name)) touched.set(name, () => add(changes, table, { before, after: rows.get(key) }));
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
    open: (source) => memoryParts(source, memory, decisions),
    tables: memory.tables,
    changes: async () => {
      changes = noChanges();
      for (const tell of touched.values()) tell();
      touched.clear();
      return changes;
    },
    close: () => undefined,
  };
}

function add<T extends TableName>(changes: Changes, table: T, change: Change<T>): void {
  if (change.before !== change.after) changes[table].push(change);
}

/** One SQLite database in memory, shared by all nodes. */
export async function sqliteStorage(): Promise<Storage> {
  const database = openSqlite(":memory:");
  await database.migrate();
  const { connection } = database;
  const written: { table: TableName; key: Value[] }[] = [];
  const known: { [T in TableName]: Map<string, Rows[T]> } = {
    ...{ accounts: new Map(), envelopes: new Map(), messages: new Map(), deduplications: new Map() },
    ...{ deadLetters: new Map(), lines: new Map(), log: new Map(), flows: new Map(), slots: new Map() },
    ...{ groups: new Map(), schedules: new Map(), sources: new Map(), tokens: new Map(), rejections: new Map(), marks: new Map() },
    ...{
      runs: new Map(),
      activeRuns: new Map(),
      steps: new Map(),
      waiters: new Map(),
      notifications: new Map(),
      usage: new Map(),
      dayCounts: new Map(),
      audit: new Map(),
    },
  };

  /** Notes the keys of whatever is written. */
  const watched: SqliteDatabase["connection"] = {
    ...connection,
    each: (sql, types, rows) => {
      const [, verb, name] = /^(insert into|update|delete from) (\w+)/.exec(sql) ?? [];
      const table = tableNames.find((table) => shapes[table].name === name);
      if (table) for (const row of rows) written.push({ table, key: verb === "delete from" ? [...row] : keyValues(table, row) });
      return connection.each(sql, types, rows);
    },
  };

  async function compare<T extends TableName>(table: T, key: readonly Value[], changes: Changes): Promise<void> {
    const shape: Table<Rows[T]> = shapes[table];
    const rows: Map<string, Rows[T]> = known[table];
    const where = shape.key.map((column) => `${column} = ?`).join(" and ");
    const [found] = await connection.query(`select ${Object.keys(shape.columns).join(", ")} from ${shape.name} where ${where}`, key);
    const after = found && shape.read(found);
    const text = key.join("\n");
    const before = rows.get(text);
    if (isDeepStrictEqual(before, after)) return;
    changes[table].push({ before, after });
    if (after) rows.set(text, after);
    else rows.delete(text);
  }

  return {
    open: (source) => ({
      runBatch: (calls, hands) =>
        runSqlBatch({ ...database, transaction: (run) => database.transaction(() => run(watched)) }, source, calls, hands),
      read: queriesOf(sqlShelf(connection)),
      nextDueAt: () => nextDueAt(connection),
      close: async () => undefined,
    }),
    tables: known,
    changes: async () => {
      const changes = noChanges();
      for (const { table, key } of written.splice(0)) await compare(table, key, changes);
      return changes;
    },
    close: () => database.close(),
  };
}

function keyValues(table: TableName, row: readonly Value[]): Value[] {
  const { key, columns } = shapes[table];
  const names = Object.keys(columns);
  return key.map((column) => row[names.indexOf(column)] ?? null);
}
