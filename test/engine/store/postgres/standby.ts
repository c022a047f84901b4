import { Client } from "pg";
import { expect } from "vitest";
import { ask } from "./postgresDatabase.ts";

/** Sets the standby that commits of a server wait for, or none. Waits until this has an effect. */
export async function waitForStandby(url: string, name: string): Promise<void> {
  await ask(url, `alter system set synchronous_standby_names = '${name}'`);
  await ask(url, "select pg_reload_conf()");
  await expect.poll(() => doesCommitEnd(url)).toBe(name === "");
}

/** Commits a transaction without effect. Reports whether the commit ends, and does not wait for a standby. */
async function doesCommitEnd(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url, application_name: "test commit" });
  await client.connect();
  let hasEnded = false;
  const commit = client
    .query("select pg_logical_emit_message(true, 'test', 'commit')")
    .then(() => (hasEnded = true))
    .catch(() => undefined)
    // A commit that waits ends with the standby or with the server.
    .finally(() => client.end().catch(() => undefined));
  const waiting = "application_name = 'test commit' and wait_event = 'SyncRep'";
  const isWaiting = async (): Promise<boolean> =>
    (await ask(url, `select 1 from pg_stat_activity where ${waiting}`)).length > 0;
  while (!hasEnded && !(await isWaiting())) await new Promise((resolve) => setTimeout(resolve, 20));
  if (hasEnded) await commit;
  return hasEnded;
}
