import type { Key, TableName } from "../../core/decision/command.ts";
import type { Dialect } from "./database.ts";
import type { Bodies } from "../queries/storageReads.ts";
import { weightInSql } from "./storedBytes.ts";
import type { ColumnType, Shape, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** The statements that every table has, in the words of one database. */
export type Statements = {
  types: readonly ColumnType[];
  keyTypes: readonly ColumnType[];
  insert: string;
  update: Update;
  /** Answers the account and the weight of each row that it has removed, of tables whose rows are weighed. */
  remove: string;
  whole: ByKey;
  /** Without bodies. */
  outline: ByKey;
  /** Ids and sizes of bodies by key; only of tables that have bodies. */
  sizes: string;
};

/**
 * Changes rows. It is given what may change of each, and its key: the values at these `places` among those of all columns. Where rows are
 * read without a lock, it is given all that was read as well, and answers those it changed.
 */
type Update = { sql: string; types: readonly ColumnType[]; places: readonly number[] };

/** Rows by key: `take` locks them where several nodes may change them, `look` reads them as they are. */
type ByKey = { take: string; look: string };

const written = new WeakMap<Dialect, Partial<Record<TableName, Statements>>>();

/** Written once for each database and table: they stand on the way of every batch. */
export function statementsOf(dialect: Dialect, name: TableName): Statements {
  let known = written.get(dialect);
  if (!known) written.set(dialect, (known = {}));
  return (known[name] ??= write(dialect, name));
}

function write(dialect: Dialect, name: TableName): Statements {
  const table: Shape = tables[name];
  const types = Object.values(table.columns);
  const keyTypes = table.key.map((): ColumnType => "text");
  const byKey = dialect.given(keyTypes);
  const isGiven = equalTo(table, byKey.column);
  // What is gone although its row is still there is not found by its key either.
  const isKept = table.name === "log" && dialect.forgottenUpTo ? ` and log.id > ${dialect.forgottenUpTo("log.account")}` : "";
  const weight = weightInSql(name);
  const select = (columns: string, lock = ""): string => {
    const found = `select ${columns} from ${table.name} where ${isGiven}${isKept}${lock}`;
    return eachByItself(byKey, table.name, found);
  };
  const both = (columns: string): ByKey => ({
    look: select(columns),
    take: select(columns, table.unlocked ? "" : dialect.lock(table.name)),
  });
  return {
    types,
    keyTypes,
    insert: `insert into ${table.name} (${Object.keys(table.columns).join(", ")}) ${dialect.given(types).values}${table.repeatable ? " on conflict do nothing" : ""}`,
    update: update(dialect, table),
    remove: `delete from ${table.name}${byKey.using} where ${isRow(dialect, table, byKey.column)}${weight === null ? "" : ` returning account, ${weight} as weight`}`,
    whole: both(columnsOf(table)),
    outline: both(columnsOf(table, { bodies: false })),
    sizes: select(`${table.name}.id, coalesce(length(${table.name}.body), 0) as size`),
  };
}

/**
 * What is found for each row that is given. Where these are a relation, each is looked up by itself, in a subquery that stays one because
 * of its `offset 0`, whatever the database believes of the table: see docs/decisions/0041.
 */
export const eachByItself = ({ also }: { also: string }, name: string, found: string): string =>
  also === "" ? found : `select ${name}.* from (select 1 as one) as one${also}, lateral (${found} offset 0) as ${name}`;

/**
 * That a column has a value, as a range that is read in the order of an index: with the columns before it equal, and its order asked for,
 * no other index that begins like that one will do.
 */
export const isValue = (column: string, value: string): string => `${column} >= ${value} and ${column} <= ${value}`;

type Found = { of: { also: string }; ofOne(columns: string): string };

/** The same where rows are locked: first their keys alone, of all that is given, then the rows in the order in which everybody takes them. */
export function inOrderOfKeys(dialect: Dialect, table: Shape, { of, ofOne }: Found): string {
  const { name, key } = table;
  if (of.also === "") return ofOne(columnsOf(table)) + dialect.lock(name);
  const keys = key.map((column) => `keys.${column}`).join(", ");
  const inOrder = `select ${keys} from (${eachByItself(of, "keys", ofOne(key.join(", ")))}) as keys order by ${keys}`;
  const isFound = key.map((column) => `${name}.${column} = found.${column}`).join(" and ");
  const taken = `select ${columnsOf(table)} from ${name} where ${isFound}${dialect.lock(name)} offset 0`;
  return `select ${name}.* from (${inOrder}) as found, lateral (${taken}) as ${name}`;
}

/** That a row has a key, in words for statements that change it. `value`: that of a column of the key. */
function isRow(dialect: Dialect, table: Shape, value: (index: number) => string): string {
  // Its parts are told apart by what their ids are equal to.
  if (table.name === "log") return equalTo(table, value);
  return dialect.isRow(
    table.key.map((column) => `${table.name}.${column}`),
    table.key.map((_, index) => value(index)),
  );
}

const equalTo = ({ name, key }: Shape, value: (index: number) => string): string =>
  key.map((column, index) => `${name}.${column} = ${value(index)}`).join(" and ");

function update(dialect: Dialect, table: Shape): Update {
  const names = Object.keys(table.columns);
  const types = Object.values(table.columns);
  // A key never changes, and setting it to what it is would cost as much as moving the row; setting others, as much as moving them in their indexes.
  const changing = names.filter((column) => !table.key.includes(column) && !table.constant?.includes(column));
  const named = [...changing, ...table.key];
  const places = named.map((column) => names.indexOf(column));
  const ofNamed = places.flatMap((place) => types[place] ?? []);
  const all = table.unlocked ? [...ofNamed, ...types] : ofNamed;
  const given = dialect.given(all);
  const sets = changing.map((column, index) => `${column} = ${given.column(index)}`);
  const isChanged = isRow(dialect, table, (index) => given.column(changing.length + index));
  const isUnchanged = names.map((column, index) => ` and ${table.name}.${column} = ${given.column(named.length + index)}`);
  const returning = table.unlocked ? ` returning 1 as changed` : "";
  return {
    sql: `update ${table.name} set ${sets.join(", ")}${given.from} where ${isChanged}${table.unlocked ? isUnchanged.join("") : ""}${returning}`,
    types: all,
    places,
  };
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

/** Compares rows, whose first values are their key, for the order in which every transaction locks and makes them. */
export function inLockOrder({ key, compareIds }: Pick<Shape, "key" | "compareIds">): (a: Value[], b: Value[]) => number {
  const order = byKey(key.length);
  if (!compareIds) return order;
  const byAccount = byKey(1);
  return (a, b) => byAccount(a, b) || compareIds(String(a[1]), String(b[1]));
}

/** The order of rows by their keys, whose columns come first. */
export const byKey =
  (width: number) =>
  (a: Value[], b: Value[]): number => {
    const [left, right] = [a.slice(0, width).join("\n"), b.slice(0, width).join("\n")];
    return left < right ? -1 : left > right ? 1 : 0;
  };
