import { spawnSync } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { request } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { freshDatabase, startPostgres } from "../postgres.ts";
import { readCredentials, runWaypost, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

const start = (url: string, ...more: string[]) =>
  startWaypost(["start", "--port", "0", "--data", temporaryFolder(), "--database-url", url, ...more], {
    WAYPOST_EGRESS_ALLOW: "127.0.0.0/8",
  });

const readToken = async (url: string): Promise<string> =>
  /^WAYPOST_TOKEN="(.*)"$/m.exec(await readCredentials("--database-url", url))?.[1] ?? "";

async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return (await client.query(sql).finally(() => client.end())).rows;
}

test("servers that start together on an empty database create one account and all work", async () => {
  const url = await freshDatabase();
  const destination = await startDestination();
  const servers = await Promise.all([
    start(url),
    start(url),
    start(url, "--database-pooling", "transaction"),
  ]);
  expect(servers.filter((server) => server.out().includes("created the account owner"))).toHaveLength(1);
  expect(await ask(url, "select count(*)::int as count from accounts")).toEqual([{ count: 1 }]);
  const headers = { authorization: `Bearer ${await readToken(url)}` };
  for (const server of servers) {
    const published = await request(`${server.url}/v2/publish/${destination.url}/x`, {
      method: "POST",
      headers,
      body: "x",
    });
    expect(published.statusCode).toBe(200);
    await published.body.dump();
  }
  await destination.until((arrivals) => arrivals.length === 3);
  for (const server of servers) server.kill("SIGTERM");
  expect((await Promise.all(servers.map((server) => server.ended))).map(({ code }) => code)).toEqual([
    0, 0, 0,
  ]);
});

test("a server whose schema differs from the database does not start, or stops writing", async () => {
  const url = await freshDatabase();
  const running = await start(url);
  const token = await readToken(url);
  await ask(url, "update store_schema set hash = 'other'");
  const refused = await runWaypost(["start", "--port", "0", "--database-url", url]).ended;
  expect(refused.code).toBe(2);
  expect(refused.err).toContain("the database: has tables of another version of Waypost");
  const headers = { authorization: `Bearer ${token}` };
  const published = await request(`${running.url}/v2/publish/https://shop.example/x`, {
    method: "POST",
    headers,
  });
  expect(published.statusCode).toBe(503);
  expect(published.headers["retry-after"]).toBe("1");
  expect(await published.body.json()).toEqual({
    code: "unavailable",
    docs: "/docs/errors#unavailable",
    error: expect.stringMatching(/another server version.*nothing was stored/),
  });
  const ready = await request(`${running.url}/v2/health/ready`);
  expect(ready.statusCode).toBe(503);
  expect(await ready.body.json()).toEqual({
    code: "stopping",
    docs: "/docs/errors#stopping",
    error: expect.stringContaining("another version"),
  });
});

/** The folder of a PostgreSQL that has the programs for backups, which the npm package lacks. */
const withTools =
  globSync("/usr/lib/postgresql/*")
    .toSorted()
    .findLast(
      (folder) => existsSync(join(folder, "bin/initdb")) && existsSync(join(folder, "bin/pg_dump")),
    ) ?? null;

test.skipIf(withTools === null)(
  "a dump is restored, and no node sends before the hold has ended",
  { tags: "long" },
  async () => {
    const postgres = await startPostgres({ native: withTools ?? "" });
    onTestFinished(() => postgres.kill());
    const [original, restored] = [await freshDatabase(postgres.url), await freshDatabase(postgres.url)];
    const destination = await startDestination();
    const first = await start(original);
    const headers = { authorization: `Bearer ${await readToken(original)}`, "svc-delay": "2s" };
    const publish = async (url: string, name: string) => {
      const options = { method: "POST", headers, body: "x" } as const;
      await (await request(`${url}/v2/publish/${destination.url}/${name}`, options)).body.dump();
    };
    await publish(first.url, "before");
    const dump = join(temporaryFolder(), "waypost.dump");
    const run = (program: string, ...args: string[]): void => {
      const { status, stderr } = spawnSync(join(withTools ?? "", "bin", program), args, { encoding: "utf8" });
      expect({ program, status, stderr }).toEqual({ program, status: 0, stderr: "" });
    };
    run("pg_dump", "--format=custom", "--file", dump, original);
    first.kill("SIGKILL");
    await first.ended;
    run("pg_restore", "--dbname", restored, "--no-owner", dump);

    const holding = await start(restored, "--hold");
    const other = await start(restored);
    await publish(other.url, "held");
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect(destination.arrivals).toEqual([]);
    const unhold = await runWaypost(["unhold", "--database-url", restored]).ended;
    expect(unhold).toMatchObject({ code: 0, out: "deliveries are no longer held\n" });
    await destination.until((arrivals) => new Set(arrivals.map(({ path }) => path)).size === 2);
    for (const server of [holding, other]) server.kill("SIGKILL");
  },
);
