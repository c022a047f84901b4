import { beforeEach, describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const json = (body: unknown) => ({ body: JSON.stringify(body) });
const fresh = { name: "q", createdAt: testTime, updatedAt: testTime, parallelism: 1, paused: false, lag: 0 };

async function enqueue(
  queue: string,
  path = "",
  { headers = {}, token }: { headers?: Record<string, string>; token?: string } = {},
): Promise<string> {
  const { status, body } = await server.ask("POST", `/v2/enqueue/${queue}/https://e.example/${path}`, {
    headers,
    ...(token && { token }),
  });
  expect(status).toBe(200);
  return String(body.messageId);
}

const read = async (queue = "q"): Promise<unknown> => (await server.ask("GET", `/v2/queues/${queue}`)).body;

describe("creating a queue", () => {
  test("returns the queue, which can then be read and listed", async () => {
    const made = await server.ask(
      "POST",
      "/v2/queues",
      json({ queueName: "q", parallelism: 2, paused: true }),
    );
    const queue = { ...fresh, parallelism: 2, paused: true };
    expect(made).toMatchObject({ status: 200, body: queue });
    expect(await server.ask("GET", "/v2/queues/q")).toMatchObject({ status: 200, body: queue });
    expect((await server.ask("GET", "/v2/queues")).body).toEqual([queue]);
    expect((await server.ask("GET", "/v2/queues/")).body).toEqual([queue]);
  });

  test("requires only its name", async () => {
    expect((await server.ask("POST", "/v2/queues/", json({ queueName: "q" }))).body).toEqual(fresh);
  });

  test("changes the given settings of an existing queue and keeps the others", async () => {
    await server.ask("POST", "/v2/queues", json({ queueName: "q", parallelism: 3, paused: true }));
    server.clock.now += 1000;
    const changed = { ...fresh, parallelism: 3, updatedAt: testTime + 1000 };
    expect((await server.ask("POST", "/v2/queues", json({ queueName: "q", paused: false }))).body).toEqual(
      changed,
    );
    expect(
      (await server.ask("POST", "/v2/queues", json({ queueName: "q", parallelism: 10_000 }))).body,
    ).toEqual({
      ...changed,
      parallelism: 10_000,
    });
  });

  test.each([
    [{}, 400, "queueName: is missing or not a string"],
    [{ queueName: 5 }, 400, "queueName: is missing or not a string"],
    [{ queueName: "" }, 400, /^queueName: "" is not a valid name; use at most 512/],
    [{ queueName: "a/b" }, 400, /^queueName: "a\/b" is not a valid name/],
    [{ queueName: ".." }, 400, /^queueName: ".." is not a valid name/],
    [{ queueName: "ü" }, 400, /^queueName: /],
    [{ queueName: "a\u0000" }, 400, /^queueName: /],
    [{ queueName: "x".repeat(513) }, 400, /^queueName: .* use at most 512 of /],
    [{ queueName: "q", parallelism: 0 }, 400, "parallelism: must be at least 1"],
    [{ queueName: "q", parallelism: -1 }, 400, "parallelism: must be at least 1"],
    [{ queueName: "q", parallelism: 1.5 }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: "1" }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: null }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: 1e300 }, 400, /^parallelism: /],
    [{ queueName: "q", parallelism: 10_001 }, 412, "parallelism: 10001 exceeds the limit of 10000"],
    [{ queueName: "q", parallelism: 2 ** 53 - 1 }, 412, /^parallelism: .*exceeds the limit of 10000$/],
    [{ queueName: "q", paused: "true" }, 400, "paused: is neither true nor false"],
    [
      { queueName: "q", paralelism: 3 },
      400,
      "paralelism: unknown field; use queueName, parallelism, paused, ackTimeout",
    ],
    [[], 400, /^body: /],
    ["q", 400, /^body: /],
    [null, 400, /^body: /],
  ])("with %j is refused", async (body, status, error) => {
    const expected = typeof error === "string" ? error : expect.stringMatching(error);
    expect(await server.ask("POST", "/v2/queues", json(body))).toMatchObject({
      status,
      body: { error: expected },
    });
    expect((await server.ask("GET", "/v2/queues")).body).toEqual([]);
  });

  test("without a body or with malformed JSON is refused", async () => {
    expect(await server.ask("POST", "/v2/queues")).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/queueName/) },
    });
    expect(await server.ask("POST", "/v2/queues", { body: '{"queueName":' })).toMatchObject({ status: 400 });
    const own = '{"queueName":"q","__proto__":{"paused":true}}';
    expect((await server.ask("POST", "/v2/queues", { body: own })).status).toBe(400);
  });

  test.each(["__proto__", "constructor", "toString", "...", "-", "a.b_c-d", "x".repeat(512)])(
    "works with the name %s",
    async (queueName) => {
      await server.ask("POST", "/v2/queues", json({ queueName }));
      expect((await server.ask("GET", "/v2/queues")).body).toEqual([{ ...fresh, name: queueName }]);
      expect((await server.ask("GET", `/v2/queues/${encodeURIComponent(queueName)}`)).body).toEqual({
        ...fresh,
        name: queueName,
      });
    },
  );
});

describe("a queue", () => {
  test("is created by its first message, and its lag counts waiting messages and slots", async () => {
    const headers = { "svc-retry-delay": "60000", "svc-callback": "https://c.example" };
    await enqueue("q", "1", { headers });
    await enqueue("q", "2");
    await enqueue("q", "later", { headers: { "svc-delay": "1h" } });
    expect(await read()).toEqual({ ...fresh, lag: 2 });
    await server.settle(server.delivery(), { status: 200 });
    // The callback of the first message is not finished.
    expect(await read()).toEqual({ ...fresh, lag: 2 });
    await server.settle(server.delivery(), { status: 200 });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("has status 404 if it does not exist, and 400 if its name is not valid", async () => {
    const missing = 'queue: there is no queue "unknown"; GET /v2/queues lists the queues';
    expect(await server.ask("GET", "/v2/queues/unknown")).toMatchObject({
      status: 404,
      body: { error: missing },
    });
    for (const name of ["a%2Fb", "%00", "a%20b", "%F0%9F%92%A3", "x".repeat(513), "queue:q"]) {
      for (const [method, path] of [
        ["GET", ""],
        ["DELETE", ""],
        ["POST", "/pause"],
        ["POST", "/resume"],
      ] as const) {
        const reply = await server.ask(method, `/v2/queues/${name}${path}`);
        expect(reply, `${method} ${name}`).toMatchObject({
          status: 400,
          body: { error: expect.stringMatching(/^queue: .* is not a valid name/) },
        });
      }
    }
  });

  test("belongs to one account", async () => {
    await enqueue("q", "1");
    await enqueue("q", "2");
    server.delivery();
    expect((await server.ask("GET", "/v2/queues", { token: otherToken })).body).toEqual([]);
    expect((await server.ask("GET", "/v2/queues/q", { token: otherToken })).status).toBe(404);
    await enqueue("q", "3", { token: otherToken });
    // It does not wait for the messages of the other account's queue.
    expect(server.delivery().message.account).toBe("acc_2");
    await server.ask("POST", "/v2/queues/q/pause", { token: otherToken });
    expect(await server.ask("DELETE", "/v2/queues/q", { token: otherToken })).toMatchObject({
      status: 200,
      body: { cancelled: 1 },
    });
    expect(await read()).toEqual({ ...fresh, lag: 2 });
  });

  test("is listed in the order of names, without flow-control keys", async () => {
    for (const queueName of ["b", "a", "B", "a.b"])
      await server.ask("POST", "/v2/queues", json({ queueName }));
    await server.ask("POST", "/v2/flowControl/zz/pause");
    expect((await server.ask("GET", "/v2/queues")).body.map(({ name }: { name: string }) => name)).toEqual([
      "B",
      "a",
      "a.b",
      "b",
    ]);
  });
});

describe("pausing", () => {
  test("holds messages back until the queue is resumed, and both can be repeated", async () => {
    await enqueue("q", "1");
    server.delivery();
    server.clock.now += 500;
    for (let times = 0; times < 2; times++) {
      const paused = { ...fresh, updatedAt: testTime + 500, paused: true, lag: 1 };
      expect(await server.ask("POST", "/v2/queues/q/pause")).toMatchObject({ status: 200, body: paused });
      server.clock.now += 100;
    }
    await enqueue("q", "2");
    for (let times = 0; times < 2; times++) {
      expect((await server.ask("POST", "/v2/queues/q/resume")).body).toEqual({
        ...fresh,
        updatedAt: testTime + 700,
        lag: 2,
      });
      server.clock.now += 100;
    }
  });

  test("creates an unknown queue, unlike resuming", async () => {
    expect((await server.ask("POST", "/v2/queues/new/pause")).body).toEqual({
      ...fresh,
      name: "new",
      paused: true,
    });
    await enqueue("new");
    expect(server.deliveries).toEqual([]);
    expect(await server.ask("POST", "/v2/queues/other/resume")).toMatchObject({ status: 200, body: {} });
    expect((await server.ask("GET", "/v2/queues/other")).status).toBe(404);
  });
});

describe("deleting", () => {
  test("cancels all messages of the queue, and of no other queue", async () => {
    const ids = [
      await enqueue("q", "1"),
      await enqueue("q", "2"),
      await enqueue("q", "3", { headers: { "svc-delay": "1h" } }),
    ];
    const first = server.delivery();
    const others = [await enqueue("p", "1"), await enqueue("p", "2")];
    expect(await server.ask("DELETE", "/v2/queues/q")).toMatchObject({ status: 200, body: { cancelled: 3 } });
    expect((await server.ask("GET", "/v2/queues")).body).toEqual([{ ...fresh, name: "p", lag: 2 }]);
    await server.settle(first, { error: "aborted" });
    for (const id of ids) {
      const { body } = await server.ask("GET", `/v2/logs?messageId=${id}&state=CANCELLED`);
      expect(body.logs ?? body.events).toHaveLength(1);
    }
    for (const id of others)
      expect((await server.ask("DELETE", `/v2/messages/${id}`)).body).toEqual({ cancelled: 1 });
  });

  test("does not wait for an aborted request, and neither does a new queue of the same name", async () => {
    await enqueue("q", "1");
    const first = server.delivery();
    expect((await server.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1 });
    expect((await server.ask("GET", "/v2/queues/q")).status).toBe(404);
    await enqueue("q", "2");
    expect(server.delivery().message.url).toBe("https://e.example/2");
    await server.settle(first, { error: "aborted" });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("succeeds for a queue that does not exist", async () => {
    expect(await server.ask("DELETE", "/v2/queues/never")).toMatchObject({
      status: 200,
      body: { cancelled: 0 },
    });
    await server.ask("POST", "/v2/queues", json({ queueName: "q" }));
    for (let times = 0; times < 2; times++)
      expect((await server.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 0 });
    expect((await server.ask("GET", "/v2/queues")).body).toEqual([]);
  });

  test("lets callbacks of finished messages be delivered", async () => {
    await enqueue("q", "1", { headers: { "svc-callback": "https://c.example" } });
    await enqueue("q", "2");
    await server.settle(server.delivery(), { status: 200 });
    const callback = server.delivery();
    expect(callback.message.url).toBe("https://c.example");
    expect((await server.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1 });
    await enqueue("q", "3");
    expect(server.delivery().message.url).toBe("https://e.example/3");
    await server.settle(callback, { status: 200 });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("cancels more messages than one transaction does", async () => {
    const item = { destination: "https://e.example", queue: "q", headers: { "svc-delay": "1h" } };
    expect(
      (await server.ask("POST", "/v2/batch", json(Array.from({ length: 1200 }, () => item)))).status,
    ).toBe(200);
    expect((await server.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1200 });
  });

  test("stops if messages arrive faster than they are cancelled, and leaves the queue paused", async () => {
    const busy = await createTestServer({
      wrap: (store) => ({ ...store, read: { ...store.read, listQueueMessages: async () => ["msg_1"] } }),
    });
    await busy.ask("POST", "/v2/queues", json({ queueName: "q" }));
    expect(await busy.ask("DELETE", "/v2/queues/q")).toMatchObject({
      status: 503,
      body: {
        error: expect.stringMatching(/^queue: 0 messages were cancelled and more remain.*repeat the request/),
      },
    });
    expect((await busy.ask("GET", "/v2/queues/q")).body).toEqual({ ...fresh, paused: true });
  });
});
