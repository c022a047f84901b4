import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { createTestServer, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { createRawClient, listen } from "../wire.ts";

const mebi = 1024 * 1024;
const large = 150;

/**
 * Creates groups of 100 KiB each, which are changed in an order different from that of their names. Counts
 * what is read from then on.
 */
async function manyGroups(
  options: { longResponseBytes?: number } = {},
): Promise<TestServer & { port: number; names: string[]; reads(): number }> {
  let reads = 0;
  const server = await createTestServer({
    ...options,
    wrap: (store) => ({
      ...store,
      read: {
        ...store.read,
        findResource: (...asked) => (reads++, store.read.findResource(...asked)),
      },
    }),
  });
  const endpoints = Array.from({ length: 10 }, (_, at) => ({
    name: `n${at}`,
    url: `https://e.example/${at}/${"é".repeat(10_000)}`,
  }));
  const names = Array.from({ length: large }, (_, at) => `g${(at * 7) % large}`);
  for (const name of names) {
    server.clock.now += 1;
    expect(
      (await server.ask("POST", `/v2/topics/${name}/endpoints`, { body: JSON.stringify({ endpoints }) }))
        .status,
    ).toBe(200);
  }
  return { ...server, port: await listen(server), names: names.toReversed(), reads: () => reads };
}

/** Requests the groups and reads nothing. */
async function unread(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.pause().write(`GET /v2/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  return socket;
}

/** Waits until a figure has not changed for half a second. */
async function settled(figure: () => number): Promise<number> {
  let before = -1;
  while (before !== figure()) {
    before = figure();
    await new Promise((go) => setTimeout(go, 500));
  }
  return before;
}

test("a long list is complete and in order; its entries equal the responses for single ones", async () => {
  const { ask, port, names } = await manyGroups();
  const asked = createRawClient(port, token);
  onTestFinished(() => asked.close());
  const { status, text } = await asked.ask({ method: "GET", target: "/v2/topics" });
  expect(status).toBe(200);
  const each = [];
  for (const name of names) each.push((await ask("GET", `/v2/topics/${name}`)).body);
  expect(text === JSON.stringify(each)).toBe(true);
  expect((await ask("HEAD", "/v2/topics")).status).toBe(200);
  expect((await ask("GET", "/v2/topics")).headers["content-type"]).toBe("application/json; charset=utf-8");
});

test("a short list is sent with its length, like any response, even if it is empty", async () => {
  const { ask } = await createTestServer();
  expect(await ask("GET", "/v2/topics")).toMatchObject({
    status: 200,
    body: [],
    headers: { "content-length": "2" },
  });
  await ask("POST", "/v2/topics/g/endpoints", {
    body: JSON.stringify({ endpoints: [{ url: "https://e.example" }] }),
  });
  const one = await ask("GET", "/v2/topics");
  expect(one.headers["content-length"]).toBe(String(JSON.stringify(one.body).length));
  for (const path of ["/v2/queues", "/v2/flowControl", "/v2/schedules"])
    expect(await ask("GET", path)).toMatchObject({
      status: 200,
      body: [],
      headers: { "content-length": "2" },
    });
});

test("the server reads no more of a list than its client receives", { tags: "long" }, async () => {
  const { port, reads } = await manyGroups();
  const socket = await unread(port);
  await expect.poll(reads).toBeGreaterThan(0);
  // The server first reads two pages of 4 MiB each.
  expect(await settled(reads)).toBeLessThanOrEqual(90);
  let bytes = 0;
  socket.on("data", (piece: Buffer) => (bytes += piece.length));
  socket.resume();
  await expect.poll(reads).toBe(large);
  await expect.poll(() => bytes).toBeGreaterThan(large * 100_000);
});

test(
  "unread lists take the room of their account until their connections end",
  { tags: "long" },
  async () => {
    const server = await manyGroups({ longResponseBytes: 10 * mebi });
    const status = async (): Promise<number> => (await server.ask("GET", "/v2/queues")).status;
    const sockets = [await unread(server.port), await unread(server.port), await unread(server.port)];
    await expect.poll(status).toBe(503);
    expect(await settled(server.reads)).toBeLessThan(large * 2);
    // A connection that continues is waited for, and loses nothing.
    let received = "";
    sockets[0]?.on("data", (piece: Buffer) => (received += piece.toString("latin1")));
    sockets[0]?.resume();
    for (const socket of sockets.slice(1)) socket.destroy();
    await expect.poll(() => received.endsWith("]\r\n0\r\n\r\n")).toBe(true);
    await expect.poll(status).toBe(200);
    sockets[0]?.destroy();
  },
);

test("a list of queues of several pages is complete", { tags: "long" }, async () => {
  const { ask } = await createTestServer();
  const names = Array.from({ length: 2_300 }, (_, at) => `q${String(at).padStart(4, "0")}`);
  for (const queueName of names) await ask("POST", "/v2/queues", { body: JSON.stringify({ queueName }) });
  expect((await ask("GET", "/v2/queues")).body.map(({ name }: { name: string }) => name)).toEqual(names);
});
