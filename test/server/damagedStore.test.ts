import { closeSync, openSync, readFileSync, statSync, truncateSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { Process } from "./waypost.ts";
import { developmentToken, runWaypost, startDestination, startWaypost, temporaryFolder } from "./waypost.ts";

const authorized = { authorization: `Bearer ${developmentToken}` };

type Sent = { body: string; delay?: string };

async function publish(server: Process, to: string, { body, delay = "0s" }: Sent): Promise<string> {
  const reply = await fetch(`${server.url}/v2/publish/${to}`, {
    method: "POST",
    headers: { ...authorized, "svc-delay": delay },
    body,
  });
  return ((await reply.json()) as { messageId: string }).messageId;
}

async function stopped(server: Process): Promise<string> {
  server.kill("SIGTERM");
  return (await server.ended).err;
}

const refused = async (data: string): Promise<unknown> => {
  const { code, err } = await runWaypost(["dev", "--port", "0", "--data", data]).ended;
  return { code, err };
};

test(
  "a server refuses a truncated store and edited keys, and names the file and what to do",
  { tags: "long" },
  async () => {
    const data = temporaryFolder();
    await stopped(await startWaypost(["dev", "--port", "0", "--data", data]));
    const store = join(data, "waypost.db");
    const keys = join(data, "keys");
    const text = readFileSync(keys, "utf8");
    writeFileSync(
      keys,
      text.replace(/^1:(.)/m, (_, first: string) => `1:${first === "A" ? "B" : "A"}`),
    );
    expect(await refused(data)).toEqual({
      code: 2,
      err: expect.stringContaining(`${keys}: damaged or edited`),
    });
    writeFileSync(keys, text);
    truncateSync(store, statSync(store).size - 8_192);
    expect(await refused(data)).toEqual({
      code: 2,
      err: expect.stringContaining(`${store}: damaged: the file has`),
    });
    expect(await refused(data)).toEqual({
      code: 2,
      err: expect.stringContaining(`restore it from a backup; or, with the server stopped: sqlite3`),
    });
  },
);

test("a message that was altered on the disk is quarantined and logged, and others arrive", async () => {
  const destination = await startDestination();
  const data = temporaryFolder();
  const server = await startWaypost(["dev", "--port", "0", "--data", data]);
  const altered = await publish(server, `${destination.url}/altered`, { body: "right", delay: "1d" });
  const database = new DatabaseSync(join(data, "waypost.db"));
  database.exec(`update stored_messages set body = cast('wrong' as blob) where id = '${altered}'`);
  database.close();
  await fetch(`${server.url}/v2/messages/${altered}/send-now`, { method: "POST", headers: authorized });
  await publish(server, `${destination.url}/whole`, { body: "whole" });
  const deadLetters = async (): Promise<unknown[]> => {
    const reply = await fetch(`${server.url}/v2/dlq`, { headers: authorized });
    return ((await reply.json()) as { messages: unknown[] }).messages;
  };
  while (destination.arrivals.length === 0 || (await deadLetters()).length === 0)
    await new Promise((resolve) => setTimeout(resolve, 50));
  expect(destination.arrivals.map(({ path, body }) => [path, body.toString()])).toEqual([
    ["/whole", "whole"],
  ]);
  expect(await deadLetters()).toMatchObject([
    { messageId: altered, damaged: true, error: expect.stringContaining("damaged") },
  ]);
  const err = await stopped(server);
  expect(err).toContain(`${join(data, "waypost.db")}: stored_messages`);
  expect(err).toContain(`${altered} is damaged`);
});

test(
  "an unreadable page fails only what needs it, and makes the server not ready",
  { tags: "long" },
  async () => {
    const destination = await startDestination();
    const data = temporaryFolder();
    await stopped(await startWaypost(["dev", "--port", "0", "--data", data]));
    const store = join(data, "waypost.db");
    const database = new DatabaseSync(store);
    const page = Number(
      database.prepare("select pageno from dbstat where name = 'dead_letters'").get()?.["pageno"],
    );
    const size = Number(database.prepare("pragma page_size").get()?.["page_size"]);
    database.close();
    const file = openSync(store, "r+");
    writeSync(file, Buffer.alloc(size, 0xff), 0, size, (page - 1) * size);
    closeSync(file);
    const server = await startWaypost(["dev", "--port", "0", "--data", data]);
    const statusOf = async (path: string): Promise<number> =>
      (await fetch(`${server.url}${path}`, { headers: authorized })).status;
    expect(await statusOf("/v2/dlq")).toBe(500);
    expect(await statusOf("/v2/health/ready")).toBe(503);
    await publish(server, `${destination.url}/whole`, { body: "whole" });
    await destination.until((arrivals) => arrivals.length === 1);
    expect(await stopped(server)).toContain(`${store}: damaged, or not a store of waypost`);
  },
);
