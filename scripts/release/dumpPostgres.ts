import { Client } from "pg";
import { schemaFor } from "../../src/engine/store/sql/schema.ts";

/**
 * Returns the statements that create the tables and rows of a store on PostgreSQL. `pg_dump` would need to be
 * as new as the server, and does not come with the dependencies.
 */
export async function dumpPostgres(databaseUrl: string): Promise<string> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const ask = async (sql: string, values: string[] = []): Promise<Record<string, unknown>[]> =>
      (await client.query<Record<string, unknown>>(sql, values)).rows;
    await ask("begin isolation level repeatable read read only");
    const lines = [
      "create table store_schema (hash text not null primary key);",
      schemaFor("postgres").sql,
      ...(await ask(listPartitions)).map(({ text }) => `${String(text)};`),
    ];
    for (const { name } of await ask(listTables))
      for (const { text } of await ask(await makeRowQuery(ask, String(name)))) lines.push(String(text));
    return `${lines.join("\n")}\n`;
  } finally {
    await client.end();
  }
}

const listPartitions =
  "select format('create table %I partition of %I %s', c.relname, p.relname, " +
  "pg_get_expr(c.relpartbound, c.oid)) as text from pg_inherits i join pg_class c on c.oid = i.inhrelid " +
  "join pg_class p on p.oid = i.inhparent where c.relkind = 'r' order by c.relname";

const listTables =
  "select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace " +
  "order by relname";

/** Returns a query for the rows of a table, each as a statement that inserts it. */
async function makeRowQuery(
  ask: (sql: string, values: string[]) => Promise<Record<string, unknown>[]>,
  table: string,
): Promise<string> {
  const columns = (
    await ask(
      "select quote_ident(attname) as name from pg_attribute " +
        "where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum",
      [table],
    )
  ).map(({ name }) => String(name));
  const values = columns.map((name) => `quote_nullable(${name}::text)`).join(" || ', ' || ");
  const start = `insert into ${table} (${columns.join(", ")}) values (`;
  return `select '${start}' || ${values} || ');' as text from ${table}`;
}
