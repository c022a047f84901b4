import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import type { BodyOptions, Range } from "../layout/storageReads.ts";
import { listColumns, inLockOrder, keyValues, getStatements } from "./statements.ts";
import { StorageRefused } from "../layout/storageErrors.ts";
import type { Columns, Table, Value } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";

/** Reads rows by their keys, in no order. Missing rows are omitted. */
export async function readRowsByKey<T extends TableName>(
  connection: DatabaseConnection,
  name: T,
  { keys, mode, bodies }: KeyRead,
): Promise<Rows[T][]> {
  const table: Table<Rows[T]> = tables[name];
  const statements = getStatements(connection.dialect, name);
  const statement = statements[bodies === false ? "withoutBody" : "whole"][mode];
  const values = keys.map(keyValues);
  // All nodes lock rows in the same order, so that they do not deadlock.
  if (mode === "locking" && !table.unlocked && connection.dialect.lock(table.name) !== "")
    values.sort(inLockOrder(table));
  const found = await connection.each(statement, statements.keyTypes, values);
  return toRows(connection, table, found);
}

/** Reads a row by its key at once. Returns undefined if it does not exist. */
export function readRowNow<T extends TableName>(
  connection: DatabaseConnection & Required<Pick<DatabaseConnection, "now">>,
  name: T,
  { key, bodies }: { key: Key } & BodyOptions,
): Rows[T] | undefined {
  const table: Table<Rows[T]> = tables[name];
  const statement = getStatements(connection.dialect, name)[bodies === false ? "withoutBody" : "whole"]
    .locking;
  const found = connection.now(statement, keyValues(key));
  return found.length === 0 ? undefined : toRows(connection, table, found)[0];
}

/**
 * Returns the rows that columns represent, and reports damaged rows. Throws `StorageRefused` if a row cannot
 * be read at all.
 */
export function toRows<Row>(
  { cipher, foundDamaged }: DatabaseConnection,
  table: Table<Row>,
  found: readonly Columns[],
): Row[] {
  return found.map((columns) => {
    const key = table.key.map((name) => String(columns[name]));
    try {
      const row = table.read(columns, cipher);
      if ("checksum" in columns && "damaged" in (row as object)) foundDamaged?.(table.name, key);
      return row;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      foundDamaged?.(table.name, key);
      throw new StorageRefused(`${table.name} ${key.join(" ")}: damaged and unreadable; restore a backup`, {
        cause: error,
      });
    }
  });
}

/** Rows to read by key. With `locking`, no other node can change the rows until the transaction ends. */
type KeyRead = { keys: readonly Key[]; mode: "locking" | "plain" } & BodyOptions;

/** A read of one table: the SQL that follows the table's name, and its parameters. */
type TableRead = { rest: string; values: Value[] } & BodyOptions;

/** Returns a function that reads rows of one table. */
export const createReader =
  (connection: DatabaseConnection) =>
  async <Row>(table: Table<Row>, { rest, values, bodies }: TableRead): Promise<Row[]> =>
    toRows(
      connection,
      table,
      await connection.query(`select ${listColumns(table, { bodies })} from ${table.name} ${rest}`, values),
    );

/** The condition and the order of a range of ids of an account. */
export const idRangeClause = `where account = ? and id > ? and id < ? order by id`;
type IdRange = Pick<Range, "account" | "after" | "before">;

/**
 * Returns the condition for a range, and the values of its parameters. Log entries that count as removed
 * (`Dialect.logForgottenUpTo`) are excluded.
 */
export function makeRangeClause(
  { account, after, before }: IdRange,
  { tableName, dialect }: { tableName: TableName; dialect: Dialect },
): { where: string; values: Value[] } {
  const id = tables[tableName].key.at(-1) ?? "id";
  const conditions: [string, Value][] = [["account = ?", account]];
  if (after !== undefined) conditions.push([`${id} > ?`, after]);
  if (before !== undefined) conditions.push([`${id} < ?`, before]);
  if (tableName === "log" && dialect.logForgottenUpTo)
    conditions.push([`${id} > ${dialect.logForgottenUpTo("?")}`, account]);
  return {
    where: `where ${conditions.map(([text]) => text).join(" and ")}`,
    values: conditions.map(([, value]) => value),
  };
}

/** Counts the rows of a range, up to its limit. */
export async function countRange(
  connection: DatabaseConnection,
  name: TableName,
  range: Range,
): Promise<number> {
  const { where, values } = makeRangeClause(range, { tableName: name, dialect: connection.dialect });
  const found = `select 1 as one from ${tables[name].name} ${where} limit ?`;
  const sql = `select count(*) as n from (${found}) as counted`;
  const [row] = await connection.query(sql, [...values, range.limit]);
  return Number(row?.n ?? 0);
}
