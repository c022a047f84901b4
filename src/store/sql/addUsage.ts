import type { Usage } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import { toCountColumn } from "./columns.ts";
import { tables } from "./tables.ts";

const { usage } = tables;

const statements = new WeakMap<Dialect, string>();

/** Returns a statement that adds to existing rows and inserts missing rows. */
function makeStatement(dialect: Dialect): string {
  const known = statements.get(dialect);
  if (known !== undefined) return known;
  const { values } = dialect.givenRows(Object.values(usage.columns));
  const sums = countNames
    .map(toCountColumn)
    .map((column) => `${column} = usage.${column} + excluded.${column}`);
  const statement = `insert into usage (${Object.keys(usage.columns).join(", ")}) ${values}
    on conflict (account, id) do update set ${sums.join(", ")}`;
  statements.set(dialect, statement);
  return statement;
}

/** Adds the usage of a batch in one statement. No row is read first, and no other node writes these rows. */
export async function addUsage(connection: DatabaseConnection, rows: readonly Usage[]): Promise<void> {
  if (rows.length === 0) return;
  const values = rows.map((row) => [row.account, row.id, ...countNames.map((name) => row[name])]);
  await connection.each(makeStatement(connection.dialect), Object.values(usage.columns), values);
}
