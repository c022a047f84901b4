import type { Usage } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { Connection, Dialect } from "./database.ts";
import { columnOfCount, tables } from "./tables.ts";

const { usage } = tables;

const written = new WeakMap<Dialect, string>();

/** Adds to the rows that are there, and makes those that are not. */
function addition(dialect: Dialect): string {
  const known = written.get(dialect);
  if (known !== undefined) return known;
  const { values } = dialect.given(Object.values(usage.columns));
  const sums = countNames.map(columnOfCount).map((column) => `${column} = usage.${column} + excluded.${column}`);
  const statement = `insert into usage (${Object.keys(usage.columns).join(", ")}) ${values}
    on conflict (account, id) do update set ${sums.join(", ")}`;
  written.set(dialect, statement);
  return statement;
}

/** Adds what a batch has counted, in one statement. Nothing is read for it, and no other node has these rows. */
export async function addUsage(connection: Connection, rows: readonly Usage[]): Promise<void> {
  if (rows.length === 0) return;
  const values = rows.map((row) => [row.account, row.id, ...countNames.map((name) => row[name])]);
  await connection.each(addition(connection.dialect), Object.values(usage.columns), values);
}
