import type { Key, TableName } from "../../core/decision/command.ts";
import type { Dialect } from "./database.ts";
import type { BodyOptions } from "../queries/storageReads.ts";
import { makeWeightSql } from "./storedBytes.ts";
import type { ColumnType, TableSchema, Value } from "./tables.ts";
import { tables } from "./tables.ts";

/** The statements that every table has, in the words of one database. */
export type Statements = {
  types: readonly ColumnType[];
  keyTypes: readonly ColumnType[];
  insert: string;
  update: UpdateStatement;
  /** Answers the account and the weight of each row that it has removed, of tables whose rows are weighed. */
  remove: string;
  whole: SelectByKey;
  /** Without bodies. */
  withoutBody: SelectByKey;
  /** Ids and sizes of bodies by key; only of tables that have bodies. */
  sizes: string;
};

/**
 * Changes rows. It is given what may change of each, and its key: the values at these `positions` among those of all columns. Where rows are
 * read without a lock, it is given all that was read as well, and answers those it changed.
 */
type UpdateStatement = { sql: string; types: readonly ColumnType[]; positions: readonly number[] };

/** Rows by key: `locking` locks them if several nodes may change them, `plain` reads them as they are. */
type SelectByKey = { locking: string; plain: string };

const statementCache = new WeakMap<Dialect, Partial<Record<TableName, Statements>>>();

/** Written once for each database and table: they stand on the way of every batch. */
export function getStatements(dialect: Dialect, name: TableName): Statements {
  let known = statementCache.get(dialect);
  if (!known) statementCache.set(dialect, (known = {}));
  return (known[name] ??= makeStatements(dialect, name));
}

function makeStatements(dialect: Dialect, name: TableName): Statements {
  const table: TableSchema = tables[name];
  const types = Object.values(table.columns);
  const keyTypes = table.key.map((): ColumnType => "text");
  const byKey = dialect.givenRows(keyTypes);
  const isGiven = matchesKey(table, byKey.column);
  // What is gone although its row is still there is not found by its key either.
  const stillKept = table.name === "log" && dialect.logForgottenUpTo ? ` and log.id > ${dialect.logForgottenUpTo("log.account")}` : "";
  const weight = makeWeightSql(name);
  const select = (columns: string, lock = ""): string => {
    const found = `select ${columns} from ${table.name} where ${isGiven}${stillKept}${lock}`;
    return selectEach(byKey, table.name, found);
  };
  const makeBoth = (columns: string): SelectByKey => ({
    plain: select(columns),
    locking: select(columns, table.unlocked ? "" : dialect.lock(table.name)),
  });
  return {
    types,
    keyTypes,
    insert: `insert into ${table.name} (${Object.keys(table.columns).join(", ")}) ${dialect.givenRows(types).values}${table.idempotent ? " on conflict do nothing" : ""}`,
    update: makeUpdate(dialect, table),
    remove: `delete from ${table.name}${byKey.using} where ${matchesKeyByRange(dialect, table, byKey.column)}${weight === null ? "" : ` returning account, ${weight} as weight`}`,
    whole: makeBoth(listColumns(table)),
    withoutBody: makeBoth(listColumns(table, { bodies: false })),
    sizes: select(`${table.name}.id, coalesce(length(${table.name}.body), 0) as size`),
  };
}

/**
 * What is found for each row that is given. Where these are a relation, each is looked up by itself, in a subquery that stays one because
 * of its `offset 0`, whatever the database believes of the table: see docs/decisions/0041.
 */
export const selectEach = ({ also }: { also: string }, name: string, found: string): string =>
  also === "" ? found : `select ${name}.* from (select 1 as one) as one${also}, lateral (${found} offset 0) as ${name}`;

/**
 * That a column has a value, as a range that is read in the order of an index: with the columns before it equal, and its order asked for,
 * no other index that begins like that one will do.
 */
export const equalsAsRange = (column: string, value: string): string => `${column} >= ${value} and ${column} <= ${value}`;

type KeySelect = { given: { also: string }; selectOne(columns: string): string };

/** The same where rows are locked: first their keys alone, of all that is given, then the rows in the order in which everybody takes them. */
export function selectInKeyOrder(dialect: Dialect, table: TableSchema, { given, selectOne }: KeySelect): string {
  const { name, key } = table;
  if (given.also === "") return selectOne(listColumns(table)) + dialect.lock(name);
  const keys = key.map((column) => `keys.${column}`).join(", ");
  const inOrder = `select ${keys} from (${selectEach(given, "keys", selectOne(key.join(", ")))}) as keys order by ${keys}`;
  const isFound = key.map((column) => `${name}.${column} = found.${column}`).join(" and ");
  const lockedRows = `select ${listColumns(table)} from ${name} where ${isFound}${dialect.lock(name)} offset 0`;
  return `select ${name}.* from (${inOrder}) as found, lateral (${lockedRows}) as ${name}`;
}

/** That a row has a key, in words for statements that change it. `value`: that of a column of the key. */
function matchesKeyByRange(dialect: Dialect, table: TableSchema, value: (index: number) => string): string {
  // Its parts are told apart by what their ids are equal to.
  if (table.name === "log") return matchesKey(table, value);
  return dialect.isRow(
    table.key.map((column) => `${table.name}.${column}`),
    table.key.map((_, index) => value(index)),
  );
}

const matchesKey = ({ name, key }: TableSchema, value: (index: number) => string): string =>
  key.map((column, index) => `${name}.${column} = ${value(index)}`).join(" and ");

function makeUpdate(dialect: Dialect, table: TableSchema): UpdateStatement {
  const names = Object.keys(table.columns);
  const types = Object.values(table.columns);
  // A key never changes, and setting it to what it is would cost as much as moving the row; setting others, as much as moving them in their indexes.
  const changing = names.filter((column) => !table.key.includes(column) && !table.constant?.includes(column));
  const updateColumns = [...changing, ...table.key];
  const positions = updateColumns.map((column) => names.indexOf(column));
  const namedTypes = positions.flatMap((position) => types[position] ?? []);
  const all = table.unlocked ? [...namedTypes, ...types] : namedTypes;
  const given = dialect.givenRows(all);
  const sets = changing.map((column, index) => `${column} = ${given.column(index)}`);
  const isChanged = matchesKeyByRange(dialect, table, (index) => given.column(changing.length + index));
  const isUnchanged = names.map((column, index) => ` and ${table.name}.${column} = ${given.column(updateColumns.length + index)}`);
  const returning = table.unlocked ? ` returning 1 as changed` : "";
  return {
    sql: `update ${table.name} set ${sets.join(", ")}${given.from} where ${isChanged}${table.unlocked ? isUnchanged.join("") : ""}${returning}`,
    types: all,
    positions,
  };
}

/** The columns of a table, as a select names them. */
export function listColumns(table: TableSchema, { bodies }: BodyOptions = {}): string {
  const known = bodies === false ? columnsWithoutBody : wholeColumns;
  let columns = known.get(table);
  if (columns === undefined) known.set(table, (columns = columnNames(table, bodies !== false)));
  return columns;
}

const wholeColumns = new WeakMap<TableSchema, string>();
const columnsWithoutBody = new WeakMap<TableSchema, string>();

const columnNames = ({ name, columns }: TableSchema, bodies: boolean): string =>
  Object.keys(columns)
    .filter((column) => bodies || column !== "body")
    .map((column) => `${name}.${column}`)
    .join(", ");

/** A key as the values of its columns. */
export const keyValues = (key: Key): Value[] => key.filter((part) => part !== undefined);

/** Compares rows, whose first values are their key, for the order in which every transaction locks and makes them. */
export function inLockOrder({ key, compareIds }: Pick<TableSchema, "key" | "compareIds">): (a: Value[], b: Value[]) => number {
  const order = compareKeys(key.length);
  if (!compareIds) return order;
  const byAccount = compareKeys(1);
  return (a, b) => byAccount(a, b) || compareIds(String(a[1]), String(b[1]));
}

/** The order of rows by their keys, whose columns come first. */
export const compareKeys =
  (width: number) =>
  (a: Value[], b: Value[]): number => {
    const left = a.slice(0, width).join("\n");
    const right = b.slice(0, width).join("\n");
    return left < right ? -1 : left > right ? 1 : 0;
  };
