import { isDeepStrictEqual } from "node:util";
import type { Key, Rows, TableName } from "../../src/core/decision/command.ts";
import type { Connection, Dialect } from "../../src/store/sql/database.ts";
import { rows } from "../../src/store/sql/rows.ts";
import { statementsOf } from "../../src/store/sql/statements.ts";
import { tableNames } from "../../src/store/store.ts";
import type { Value } from "../../src/store/sql/tables.ts";
import { tables as shapes } from "../../src/store/sql/tables.ts";
import type { Changes } from "./changes.ts";
import { noChanges } from "./changes.ts";

/** The key of a row that a statement has made, changed or removed. */
export type Written = { table: TableName; key: string[] };

/** Knows the rows of a database as they were when it last looked, and what has become of those that were written since. */
export class RowWatch {
  readonly tables: { [T in TableName]: Map<string, Rows[T]> } = {
    ...{ accounts: new Map(), envelopes: new Map(), messages: new Map(), deduplications: new Map() },
    ...{ deadLetters: new Map(), lines: new Map(), log: new Map(), keptLog: new Map(), flows: new Map(), slots: new Map() },
    ...{ groups: new Map(), schedules: new Map(), sources: new Map(), tokens: new Map(), rejections: new Map(), marks: new Map() },
    sightings: new Map(),
    ...{ runs: new Map(), activeRuns: new Map(), steps: new Map(), waiters: new Map(), notifications: new Map() },
    ...{ usage: new Map(), dayCounts: new Map(), secondCounts: new Map(), audit: new Map() },
  };
  readonly #written: Written[] = [];

  /** The same connection, but it notes whatever is written over it. */
  noting(connection: Connection, written: Written[]): Connection {
    return {
      ...connection,
      each: (sql, types, rows) => {
        for (const row of rows) written.push(...this.#writtenBy(sql, row, connection.dialect));
        return connection.each(sql, types, rows);
      },
    };
  }

  /** These were written, and are there for all to see. */
  add(written: readonly Written[]): void {
    this.#written.push(...written);
  }

  /** Looks at what was written since the last time, in the order in which it was. */
  async changes(connection: Connection): Promise<Changes> {
    const changes = noChanges();
    const written = this.#written.splice(0);
    const comparing = [...new Set(written.map(({ table }) => table))].map((name) => {
      const keys = new Map(written.flatMap(({ table, key }) => (table === name ? [[key.join("\n"), key] as const] : [])));
      return this.#compare(name, [...keys.values()], { changes, connection });
    });
    await Promise.all(comparing);
    return changes;
  }

  async #compare<T extends TableName>(
    table: T,
    keys: readonly string[][],
    of: { changes: Changes; connection: Connection },
  ): Promise<void> {
    const known: Map<string, Rows[T]> = this.tables[table];
    const found = await rows(of.connection, table, keys as unknown as Key[], { to: "look" });
    const now = new Map(found.map((row) => [keyOf(table, Object.values(shapes[table].write(row))).join("\n"), row]));
    for (const key of keys) {
      const text = key.join("\n");
      const [before, after] = [known.get(text), now.get(text)];
      if (isDeepStrictEqual(before, after)) continue;
      of.changes[table].push({ before, after });
      if (after) known.set(text, after);
      else known.delete(text);
    }
  }

  #writtenBy(sql: string, row: readonly Value[], dialect: Dialect): Written[] {
    const [, verb, name] = /^(insert into|update|delete from) (\w+)/.exec(sql) ?? [];
    if (name === "log_cuts") return this.#forgotten(row);
    const table = tableNames.find((table) => shapes[table].name === name);
    if (!table) return [];
    if (verb === "delete from") return [{ table, key: row.map(String) }];
    if (verb === "insert into") return [{ table, key: keyOf(table, row) }];
    const { places } = statementsOf(dialect, table).update;
    const names = Object.keys(shapes[table].columns);
    return [{ table, key: shapes[table].key.map((column) => String(row[places.indexOf(names.indexOf(column))] ?? "")) }];
  }

  /** All lines of an account up to one of them. */
  #forgotten([account, upTo]: readonly Value[]): Written[] {
    const lines = [...this.tables.log.values()].filter((line) => line.account === account && line.id <= String(upTo));
    return lines.map(({ account, id }) => ({ table: "log", key: [account, id] }));
  }
}

function keyOf(table: TableName, row: readonly Value[]): string[] {
  const { key, columns } = shapes[table];
  const names = Object.keys(columns);
  return key.map((column) => String(row[names.indexOf(column)] ?? ""));
}
