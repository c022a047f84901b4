import type { Key, TableName } from "../../core/decision/command.ts";
import type { Dialect } from "./database.ts";
import type { BodyOptions } from "../layout/storageReads.ts";
import { makeWeightSql } from "./storedBytes.ts";
import type { ColumnType, TableSchema, Value } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";

/** The statements of a table in the SQL of one database. */
export type Statements = {
  types: readonly ColumnType[];
  keyTypes: readonly ColumnType[];
  insert: string;
  update: UpdateStatement;
  /**
   * Removes rows. For tables whose rows are weighed, returns the account and the weight of each removed row.
   */
  remove: string;
  whole: SelectByKey;
  /** Selects rows without their bodies. */
  withoutBody: SelectByKey;
  /** Selects ids and body sizes by key. Only for tables that have bodies. */
  sizes: string;
};

/**
 * Updates rows. The parameters of a row are its changeable columns and its key; `positions` are their
 * positions among all columns. For tables that are read without a lock, the values of all columns as they
 * were read follow. The statement then changes only rows that still have these values, and returns one row
 * for each.
 */
type UpdateStatement = { sql: string; types: readonly ColumnType[]; positions: readonly number[] };

/**
 * Selects rows by key. `locking` locks rows that several nodes may change; `plain` reads them without a lock.
 */
type SelectByKey = { locking: string; plain: string };

const statementCache = new WeakMap<Dialect, Partial<Record<TableName, Statements>>>();

/**
 * Returns the statements of a table. They are created once per database and table, because every batch uses
 * them.
 */
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
  // A log entry that counts as removed must not be found by its key, although its row may still exist.
  const stillKept =
    table.name === "log" && dialect.logForgottenUpTo
      ? ` and log.id > ${dialect.logForgottenUpTo("log.account")}`
      : "";
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
    insert:
      `insert into ${table.name} (${Object.keys(table.columns).join(", ")}) ` +
      dialect.givenRows(types).values +
      (table.idempotent ? " on conflict do nothing" : ""),
    update: makeUpdate(dialect, table),
    remove:
      `delete from ${table.name}${byKey.using} where ${matchesKeyByRange(dialect, table, byKey.column)}` +
      (weight === null ? "" : ` returning account, ${weight} as weight`),
    whole: makeBoth(listColumns(table)),
    withoutBody: makeBoth(listColumns(table, { bodies: false })),
    sizes: select(`${table.name}.id, coalesce(length(${table.name}.body), 0) as size`),
  };
}

/**
 * Returns a select that finds rows for each given row. If the given rows are a relation, each given row is
 * looked up in a separate subquery. With `offset 0`, PostgreSQL does not merge the subquery into the query,
 * regardless of its statistics: see docs/decisions/0041.
 */
export const selectEach = ({ also }: { also: string }, name: string, found: string): string =>
  also === ""
    ? found
    : `select ${name}.* from (select 1 as one) as one${also}, lateral (${found} offset 0) as ${name}`;

/**
 * Returns the condition that a column equals a value, written as a range. If the query also orders by this
 * column, only an index with this column at the right place can be used.
 */
export const equalsAsRange = (column: string, value: string): string =>
  `${column} >= ${value} and ${column} <= ${value}`;

type KeySelect = { keyRows: { also: string }; selectOne(columns: string): string };

/**
 * Returns a select that finds rows for each given row and locks them. It finds the keys first and then locks
 * the rows in the order that all transactions use.
 */
export function selectInKeyOrder(
  dialect: Dialect,
  table: TableSchema,
  { keyRows: rows, selectOne }: KeySelect,
): string {
  const { name, key } = table;
  if (rows.also === "") return selectOne(listColumns(table)) + dialect.lock(name);
  const keys = key.map((column) => `keys.${column}`).join(", ");
  const eachKey = selectEach(rows, "keys", selectOne(key.join(", ")));
  const inOrder = `select ${keys} from (${eachKey}) as keys order by ${keys}`;
  const isFound = key.map((column) => `${name}.${column} = found.${column}`).join(" and ");
  const whole = listColumns(table);
  const lockedRows = `select ${whole} from ${name} where ${isFound}${dialect.lock(name)} offset 0`;
  return `select ${name}.* from (${inOrder}) as found, lateral (${lockedRows}) as ${name}`;
}

/**
 * Returns a condition that a row has a key, for statements that change the row. `value` returns the SQL of a
 * key column.
 */
function matchesKeyByRange(dialect: Dialect, table: TableSchema, value: (index: number) => string): string {
  // The partition of an entry is found only if its id is compared for equality.
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
  // A key never changes. To set it to the same value would cost as much as moving the row. To set a constant
  // column would cost as much as moving the row in its indexes.
  const changing = names.filter((column) => !table.key.includes(column) && !table.constant?.includes(column));
  const updateColumns = [...changing, ...table.key];
  const positions = updateColumns.map((column) => names.indexOf(column));
  const namedTypes = positions.flatMap((position) => types[position] ?? []);
  const all = table.unlocked ? [...namedTypes, ...types] : namedTypes;
  const rows = dialect.givenRows(all);
  const sets = changing.map((column, index) => `${column} = ${rows.column(index)}`);
  const isChanged = matchesKeyByRange(dialect, table, (index) => rows.column(changing.length + index));
  const isUnchanged = names.map(
    (column, index) => `${table.name}.${column} = ${rows.column(updateColumns.length + index)}`,
  );
  const where = (table.unlocked ? [isChanged, ...isUnchanged] : [isChanged]).join(" and ");
  const returning = table.unlocked ? ` returning 1 as changed` : "";
  return {
    sql: `update ${table.name} set ${sets.join(", ")}${rows.from} where ${where}${returning}`,
    types: all,
    positions,
  };
}

/** Returns the columns of a table for a select. */
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

/** Returns the values of the columns of a key. */
export const keyValues = (key: Key): Value[] => key.filter((part) => part !== undefined);

/**
 * Returns a comparison of rows by their key. The first values of each row are its key. Every transaction
 * locks and inserts rows in this order.
 */
export function inLockOrder({
  key,
  compareIds,
}: Pick<TableSchema, "key" | "compareIds">): (a: Value[], b: Value[]) => number {
  const order = compareKeys(key.length);
  if (!compareIds) return order;
  const byAccount = compareKeys(1);
  return (a, b) => byAccount(a, b) || compareIds(String(a[1]), String(b[1]));
}

/** Returns a comparison of rows by their first `width` values. */
export const compareKeys =
  (width: number) =>
  (a: Value[], b: Value[]): number => {
    const left = a.slice(0, width).join("\n");
    const right = b.slice(0, width).join("\n");
    return left < right ? -1 : left > right ? 1 : 0;
  };
