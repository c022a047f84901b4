import { Client } from "pg";
import { request } from "undici";
import { expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { runWaypost, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

const start = (url: string, ...more: string[]) =>
  startWaypost(["start", "--port", "0", "--data", temporaryFolder(), "--database-url", url, ...more], {
    WAYPOST_EGRESS_ALLOW: "127.0.0.0/8",
  });

const variable = (text: string, name: string): string =>
  new RegExp(`^${name}="(.*)"$`, "m").exec(text)?.[1] ?? "";

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
  const tokens = servers
    .map((server) => variable(server.out(), "WAYPOST_TOKEN"))
    .filter((token) => token !== "");
  expect(tokens).toHaveLength(1);
  expect(await ask(url, "select count(*)::int as count from accounts")).toEqual([{ count: 1 }]);
  const headers = { authorization: `Bearer ${tokens[0]}` };
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
  await ask(url, "update store_schema set hash = 'other'");
  const refused = await runWaypost(["start", "--port", "0", "--database-url", url]).ended;
  expect(refused.code).toBe(2);
  expect(refused.err).toContain("the database: was created by another development version of Waypost");
  const headers = { authorization: `Bearer ${variable(running.out(), "WAYPOST_TOKEN")}` };
  const published = await request(`${running.url}/v2/publish/https://shop.example/x`, {
    method: "POST",
    headers,
  });
  expect(published.statusCode).toBe(503);
  expect(published.headers["retry-after"]).toBe("1");
  expect(await published.body.json()).toEqual({
    error: expect.stringMatching(/another server version.*nothing was stored/),
  });
  const ready = await request(`${running.url}/v2/health/ready`);
  expect(ready.statusCode).toBe(503);
  expect(await ready.body.json()).toEqual({ error: expect.stringContaining("another version") });
});
