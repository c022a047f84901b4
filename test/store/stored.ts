import { expect } from "vitest";
import type { Rows, TableName } from "../../src/core/command.ts";
import type { Usage } from "../../src/core/counts.ts";
import type { Connection } from "../../src/store/database.ts";
import type { Memory } from "../../src/store/memory.ts";
import type { Columns, Table } from "../../src/store/tables.ts";
import { tables } from "../../src/store/tables.ts";

/** The tables that are weighed, and what is weighed of their rows besides 100 bytes for each. */
const weighed = {
  ...{ envelopes: ["detail", "body"], log: ["detail", "body"], keptLog: ["detail", "body"], deadLetters: ["detail", "body"] },
  ...{ runs: ["detail", "body"], steps: ["detail", "body"], notifications: ["body"], schedules: ["detail", "body"] },
  ...{ groups: ["detail"], rejections: ["detail", "body"], audit: ["detail"] },
} as const satisfies { [T in TableName]?: readonly ("detail" | "body")[] };

const names = Object.keys(weighed) as (keyof typeof weighed)[];

type Sums = Record<string, number>;

/** Recounts what accounts store, from all rows of all tables. Accounts that store nothing are absent. */
function recounted(columnsOf: (name: keyof typeof weighed) => readonly Columns[]): Sums {
  const sums: Sums = {};
  for (const name of names)
    for (const columns of columnsOf(name)) {
      const account = String(columns.account);
      sums[account] = (sums[account] ?? 0) + 100;
      for (const part of weighed[name]) sums[account] += Buffer.from((columns[part] as string | Uint8Array | null) ?? "").byteLength;
    }
  return sums;
}

/** What the largest buckets say of that. */
function counted(usage: readonly Pick<Usage, "account" | "id" | "storedBytes">[]): Sums {
  const sums: Sums = {};
  for (const { account, id, storedBytes } of usage)
    if (id.startsWith("3h/") && storedBytes !== 0) sums[account] = (sums[account] ?? 0) + storedBytes;
  return Object.fromEntries(Object.entries(sums).filter(([, sum]) => sum !== 0));
}

/** Rows by table, as a memory store has them. Of deleted accounts nothing is counted. */
export function expectCounted(rowsOf: <T extends TableName>(table: T) => readonly Rows[T][]): void {
  const deleted = new Set(rowsOf("accounts").flatMap(({ id, deletedAt }) => (deletedAt === undefined ? [] : [id])));
  const others = (sums: Sums): Sums => Object.fromEntries(Object.entries(sums).filter(([account]) => !deleted.has(account)));
  const written = (name: keyof typeof weighed): Columns[] => {
    const table = tables[name] as Table<Rows[typeof name]>;
    return rowsOf(name).map((row) => table.write(row));
  };
  expect(others(counted(rowsOf("usage"))), "stored bytes are those of all rows").toEqual(others(recounted(written)));
}

export const expectCountedIn = ({ tables: rows }: Memory): void =>
  expectCounted(<T extends TableName>(table: T) => [...(rows[table] as Map<string, Rows[T]>).values()]);

/** The same in a database, by what is really there. */
export async function expectCountedOnDisk(connection: Pick<Connection, "query">): Promise<Sums> {
  const found = new Map<string, Columns[]>();
  for (const name of names) found.set(name, await connection.query(`select * from ${tables[name].name}`, []));
  const usage = (await connection.query("select * from usage", [])).map((row) => tables.usage.read(row));
  const sums = recounted((name) => found.get(name) ?? []);
  expect(counted(usage), "stored bytes are those of all rows").toEqual(sums);
  return sums;
}
