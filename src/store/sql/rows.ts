import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import type { BodyOptions, Range } from "../queries/storageReads.ts";
import { listColumns, inLockOrder, keyValues, getStatements } from "./statements.ts";
import { StorageRefused } from "../store.ts";
import type { Columns, Table, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** Rows by their keys, in no order; those that are not there are absent. */
export async function readRowsByKey<T extends TableName>(
  connection: DatabaseConnection,
  name: T,
  keys: readonly Key[],
  options: ReadMode,
): Promise<Rows[T][]> {
  const table: Table<Rows[T]> = tables[name];
  const statements = getStatements(connection.dialect, name);
  const statement = statements[options.bodies === false ? "withoutBody" : "whole"][options.mode];
  const values = keys.map(keyValues);
  // Nodes that want the same rows take them in the same order, so as not to wait for each other in a circle.
  if (options.mode === "locking" && !table.unlocked && connection.dialect.lock(table.name) !== "") values.sort(inLockOrder(table));
  const found = await connection.each(statement, statements.keyTypes, values);
  return toRows(connection, table, found);
}

/** Returns the rows that columns say, and tells what is damaged of them. Throws `StorageRefused` if one says nothing at all. */
export function toRows<Row>({ cipher, foundDamaged }: DatabaseConnection, table: Table<Row>, found: readonly Columns[]): Row[] {
  return found.map((columns) => {
    const key = table.key.map((name) => String(columns[name]));
    try {
      const row = table.read(columns, cipher);
      if ("checksum" in columns && "damaged" in (row as object)) foundDamaged?.(table.name, key);
      return row;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      foundDamaged?.(table.name, key);
      throw new StorageRefused(`${table.name} ${key.join(" ")}: damaged, and cannot be read; restore a backup`, { cause: error });
    }
  });
}

/** To take rows away from other nodes, or to look at them. */
export type ReadMode = { mode: "locking" | "plain" } & BodyOptions;

/** Reads rows of one table. `rest` is what follows its name. */
export const createReader =
  (connection: DatabaseConnection) =>
  async <Row>(table: Table<Row>, rest: string, values: Value[], options?: BodyOptions): Promise<Row[]> =>
    toRows(connection, table, await connection.query(`select ${listColumns(table, options)} from ${table.name} ${rest}`, values));

/** Rows of a run, by their ids: in the order of ids. */
export const idRangeClause = `where account = ? and id > ? and id < ? order by id`;
type IdRange = Pick<Range, "account" | "after" | "before">;

export function makeRangeClause(
  { account, after, before }: IdRange,
  { tableName, dialect }: { tableName: TableName; dialect: Dialect },
): { where: string; values: Value[] } {
  const id = tables[tableName].key.at(-1) ?? "id";
  const conditions: [string, Value][] = [["account = ?", account]];
  if (after !== undefined) conditions.push([`${id} > ?`, after]);
  if (before !== undefined) conditions.push([`${id} < ?`, before]);
  if (tableName === "log" && dialect.logForgottenUpTo) conditions.push([`${id} > ${dialect.logForgottenUpTo("?")}`, account]);
  return { where: `where ${conditions.map(([text]) => text).join(" and ")}`, values: conditions.map(([, value]) => value) };
}

/** Rows of a stretch, counted up to its limit. */
export async function countRange(connection: DatabaseConnection, name: TableName, range: Range): Promise<number> {
  const { where, values } = makeRangeClause(range, { tableName: name, dialect: connection.dialect });
  const counted = `select count(*) as n from (select 1 as one from ${tables[name].name} ${where} limit ?) as counted`;
  const [row] = await connection.query(counted, [...values, range.limit]);
  return Number(row?.n ?? 0);
}
