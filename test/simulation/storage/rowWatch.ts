import { isDeepStrictEqual } from "node:util";
import type { Key, Rows, TableName } from "../../../src/engine/core/decision/command.ts";
import type { DatabaseConnection, Dialect } from "../../../src/engine/store/sql/database.ts";
import { readRowsByKey } from "../../../src/engine/store/sql/rows.ts";
import { getStatements } from "../../../src/engine/store/sql/statements.ts";
import { tableNames } from "../../../src/engine/store/catalog/order.ts";
import type { Value } from "../../../src/engine/store/catalog/tables.ts";
import { tables as shapes } from "../../../src/engine/store/catalog/tables.ts";
import type { Changes } from "./changes.ts";
import { noChanges } from "./changes.ts";

/** The key of a row that a statement has inserted, updated or deleted. */
export type Written = { table: TableName; key: string[] };

/** Returns a name for a row of any table. */
const nameRow = (table: TableName, ...key: readonly string[]): string => [table, ...key].join("\n");

/** Compares the rows of a database with their previous state, for rows that were written since. */
export class RowWatch {
  readonly tables: { [T in TableName]: Map<string, Rows[T]> } = {
    accounts: new Map(),
    storedMessages: new Map(),
    messages: new Map(),
    deduplications: new Map(),
    deadLetters: new Map(),
    hostWaitlists: new Map(),
    log: new Map(),
    keptLog: new Map(),
    limiters: new Map(),
    queueSlots: new Map(),
    urlGroups: new Map(),
    schedules: new Map(),
    sources: new Map(),
    tokens: new Map(),
    rejections: new Map(),
    tags: new Map(),
    timeIndex: new Map(),
    runs: new Map(),
    activeRuns: new Map(),
    steps: new Map(),
    waiters: new Map(),
    notifications: new Map(),
    usage: new Map(),
    dayCounts: new Map(),
    secondCounts: new Map(),
    audit: new Map(),
    jobs: new Map(),
    outboxes: new Map(),
    alerts: new Map(),
    keptCalls: new Map(),
    series: new Map(),
    serverSettings: new Map(),
  };
  readonly #written: Written[] = [];
  /** The rows that each transaction has written, in the order of the commits. */
  readonly #commits: (readonly Written[])[] = [];

  /** Returns the same connection, with its writes recorded. */
  recordWrites(connection: DatabaseConnection, written: Written[]): DatabaseConnection {
    return {
      ...connection,
      each: (sql, types, rows) => {
        for (const row of rows) written.push(...this.#listWritten(sql, row, connection.dialect));
        return connection.each(sql, types, rows);
      },
    };
  }

  /** Marks recorded writes as committed. */
  add(written: readonly Written[]): void {
    this.#written.push(...written);
    this.#commits.push(written);
  }

  /** The number of transactions that have been committed. */
  get commits(): number {
    return this.#commits.length;
  }

  /** Returns the rows that were written by the transactions after the first `count`, by `nameRow`. */
  listWrittenAfter(count: number): ReadonlySet<string> {
    const rows = this.#commits.slice(count).flat();
    return new Set(rows.map(({ table, key }) => nameRow(table, ...key)));
  }

  /** Returns the changes since the last time, in order. */
  async changes(connection: DatabaseConnection): Promise<Changes> {
    const changes = noChanges();
    const written = this.#written.splice(0);
    const comparing = [...new Set(written.map(({ table }) => table))].map((name) => {
      const keys = new Map(
        written.flatMap(({ table, key }) => (table === name ? [[key.join("\n"), key] as const] : [])),
      );
      return this.#compare(name, [...keys.values()], { changes, connection });
    });
    await Promise.all(comparing);
    return changes;
  }

  async #compare<T extends TableName>(
    table: T,
    keys: readonly string[][],
    of: { changes: Changes; connection: DatabaseConnection },
  ): Promise<void> {
    const known: Map<string, Rows[T]> = this.tables[table];
    const found = await readRowsByKey(of.connection, table, {
      keys: keys as unknown as Key[],
      mode: "plain",
    });
    const now = new Map(
      found.map((row) => [readKey(table, Object.values(shapes[table].write(row))).join("\n"), row]),
    );
    for (const key of keys) {
      const text = key.join("\n");
      const before = known.get(text);
      const after = now.get(text);
      if (isDeepStrictEqual(before, after)) continue;
      of.changes[table].push({ before, after });
      if (after) known.set(text, after);
      else known.delete(text);
    }
  }

  #listWritten(sql: string, row: readonly Value[], dialect: Dialect): Written[] {
    const [, verb, name] = /^(insert into|update|delete from) (\w+)/.exec(sql) ?? [];
    if (name === "log_cuts") return this.#listRemoved(row);
    const table = tableNames.find((table) => shapes[table].name === name);
    if (!table) return [];
    if (verb === "delete from") return [{ table, key: row.map(String) }];
    if (verb === "insert into") return [{ table, key: readKey(table, row) }];
    const { positions } = getStatements(dialect, table).update;
    const names = Object.keys(shapes[table].columns);
    return [
      {
        table,
        key: shapes[table].key.map((column) => String(row[positions.indexOf(names.indexOf(column))] ?? "")),
      },
    ];
  }

  /** Returns all log rows of an account up to one of them. */
  #listRemoved([account, upTo]: readonly Value[]): Written[] {
    const lines = [...this.tables.log.values()].filter(
      (line) => line.account === account && line.id <= String(upTo),
    );
    return lines.map(({ account, id }) => ({ table: "log", key: [account, id] }));
  }
}

function readKey(table: TableName, row: readonly Value[]): string[] {
  const { key, columns } = shapes[table];
  const names = Object.keys(columns);
  return key.map((column) => String(row[names.indexOf(column)] ?? ""));
}
