import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../../postgres.ts";
import { ask } from "../nodes.ts";
import { startWaypost, temporaryFolder } from "../waypost.ts";

/** How long a server settles, and how long it is watched then, in milliseconds. */
const settling = 10_000;
const watched = 10_000;

/** Starts a server and returns a function that reads the timers that it has set. */
async function startServer(store: readonly string[]): Promise<() => string[]> {
  const file = join(temporaryFolder(), "timers");
  const preload = new URL("./countTimers.ts", import.meta.url).href;
  await startWaypost(["start", "--port", "0", ...store], {
    NODE_OPTIONS: `--import=${preload}`,
    TIMERS_FILE: file,
  });
  return () => readFileSync(file, "utf8").split("\n").slice(0, -1);
}

/** Returns the timers of less than a second. */
const listShort = (timers: readonly string[]): string[] =>
  timers.filter((line) => Number.parseFloat(line) < 1_000);

test("an idle server on SQLite sets no timer below one second", { tags: "long" }, async () => {
  const readTimers = await startServer(["--data", temporaryFolder()]);
  await pause(settling);
  const before = readTimers().length;
  expect(before).toBeGreaterThan(0);
  await pause(watched);
  expect(listShort(readTimers().slice(before))).toEqual([]);
});

test(
  "an idle node on PostgreSQL checks its lock twice a second and does little else",
  {
    tags: "long",
  },
  async () => {
    const postgres = await startPostgres({ more: { shared_preload_libraries: "pg_stat_statements" } });
    onTestFinished(postgres.stop);
    await ask(postgres.url, "create extension pg_stat_statements");
    await ask(postgres.url, "create database node");
    const readTimers = await startServer(["--database-url", postgres.url.replace(/\/postgres$/, "/node")]);
    const countStatements = async (): Promise<number> => {
      const [row] = await ask(
        postgres.url,
        "select coalesce(sum(calls), 0)::int as calls " +
          "from pg_stat_statements join pg_database d on d.oid = dbid where datname = 'node'",
      );
      return Number(row?.["calls"]);
    };
    await pause(settling);
    const [timers, statements] = [readTimers().length, await countStatements()];
    expect(statements).toBeGreaterThan(0);
    await pause(watched);
    expect((await countStatements()) - statements).toBeLessThanOrEqual((4 * watched) / 1e3);
    const short = listShort(readTimers().slice(timers)).map(Number.parseFloat);
    // The check of its lock, and the time that the check may take: docs/decisions/0051. A wait ends at a time
    // of the clock, so its timer is shorter if the process was busy.
    const isCheck = (delay: number): boolean => [501, 301].some((full) => delay <= full && delay > full - 51);
    expect(short.filter((delay) => !isCheck(delay))).toEqual([]);
    expect(short.length).toBeLessThanOrEqual(2 * 2 * (watched / 1e3 + 1));
  },
);
