import { Client } from "pg";
import { freshDatabase } from "../postgres.ts";

/** Creates a database whose clock stands still, so that the time of a run does not change what it costs. */
export async function createStillDatabase(server: string): Promise<string> {
  const url = await freshDatabase(server);
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const name = client.escapeIdentifier(new URL(url).pathname.slice(1));
    await client.query(
      `create function public.clock_timestamp() returns timestamptz language sql immutable ` +
        `as $$ select timestamptz '2027-01-15 12:00:00+00' $$; ` +
        // The functions of the database itself are found after those of the schema.
        `alter database ${name} set search_path = public, pg_catalog`,
    );
  } finally {
    await client.end();
  }
  return url;
}
