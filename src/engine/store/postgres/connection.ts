import type { Client, QueryConfig } from "pg";
import { formatColumnArray } from "./arrayLiteral.ts";
import { rethrowFault } from "./databaseErrors.ts";
import type { DatabaseConnection, Dialect } from "../sql/database.ts";
import type { SecretCipher } from "../layout/keyRing.ts";
import { plaintextCipher } from "../layout/keyRing.ts";
import type { Columns, ColumnType, Value } from "../catalog/tables.ts";

/** The rows that a statement returned. */
export type QueryResult = { rows: Columns[] };

type ConnectionOptions = { prepares?: boolean; cipher?: SecretCipher };

/**
 * Returns a connection that runs its statements through `run`. With `prepares`, each text is prepared once on
 * each of the driver's connections.
 */
export function createConnection(
  run: (query: QueryConfig<unknown[]>) => Promise<QueryResult>,
  { prepares = true, cipher = plaintextCipher }: ConnectionOptions = {},
): DatabaseConnection {
  const toStatement = prepares ? prepareStatement : toUnprepared;
  return {
    dialect,
    cipher,
    query: async (sql, values) =>
      (await run({ ...toStatement(sql), values: values.map(withoutNul) }).catch(rethrowFault)).rows,
    each: async (sql, types, rows) => {
      const collected: Columns[] = [];
      for (const portion of types.includes("bytea") ? splitRows(rows) : [rows]) {
        const columns = types.map((_: ColumnType, index) => formatColumnArray(portion, index));
        const { rows: rowsOfPortion } = await run({ ...toStatement(sql), values: columns }).catch(
          rethrowFault,
        );
        if (portion.length === rows.length) return rowsOfPortion;
        for (const one of rowsOfPortion) collected.push(one);
      }
      return collected;
    },
  };
}

/**
 * The maximum number of body bytes in one statement: 32 MiB. The driver converts bodies to a string of twice
 * the length, and no text can be longer than 512 MiB.
 */
const statementBytes = 32 * 1024 * 1024;

/**
 * Splits rows into portions that one statement can carry. Portions are sent one after another, so that not
 * all rows are in memory as texts.
 */
function splitRows(rows: readonly (readonly Value[])[]): (readonly (readonly Value[])[])[] {
  const portions: [(readonly Value[])[], ...(readonly Value[])[][]] = [[]];
  let portion = portions[0];
  let bytes = 0;
  for (const row of rows) {
    const size = row.reduce<number>(
      (sum, value) => sum + (value instanceof Uint8Array ? value.byteLength : 0),
      0,
    );
    if (portion.length > 0 && bytes + size > statementBytes) {
      portion = [];
      bytes = 0;
      portions.push(portion);
    }
    portion.push(row);
    bytes += size;
  }
  return portions;
}

/** Runs statements without values in one round trip. Returns the rows of the last one. */
export async function runPlain(client: Client, sql: string): Promise<Columns[]> {
  const answers: unknown = await client.query<Columns>(sql).catch(rethrowFault);
  const last = (Array.isArray(answers) ? answers.at(-1) : answers) as QueryResult;
  return last.rows;
}

/** Rows are passed as one array per column, so that the statement is the same for any number of rows. */
const dialect: Dialect = {
  givenRows: (types) => {
    const arrays = types.map((type, index) => `$${index + 1}::${type}[]`);
    const names = types.map((_, index) => `g${index}`).join(", ");
    const relation = `unnest(${arrays.join(", ")}) as given(${names})`;
    return {
      values: `select * from ${relation}`,
      from: ` from ${relation}`,
      also: `, ${relation}`,
      using: ` using ${relation}`,
      column: (index) => `given.g${index}`,
    };
  },
  lock: (table, skip) => ` for update of ${table}${skip ? ` ${skip}` : ""}`,
  // A range finds rows through the index of their key and in no other way: see docs/decisions/0041.
  isRow: (columns, key) =>
    [">=", "<="].map((bound) => `(${columns.join(", ")}) ${bound} (${key.join(", ")})`).join(" and "),
  useIndex: () => "",
  lockNames: ({ also, column }) =>
    `select pg_advisory_xact_lock(hashtextextended(${column(0)}, 0)) from (select 1 as one) as one${also}`,
  logForgottenUpTo: (account) =>
    `coalesce((select up_to from log_cuts where log_cuts.account = ${account}), '')`,
};

const statements = new Map<string, { name: string; text: string }>();

/** All texts are kept, because there are only a few dozen. */
function prepareStatement(sql: string): { name: string; text: string } {
  const known = statements.get(sql);
  if (known) return known;
  let count = 0;
  const statement = { name: `waypost_${statements.size}`, text: sql.replace(/\?/g, () => `$${++count}`) };
  statements.set(sql, statement);
  return statement;
}

const toUnprepared = (sql: string): { text: string } => ({ text: prepareStatement(sql).text });

/** Replaces NUL by U+FFFD. PostgreSQL stores no text with a NUL, so a query for one must find nothing. */
const withoutNul = (value: Value): Value =>
  typeof value === "string" && value.includes("\0") ? value.replaceAll("\0", "\uFFFD") : value;
