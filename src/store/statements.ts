import type { Key, TableName } from "../core/command.ts";
import type { Dialect } from "./database.ts";
import type { Bodies } from "./shelf.ts";
import type { ColumnType, Shape, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** The statements that every table has, in the words of one database. */
export type Statements = {
  types: readonly ColumnType[];
  keyTypes: readonly ColumnType[];
  insert: string;
  /** Where rows are read without a lock, it is given each row as it shall be and as it was read, and answers those it changed. */
  update: string;
  updateTypes: readonly ColumnType[];
  remove: string;
  whole: ByKey;
  /** Without bodies. */
  outline: ByKey;
  /** Ids and sizes of bodies by key; only of tables that have bodies. */
  sizes: string;
};

/** Rows by key: `take` locks them where several nodes may change them, `look` reads them as they are. */
type ByKey = { take: string; look: string };

const written = new WeakMap<Dialect, Partial<Record<TableName, Statements>>>();

/** Written once for each database and table: they stand on the way of every batch. */
export function statementsOf(dialect: Dialect, name: TableName): Statements {
  let known = written.get(dialect);
  if (!known) written.set(dialect, (known = {}));
  return (known[name] ??= write(dialect, tables[name]));
}

function write(dialect: Dialect, table: Shape): Statements {
  const types = Object.values(table.columns);
  const keyTypes = table.key.map((): ColumnType => "text");
  const byKey = dialect.given(keyTypes);
  const isGiven = table.key.map((column, index) => `${table.name}.${column} = ${byKey.column(index)}`).join(" and ");
  // What is gone although its row is still there is not found by its key either.
  const isKept = table.name === "log" && dialect.forgottenUpTo ? ` and log.id > ${dialect.forgottenUpTo("log.account")}` : "";
  const select = (columns: string): string => `select ${columns} from ${table.name}${byKey.also} where ${isGiven}${isKept}`;
  const lock = table.unlocked ? "" : dialect.lockInOrder(table.name, table.key);
  const both = (look: string): ByKey => ({ look, take: look + lock });
  return {
    types,
    keyTypes,
    insert: `insert into ${table.name} (${Object.keys(table.columns).join(", ")}) ${dialect.given(types).values}`,
    update: update(dialect, table),
    updateTypes: table.unlocked ? [...types, ...types] : types,
    remove: `delete from ${table.name}${byKey.using} where ${isGiven}`,
    whole: both(select(columnsOf(table))),
    outline: both(select(columnsOf(table, { bodies: false }))),
    sizes: select(`${table.name}.id, coalesce(length(${table.name}.body), 0) as size`),
  };
}

function update(dialect: Dialect, table: Shape): string {
  const names = Object.keys(table.columns);
  const types = Object.values(table.columns);
  const given = dialect.given(table.unlocked ? [...types, ...types] : types);
  const equals = (column: string, index: number): string => `${table.name}.${column} = ${given.column(index)}`;
  // A key never changes, and setting it to what it is would cost as much as moving the row.
  const sets = names.flatMap((column, index) => (table.key.includes(column) ? [] : [`${column} = ${given.column(index)}`]));
  const wheres = table.key.map((column) => equals(column, names.indexOf(column)));
  const unchanged = table.unlocked ? names.map((column, index) => equals(column, names.length + index)) : [];
  const returning = table.unlocked ? ` returning 1 as changed` : "";
  return `update ${table.name} set ${sets.join(", ")}${given.from} where ${[...wheres, ...unchanged].join(" and ")}${returning}`;
}

/** The columns of a table, as a select names them. */
export function columnsOf(table: Shape, { bodies }: Bodies = {}): string {
  const known = bodies === false ? outlineColumns : wholeColumns;
  let columns = known.get(table);
  if (columns === undefined) known.set(table, (columns = columnNames(table, bodies !== false)));
  return columns;
}

const wholeColumns = new WeakMap<Shape, string>();
const outlineColumns = new WeakMap<Shape, string>();

const columnNames = ({ name, columns }: Shape, bodies: boolean): string =>
  Object.keys(columns)
    .filter((column) => bodies || column !== "body")
    .map((column) => `${name}.${column}`)
    .join(", ");

/** A key as the values of its columns. */
export const keyValues = (key: Key): Value[] => key.filter((part) => part !== undefined);
