import type { Key, Rows, TableName } from "../../core/decision/command.ts";
import type { Connection, Dialect } from "./database.ts";
import type { Bodies, Range } from "../queries/storageReads.ts";
import { columnsOf, inLockOrder, keyValues, statementsOf } from "./statements.ts";
import { StorageRefused } from "../store.ts";
import type { Columns, Table, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** Rows by their keys, in no order; those that are not there are absent. */
export async function rows<T extends TableName>(connection: Connection, name: T, keys: readonly Key[], how: How): Promise<Rows[T][]> {
  const table: Table<Rows[T]> = tables[name];
  const statements = statementsOf(connection.dialect, name);
  const statement = statements[how.bodies === false ? "outline" : "whole"][how.to];
  const values = keys.map(keyValues);
  // Nodes that want the same rows take them in the same order, so as not to wait for each other in a circle.
  if (how.to === "take" && !table.unlocked && connection.dialect.lock(table.name) !== "") values.sort(inLockOrder(table));
  const found = await connection.each(statement, statements.keyTypes, values);
  return readRows(connection, table, found);
}

/** Returns the rows that columns say, and tells what is damaged of them. Throws `StorageRefused` if one says nothing at all. */
export function readRows<Row>({ seals, foundDamaged }: Connection, table: Table<Row>, found: readonly Columns[]): Row[] {
  return found.map((columns) => {
    const key = table.key.map((name) => String(columns[name]));
    try {
      const row = table.read(columns, seals);
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
export type How = { to: "take" | "look" } & Bodies;

/** Reads rows of one table. `rest` is what follows its name. */
export const reader =
  (connection: Connection) =>
  async <Row>(table: Table<Row>, rest: string, values: Value[], how?: Bodies): Promise<Row[]> =>
    readRows(connection, table, await connection.query(`select ${columnsOf(table, how)} from ${table.name} ${rest}`, values));

/** Rows of a run, by their ids: in the order of ids. */
export const within = `where account = ? and id > ? and id < ? order by id`;
type Stretch = Pick<Range, "account" | "after" | "before">;

export function stretch(
  { account, after, before }: Stretch,
  { of, dialect }: { of: TableName; dialect: Dialect },
): { where: string; values: Value[] } {
  const id = tables[of].key.at(-1) ?? "id";
  const conditions: [string, Value][] = [["account = ?", account]];
  if (after !== undefined) conditions.push([`${id} > ?`, after]);
  if (before !== undefined) conditions.push([`${id} < ?`, before]);
  if (of === "log" && dialect.forgottenUpTo) conditions.push([`${id} > ${dialect.forgottenUpTo("?")}`, account]);
  return { where: `where ${conditions.map(([text]) => text).join(" and ")}`, values: conditions.map(([, value]) => value) };
}

/** Rows of a stretch, counted up to its limit. */
export async function countIn(connection: Connection, name: TableName, range: Range): Promise<number> {
  const { where, values } = stretch(range, { of: name, dialect: connection.dialect });
  const counted = `select count(*) as n from (select 1 as one from ${tables[name].name} ${where} limit ?) as counted`;
  const [row] = await connection.query(counted, [...values, range.limit]);
  return Number(row?.n ?? 0);
}
