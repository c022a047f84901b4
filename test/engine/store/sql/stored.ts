import { expect } from "vitest";
import type { Rows, TableName } from "../../../../src/engine/core/decision/command.ts";
import type { Usage } from "../../../../src/engine/core/model/counts.ts";
import type { DatabaseConnection } from "../../../../src/engine/store/sql/database.ts";
import type { Memory } from "../../../model/memoryStore.ts";
import type { Columns, Table } from "../../../../src/engine/store/catalog/tables.ts";
import { tables } from "../../../../src/engine/store/catalog/tables.ts";

/** The tables whose rows are weighed, and the columns that are weighed in addition to 100 bytes per row. */
const weighedColumns = {
  storedMessages: ["detail", "body"],
  log: ["detail", "body"],
  keptLog: ["detail", "body"],
  deadLetters: ["detail", "body"],
  runs: ["detail", "body"],
  steps: ["detail", "body"],
  notifications: ["body"],
  schedules: ["detail", "body"],
  waiters: ["detail"],
  urlGroups: ["detail"],
  rejections: ["detail", "body"],
  keptCalls: ["detail"],
  audit: ["detail"],
} as const satisfies { [T in TableName]?: readonly ("detail" | "body")[] };

type WeighedTable = keyof typeof weighedColumns;
/** The tables whose rows count towards stored bytes. */
export const weighedNames = Object.keys(weighedColumns) as WeighedTable[];

/** Returns the weight of a row from its columns. */
const readWeight = (name: WeighedTable, columns: Columns): number =>
  weighedColumns[name].reduce(
    (sum, part) => sum + Buffer.from((columns[part] as string | Uint8Array | null) ?? "").byteLength,
    100,
  );

/** Returns the weight of a row as a memory store holds it. */
export function weighRow<T extends WeighedTable>(name: T, row: Rows[T]): number {
  const table: Table<Rows[T]> = tables[name];
  return readWeight(name, table.write(row));
}

type Sums = Record<string, number>;

/** Returns the sums of weights by account. Accounts that store nothing are omitted. */
function sumByAccount(weights: Iterable<readonly [account: string, bytes: number]>): Sums {
  const sums: Sums = {};
  for (const [account, bytes] of weights) sums[account] = (sums[account] ?? 0) + bytes;
  return Object.fromEntries(Object.entries(sums).filter(([, sum]) => sum !== 0));
}

/** Returns the stored bytes of accounts according to the largest usage buckets. */
const sumBuckets = (usage: readonly Pick<Usage, "account" | "id" | "storedBytes">[]): Sums =>
  sumByAccount(
    usage.filter(({ id }) => id.startsWith("3h/")).map(({ account, storedBytes }) => [account, storedBytes]),
  );

/**
 * Expects the stored bytes of accounts to equal the weight of all rows of a memory store. Deleted accounts
 * are not checked.
 */
export function expectStoredBytes(rowsOf: <T extends TableName>(table: T) => readonly Rows[T][]): void {
  const deleted = new Set(
    rowsOf("accounts").flatMap(({ id, deletedAt }) => (deletedAt === undefined ? [] : [id])),
  );
  const others = (sums: Sums): Sums =>
    Object.fromEntries(Object.entries(sums).filter(([account]) => !deleted.has(account)));
  const rows = weighedNames.flatMap((name) =>
    rowsOf(name).map((row) => [row.account, weighRow(name, row)] as const),
  );
  expect(others(sumBuckets(rowsOf("usage"))), "stored bytes equal the weight of all rows").toEqual(
    others(sumByAccount(rows)),
  );
}

/** Expects the stored bytes of accounts to equal the weight of all rows in memory. */
export const expectStoredBytesInMemory = ({ tables: rows }: Memory): void =>
  expectStoredBytes(<T extends TableName>(table: T) => [...(rows[table] as Map<string, Rows[T]>).values()]);

/** Expects the stored bytes of accounts to equal the weight of all rows in a database. */
export async function expectStoredBytesInDatabase(
  connection: Pick<DatabaseConnection, "query">,
): Promise<Sums> {
  const weights: (readonly [string, number])[] = [];
  for (const name of weighedNames)
    for (const columns of await connection.query(`select * from ${tables[name].name}`, []))
      weights.push([String(columns.account), readWeight(name, columns)]);
  const usage = (await connection.query("select * from usage", [])).map((row) => tables.usage.read(row));
  const sums = sumByAccount(weights);
  expect(sumBuckets(usage), "stored bytes equal the weight of all rows").toEqual(sums);
  return sums;
}
