import { storeCountNames } from "../../core/explain/storeCounts.ts";
import type { DatabaseConnection } from "../sql/database.ts";
import { toRows } from "../sql/rows.ts";
import { listColumns } from "../sql/statements.ts";
import type { Value } from "../layout/table.ts";
import { tables } from "../catalog/tables.ts";
import type { Damage } from "./fileCheck.ts";
import { spreadKeys } from "./spreadKeys.ts";

// Compares the parts of a store that say the same: a table and its indexes, the counts and the rows. SQLite
// itself notices damage only where it reads, and an index that has lost a part reads like a smaller one.

/** A file of at most this many bytes is checked as a whole. */
const smallBytes = 8 * 1024 * 1024;
/** How many rows are compared at the beginning and at the end of each table and index. */
const endRows = 25;
/** At how many places between the ends of a table rows are compared, and how many at each. */
const places = 12;
const placeRows = 5;
/** Counts above this number are not compared, because counting takes time. */
const mostCounted = 5_000;
const maxFindings = 10;

/**
 * Compares what a store holds with what it says that it holds, in at most 300 ms for any size. Reads all of a
 * small file; for a larger one, the ends of each index and table, rows between them, and counts. Damaged rows
 * are reported by the connection. Returns what differs. Changes nothing.
 */
export async function findDifferences(
  connection: DatabaseConnection,
  { wholeUpTo = smallBytes }: { wholeUpTo?: number } = {},
): Promise<Damage[]> {
  const found: string[] = [];
  if ((await readFileBytes(connection)) <= wholeUpTo) found.push(...(await checkPages(connection)));
  else
    for (const index of await listIndexes(connection)) found.push(...(await compareIndex(connection, index)));
  const counts = await compareCounts(connection);
  await readSample(connection);
  return [
    ...found.slice(0, maxFindings).map((text) => ({ isFile: true, text })),
    // The rows decide what is sent, not the counts.
    ...counts.map((text) => ({ isFile: false, text })),
  ];
}

/** Returns what SQLite finds damaged in a table and its indexes, or in the whole file. Reads all pages. */
export async function checkPages(connection: DatabaseConnection, table?: string): Promise<string[]> {
  // The pragma takes the name of a table, or a number of findings.
  const rows = await connection.query(`pragma integrity_check(${table ?? maxFindings})`, []);
  return rows.map((row) => String(row.integrity_check).replaceAll("\n", " ")).filter((text) => text !== "ok");
}

/** The tables with messages that must be sent. They are checked first. */
const firstTables = ["messages", "stored_messages", "waiters"];

/** Returns the names of all tables, for `checkPages`, in the order in which they are checked. */
export async function listTables(connection: DatabaseConnection): Promise<string[]> {
  const rows = await connection.query(
    "select name from sqlite_schema where type = 'table' and name not like 'sqlite%' order by name",
    [],
  );
  const names = rows.map(({ name }) => String(name));
  return [...firstTables, ...names.filter((name) => !firstTables.includes(name))];
}

async function readFileBytes(connection: DatabaseConnection): Promise<number> {
  const sql = "select page_count * page_size as bytes from pragma_page_count, pragma_page_size";
  return Number((await connection.query(sql, []))[0]?.bytes);
}

/**
 * An index beside the B-tree of its table. `rows` says how the table itself is read, and `key` how one of its
 * rows is found. `condition`: the rows that the index has.
 */
type IndexLayout = {
  name: string;
  table: string;
  rows: string;
  key: readonly string[];
  columns: readonly string[];
  condition: string;
};

async function listIndexes(connection: DatabaseConnection): Promise<IndexLayout[]> {
  const rows = await connection.query(
    `select l.name as "table", i.name as name, i.origin as origin, x.name as col, l.wr as wr,
        coalesce((select sql from sqlite_schema where name = i.name), '') as sql
      from pragma_table_list as l, pragma_index_list(l.name) as i, pragma_index_xinfo(i.name) as x
      where l.schema = 'main' and l.type = 'table' and x.key = 1 order by l.name, i.name, x.seqno`,
    [],
  );
  const indexes = [...Map.groupBy(rows, ({ name }) => String(name))].map(([name, parts]) => ({
    name,
    table: String(parts[0]?.table),
    isKey: parts[0]?.origin === "pk",
    // A table without rowids is the B-tree of its primary key.
    hasRowids: parts[0]?.wr === 0,
    columns: parts.map(({ col }) => String(col)),
    condition: / where (.*)$/is.exec(String(parts[0]?.sql))?.[1] ?? "true",
  }));
  const trees = new Map(indexes.filter(({ isKey }) => isKey).map((index) => [index.table, index]));
  return indexes
    .filter(({ isKey, hasRowids }) => hasRowids || !isKey)
    .map(({ name, table, hasRowids, columns, condition }) => {
      const tree = trees.get(table);
      const rowsOf = hasRowids || !tree ? "not indexed" : `indexed by ${tree.name}`;
      const key = hasRowids || !tree ? ["rowid"] : tree.columns;
      return { name, table, rows: rowsOf, key, columns, condition };
    });
}

/** Compares rows of a table with their entries in an index, and entries with their rows. */
async function compareIndex(connection: DatabaseConnection, index: IndexLayout): Promise<string[]> {
  const { name, table, rows, key, columns, condition } = index;
  const all = [...new Set([...key, ...columns, ...readNames(condition)])].join(", ");
  const isSame = [...key, ...columns].map((column) => `other.${column} is one.${column}`).join(" and ");
  const entries = `from ${table} as other indexed by ${name} where ${condition} and ${isSame}`;
  const count = async (sql: string, values: readonly Value[] = []): Promise<number> =>
    Number((await connection.query(`select count(*) as n from ${sql}`, values))[0]?.n);
  let missing = 0;
  let stray = 0;
  const rowsOf = (rest: string): string =>
    `(select ${all} from ${table} ${rows} ${rest}) as one
      where ${condition} and not exists (select 1 ${entries})`;
  for (const direction of ["asc", "desc"]) {
    const order = (names: readonly string[]): string =>
      `order by ${names.map((one) => `${one} ${direction}`).join(", ")} limit ${endRows}`;
    missing += await count(rowsOf(order(key)));
    stray += await count(
      `(select ${all} from ${table} indexed by ${name} where ${condition} ${order(columns)}) as one
        where not exists (select 1 from ${table} as other ${rows} where ${isSame})`,
    );
  }
  for (const place of await findPlaces(connection, index)) {
    const after = `where (${key.join(", ")}) > (${key.map(() => "?").join(", ")})`;
    missing += await count(rowsOf(`${after} order by ${key.join(", ")} limit ${placeRows}`), place);
  }
  return [
    ...(missing > 0 ? [`${missing} rows of ${table} are missing in its index ${name}`] : []),
    ...(stray > 0 ? [`${stray} entries of the index ${name} have no row in ${table}`] : []),
  ];
}

/** The names in a condition of `schema.sql`, which compares columns with null, numbers and `''`. */
const readNames = (condition: string): string[] =>
  (condition.match(/[a-z_]+/g) ?? []).filter(
    (word) => !["is", "not", "null", "and", "or", "true"].includes(word),
  );

/** Returns keys between the first and the last row of a table. */
async function findPlaces(
  connection: DatabaseConnection,
  { table, rows, key }: IndexLayout,
): Promise<Value[][]> {
  const [first, last] = await Promise.all(
    ["asc", "desc"].map(async (direction) => {
      const order = key.map((column) => `${column} ${direction}`).join(", ");
      const sql = `select ${key.join(", ")} from ${table} ${rows} order by ${order} limit 1`;
      return (await connection.query(sql, [])).map((row) => key.map((column) => row[column] ?? null))[0];
    }),
  );
  return first && last ? spreadKeys(first, last, places) : [];
}

/** The rows of a store count, as SQL. */
const counted = {
  messages: "messages indexed by messages_host where leased_by is null",
  dead_letters: "dead_letters where true",
  active_runs: "active_runs where true",
  waiters: "waiters where true",
} as const;

const countNamesOf: Readonly<Record<keyof typeof counted, readonly string[]>> = {
  messages: storeCountNames.filter((name) => !["deadLetters", "activeRuns", "waiters"].includes(name)),
  dead_letters: ["deadLetters"],
  active_runs: ["activeRuns"],
  waiters: ["waiters"],
};

/** Compares the counts that each batch keeps with the rows. */
async function compareCounts(connection: DatabaseConnection): Promise<string[]> {
  const sums = await connection.query("select name, sum(value) as n from store_counts group by name", []);
  const found: string[] = [];
  for (const [table, rest] of Object.entries(counted) as [keyof typeof counted, string][]) {
    const sql = `select count(*) as n from (select 1 from ${rest} limit ${mostCounted})`;
    const present = Number((await connection.query(sql, []))[0]?.n);
    const names = countNamesOf[table];
    const said = sums.reduce((sum, { name, n }) => sum + (names.includes(String(name)) ? Number(n) : 0), 0);
    if (Math.min(said, mostCounted) !== present)
      found.push(`${table} should have ${said} rows, and has ${present === mostCounted ? "more" : present}`);
  }
  return found;
}

/** Reads the first and the last rows of the tables with checksums, without their bodies. */
async function readSample(connection: DatabaseConnection): Promise<void> {
  const { storedMessages, deadLetters, urlGroups, schedules, steps } = tables;
  for (const table of [storedMessages, deadLetters, urlGroups, schedules, steps])
    for (const direction of ["asc", "desc"]) {
      const order = table.key.map((column) => `${column} ${direction}`).join(", ");
      const columns = listColumns(table, { bodies: false });
      const sql = `select ${columns} from ${table.name} order by ${order} limit ${endRows}`;
      toRows<unknown>(connection, table, await connection.query(sql, []));
    }
}
