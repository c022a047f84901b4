import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { onTestFinished } from "vitest";
import { expect, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import type { Process } from "./waypost.ts";
import { developmentToken, startWaypost, temporaryFolder } from "./waypost.ts";

const statusOf = async (server: Process, path: string, method = "GET"): Promise<number> => {
  const reply = await fetch(`${server.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${developmentToken}` },
  });
  await reply.arrayBuffer();
  return reply.status;
};

const publish = (server: Process): Promise<number> =>
  statusOf(server, "/v2/publish/https://shop.example/x?svc-delay=1d", "POST");

async function untilReady(server: Process): Promise<void> {
  while ((await statusOf(server, "/v2/health/ready")) !== 200)
    await new Promise((resolve) => setTimeout(resolve, 100));
}

test(
  "a server whose file cannot be changed is not ready, and becomes ready without a message",
  { tags: "long" },
  async () => {
    const data = temporaryFolder();
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    expect(await publish(server)).toBe(200);
    expect(await statusOf(server, "/v2/health/ready")).toBe(200);
    const rival = new DatabaseSync(join(data, "waypost.db"));
    onTestFinished(() => rival.close());
    rival.exec("begin immediate");
    expect(await publish(server)).toBe(503);
    expect(await statusOf(server, "/v2/health/ready")).toBe(503);
    expect(await statusOf(server, "/v2/health")).toBe(200);
    rival.exec("rollback");
    await untilReady(server);
    expect(await publish(server)).toBe(200);
  },
);

test("a server whose database is unavailable is not ready until it is available again", async () => {
  const postgres = await startPostgres();
  onTestFinished(() => postgres.stop());
  const server = await startWaypost([
    "dev",
    "--port",
    "0",
    "--data",
    temporaryFolder(),
    "--database-url",
    postgres.url,
  ]);
  expect(await publish(server)).toBe(200);
  expect(await statusOf(server, "/v2/health/ready")).toBe(200);
  await postgres.down("SIGINT");
  expect(await statusOf(server, "/v2/health/ready")).toBe(503);
  expect(await publish(server)).toBe(503);
  expect(await statusOf(server, "/v2/health/ready")).toBe(503);
  await postgres.up();
  await untilReady(server);
  expect(await publish(server)).toBe(200);
});
