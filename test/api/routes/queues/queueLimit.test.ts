import { beforeEach, describe, expect, test } from "vitest";
import { createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer({ maxQueues: 2 });
  await enqueue("a");
  await server.ask("POST", "/v2/queues/b/pause");
});

const enqueue = (queue: string, token?: string): Promise<Reply> =>
  server.ask("POST", `/v2/enqueue/${queue}/https://e.example/`, token === undefined ? {} : { token });
const upsert = (queueName: string): Promise<Reply> =>
  server.ask("POST", "/v2/queues", { body: JSON.stringify({ queueName }) });
const names = async (): Promise<string[]> =>
  (await server.ask("GET", "/v2/queues")).body.map(({ name }: { name: string }) => name);

const error =
  "queues: there are 2, and the limit is 2; delete some that are not needed, or start the server with a " +
  "higher WAYPOST_MAX_QUEUES";

describe("an account at its limit of queues", () => {
  test.each([
    ["enqueue", () => enqueue("c")],
    ["pause", () => server.ask("POST", "/v2/queues/c/pause")],
    ["upsert", () => upsert("c")],
  ])("gets no more by %s", async (_, ask) => {
    expect(await ask()).toMatchObject({ status: 412, body: { error } });
    expect(await names()).toEqual(["a", "b"]);
  });

  test("gets no more by a batch, whose other messages are accepted", async () => {
    const items = ["a", "c", "b"].map((queue) => ({ destination: "https://e.example/", queue }));
    const { status, body } = await server.ask("POST", "/v2/batch", { body: JSON.stringify(items) });
    expect({ status, body }).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }, { error }, { messageId: expect.any(String) }],
    });
    expect(await names()).toEqual(["a", "b"]);
  });

  test("gets no more by a batch for many unknown queues, or by many requests at once", async () => {
    const queues = Array.from({ length: 30 }, (_, number) => `q${number}`);
    const items = queues.map((queue) => ({ destination: "https://e.example/", queue }));
    const { body } = await server.ask("POST", "/v2/batch", {
      body: JSON.stringify(items),
      token: otherToken,
    });
    expect(body.map((one: { error?: string }) => one.error ?? "")).toEqual([
      "",
      "",
      ...Array<string>(28).fill(error),
    ]);
    server.clock.now += 60_000;
    for (const queue of ["a", "b"]) await server.ask("DELETE", `/v2/queues/${queue}`);
    const replies = await Promise.all(
      queues.map((queue, number) => (number % 2 === 0 ? enqueue(queue) : upsert(queue))),
    );
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(2);
    expect(await names()).toHaveLength(2);
  });

  test("uses and changes its existing queues", async () => {
    expect(await enqueue("a")).toMatchObject({ status: 200 });
    expect(await enqueue("b")).toMatchObject({ status: 200 });
    expect(await upsert("b")).toMatchObject({ status: 200 });
    expect(await server.ask("POST", "/v2/queues/a/pause")).toMatchObject({ status: 200 });
    expect(await server.ask("POST", "/v2/queues/c/resume")).toMatchObject({ status: 200, body: {} });
  });

  test("can create a queue after deleting one", async () => {
    expect(await enqueue("c")).toMatchObject({ status: 412 });
    expect(await server.ask("DELETE", "/v2/queues/a")).toMatchObject({ status: 200 });
    expect(await enqueue("c")).toMatchObject({ status: 200 });
    expect(await enqueue("d")).toMatchObject({ status: 412 });
  });

  test("does not affect other accounts, and has no limit of keys", async () => {
    expect(await enqueue("c", otherToken)).toMatchObject({ status: 200 });
    for (const key of ["1", "2", "3"]) {
      const headers = { "svc-flow-control-key": key, "svc-flow-control-value": "parallelism=1" };
      expect(await server.ask("POST", "/v2/publish/https://e.example/", { headers })).toMatchObject({
        status: 200,
      });
    }
  });
});

test("a refused message creates no queue", async () => {
  const items = ["x", "y", "z"].map((queue) => ({
    destination: "https://e.example/",
    queue,
    headers: { "svc-retries": "bad" },
  }));
  for (let turn = 0; turn < 2; turn++) {
    expect(
      await server.ask("POST", "/v2/batch", { body: JSON.stringify(items), token: otherToken }),
    ).toMatchObject({ status: 400 });
  }
  for (const queue of ["x", "y", "z"]) await enqueue(queue, otherToken);
  const queues = await server.ask("GET", "/v2/queues", { token: otherToken });
  expect(queues.body).toHaveLength(2);
});

test("a queue in constant use is not read from the store for each message", async () => {
  let reads = 0;
  const { findResource } = server.store.read;
  server.store.read.findResource = (...of) => {
    reads++;
    return findResource(...of);
  };
  for (let count = 0; count < 20; count++) await enqueue("a");
  expect(reads).toBeLessThanOrEqual(1);
});
