import { beforeEach, describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let home: TestServer;
beforeEach(async () => {
  home = await createTestServer();
});

const json = (body: unknown) => ({ body: JSON.stringify(body) });
const fresh = { name: "q", createdAt: testTime, updatedAt: testTime, parallelism: 1, paused: false, lag: 0 };

async function enqueue(queue: string, path = "", headers: Record<string, string> = {}, token?: string): Promise<string> {
  const { status, body } = await home.ask("POST", `/v2/enqueue/${queue}/https://e.example/${path}`, { headers, ...(token && { token }) });
  expect(status).toBe(200);
  return String(body.messageId);
}

const read = async (queue = "q"): Promise<unknown> => (await home.ask("GET", `/v2/queues/${queue}`)).body;

describe("making a queue", () => {
  test("answers it, and it can be read and is in the list", async () => {
    const made = await home.ask("POST", "/v2/queues", json({ queueName: "q", parallelism: 2, paused: true }));
    const queue = { ...fresh, parallelism: 2, paused: true };
    expect(made).toMatchObject({ status: 200, body: queue });
    expect(await home.ask("GET", "/v2/queues/q")).toMatchObject({ status: 200, body: queue });
    expect((await home.ask("GET", "/v2/queues")).body).toEqual([queue]);
    expect((await home.ask("GET", "/v2/queues/")).body).toEqual([queue]);
  });

  test("needs its name alone", async () => {
    expect((await home.ask("POST", "/v2/queues/", json({ queueName: "q" }))).body).toEqual(fresh);
  });

  test("changes what is said, and keeps the rest", async () => {
    await home.ask("POST", "/v2/queues", json({ queueName: "q", parallelism: 3, paused: true }));
    home.clock.now += 1000;
    const changed = { ...fresh, parallelism: 3, updatedAt: testTime + 1000 };
    expect((await home.ask("POST", "/v2/queues", json({ queueName: "q", paused: false }))).body).toEqual(changed);
    expect((await home.ask("POST", "/v2/queues", json({ queueName: "q", parallelism: 10_000 }))).body).toEqual({
      ...changed,
      parallelism: 10_000,
    });
  });

  test.each([
    [{}, 400, "queueName: is missing, or not a text"],
    [{ queueName: 5 }, 400, "queueName: is missing, or not a text"],
    [{ queueName: "" }, 400, /^queueName: "" is no name; letters, digits/],
    [{ queueName: "a/b" }, 400, /^queueName: "a\/b" is no name/],
    [{ queueName: ".." }, 400, /^queueName: ".." is no name/],
    [{ queueName: "ü" }, 400, /^queueName: /],
    [{ queueName: "a\u0000" }, 400, /^queueName: /],
    [{ queueName: "x".repeat(513) }, 400, /^queueName: .* 512 at most$/],
    [{ queueName: "q", parallelism: 0 }, 400, "parallelism: must be at least 1"],
    [{ queueName: "q", parallelism: -1 }, 400, "parallelism: must be at least 1"],
    [{ queueName: "q", parallelism: 1.5 }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: "1" }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: null }, 400, "parallelism: is not a whole number"],
    [{ queueName: "q", parallelism: 1e300 }, 400, /^parallelism: /],
    [{ queueName: "q", parallelism: 10_001 }, 412, "parallelism: 10001 asked for, the limit is 10000"],
    [{ queueName: "q", parallelism: 2 ** 53 - 1 }, 412, /^parallelism: .*the limit is 10000$/],
    [{ queueName: "q", paused: "true" }, 400, "paused: is neither true nor false"],
    [{ queueName: "q", paralelism: 3 }, 400, "paralelism: there is no such field; there are queueName, parallelism, paused"],
    [[], 400, /^body: /],
    ["q", 400, /^body: /],
    [null, 400, /^body: /],
  ])("with %j is refused", async (body, status, error) => {
    const expected = typeof error === "string" ? error : expect.stringMatching(error);
    expect(await home.ask("POST", "/v2/queues", json(body))).toMatchObject({ status, body: { error: expected } });
    expect((await home.ask("GET", "/v2/queues")).body).toEqual([]);
  });

  test("with no body, or with none that is JSON, is refused", async () => {
    expect(await home.ask("POST", "/v2/queues")).toMatchObject({ status: 400, body: { error: expect.stringMatching(/queueName/) } });
    expect(await home.ask("POST", "/v2/queues", { body: '{"queueName":' })).toMatchObject({ status: 400 });
    const own = '{"queueName":"q","__proto__":{"paused":true}}';
    expect((await home.ask("POST", "/v2/queues", { body: own })).status).toBe(400);
  });

  test.each(["__proto__", "constructor", "toString", "...", "-", "a.b_c-d", "x".repeat(512)])("by the name %s", async (queueName) => {
    await home.ask("POST", "/v2/queues", json({ queueName }));
    expect((await home.ask("GET", "/v2/queues")).body).toEqual([{ ...fresh, name: queueName }]);
    expect((await home.ask("GET", `/v2/queues/${encodeURIComponent(queueName)}`)).body).toEqual({ ...fresh, name: queueName });
  });
});

describe("a queue", () => {
  test("comes with its first message, and its lag counts what waits and what is under way", async () => {
    const headers = { "svc-retry-delay": "60000", "svc-callback": "https://c.example" };
    await enqueue("q", "1", headers);
    await enqueue("q", "2");
    await enqueue("q", "later", { "svc-delay": "1h" });
    expect(await read()).toEqual({ ...fresh, lag: 2 });
    await home.settle(home.delivery(), { status: 200 });
    // The callback of the first one is not finished.
    expect(await read()).toEqual({ ...fresh, lag: 2 });
    await home.settle(home.delivery(), { status: 200 });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("that does not exist is 404, and 400 by a name that none can have", async () => {
    const missing = 'queue: there is no queue "unknown"; GET /v2/queues lists those there are';
    expect(await home.ask("GET", "/v2/queues/unknown")).toMatchObject({ status: 404, body: { error: missing } });
    for (const name of ["a%2Fb", "%00", "a%20b", "%F0%9F%92%A3", "x".repeat(513), "queue:q"]) {
      for (const [method, path] of [
        ["GET", ""],
        ["DELETE", ""],
        ["POST", "/pause"],
        ["POST", "/resume"],
      ] as const) {
        const reply = await home.ask(method, `/v2/queues/${name}${path}`);
        expect(reply, `${method} ${name}`).toMatchObject({ status: 400, body: { error: expect.stringMatching(/^queue: .* is no name/) } });
      }
    }
  });

  test("is that of its account alone", async () => {
    await enqueue("q", "1");
    await enqueue("q", "2");
    home.delivery();
    expect((await home.ask("GET", "/v2/queues", { token: otherToken })).body).toEqual([]);
    expect((await home.ask("GET", "/v2/queues/q", { token: otherToken })).status).toBe(404);
    await enqueue("q", "3", {}, otherToken);
    // It does not wait for the messages of the other one.
    expect(home.delivery().message.account).toBe("acc_2");
    await home.ask("POST", "/v2/queues/q/pause", { token: otherToken });
    expect(await home.ask("DELETE", "/v2/queues/q", { token: otherToken })).toMatchObject({ status: 200, body: { cancelled: 1 } });
    expect(await read()).toEqual({ ...fresh, lag: 2 });
  });

  test("is in the list in the order of names, and keys are not", async () => {
    for (const queueName of ["b", "a", "B", "a.b"]) await home.ask("POST", "/v2/queues", json({ queueName }));
    await home.ask("POST", "/v2/flowControl/zz/pause");
    expect((await home.ask("GET", "/v2/queues")).body.map(({ name }: { name: string }) => name)).toEqual(["B", "a", "a.b", "b"]);
  });
});

describe("pausing", () => {
  test("holds messages back until the queue is resumed, however often either is asked for", async () => {
    await enqueue("q", "1");
    home.delivery();
    home.clock.now += 500;
    for (let times = 0; times < 2; times++) {
      const paused = { ...fresh, updatedAt: testTime + 500, paused: true, lag: 1 };
      expect(await home.ask("POST", "/v2/queues/q/pause")).toMatchObject({ status: 200, body: paused });
      home.clock.now += 100;
    }
    await enqueue("q", "2");
    for (let times = 0; times < 2; times++) {
      expect((await home.ask("POST", "/v2/queues/q/resume")).body).toEqual({ ...fresh, updatedAt: testTime + 700, lag: 2 });
      home.clock.now += 100;
    }
  });

  test("makes a queue that is not there yet; resuming does not", async () => {
    expect((await home.ask("POST", "/v2/queues/new/pause")).body).toEqual({ ...fresh, name: "new", paused: true });
    await enqueue("new");
    expect(home.deliveries).toEqual([]);
    expect(await home.ask("POST", "/v2/queues/other/resume")).toMatchObject({ status: 200, body: {} });
    expect((await home.ask("GET", "/v2/queues/other")).status).toBe(404);
  });
});

describe("deleting", () => {
  test("cancels all messages of the queue, and those of no other one", async () => {
    const ids = [await enqueue("q", "1"), await enqueue("q", "2"), await enqueue("q", "3", { "svc-delay": "1h" })];
    const first = home.delivery();
    const others = [await enqueue("p", "1"), await enqueue("p", "2")];
    expect(await home.ask("DELETE", "/v2/queues/q")).toMatchObject({ status: 200, body: { cancelled: 3 } });
    expect((await home.ask("GET", "/v2/queues")).body).toEqual([{ ...fresh, name: "p", lag: 2 }]);
    await home.settle(first, { error: "aborted" });
    for (const id of ids) {
      const { body } = await home.ask("GET", `/v2/logs?messageId=${id}&state=CANCELLED`);
      expect(body.logs ?? body.events).toHaveLength(1);
    }
    for (const id of others) expect((await home.ask("DELETE", `/v2/messages/${id}`)).body).toEqual({ cancelled: 1 });
  });

  test("does not wait for a request that is called off, and a new queue of the name does not either", async () => {
    await enqueue("q", "1");
    const first = home.delivery();
    expect((await home.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1 });
    expect((await home.ask("GET", "/v2/queues/q")).status).toBe(404);
    await enqueue("q", "2");
    expect(home.delivery().message.url).toBe("https://e.example/2");
    await home.settle(first, { error: "aborted" });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("of a queue that is not there is 200", async () => {
    expect(await home.ask("DELETE", "/v2/queues/never")).toMatchObject({ status: 200, body: { cancelled: 0 } });
    await home.ask("POST", "/v2/queues", json({ queueName: "q" }));
    for (let times = 0; times < 2; times++) expect((await home.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 0 });
    expect((await home.ask("GET", "/v2/queues")).body).toEqual([]);
  });

  test("lets callbacks of finished messages be delivered", async () => {
    await enqueue("q", "1", { "svc-callback": "https://c.example" });
    await enqueue("q", "2");
    await home.settle(home.delivery(), { status: 200 });
    const callback = home.delivery();
    expect(callback.message.url).toBe("https://c.example");
    expect((await home.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1 });
    await enqueue("q", "3");
    expect(home.delivery().message.url).toBe("https://e.example/3");
    await home.settle(callback, { status: 200 });
    expect(await read()).toEqual({ ...fresh, lag: 1 });
  });

  test("works on more messages than are cancelled at once", async () => {
    const item = { destination: "https://e.example", queue: "q", headers: { "svc-delay": "1h" } };
    expect((await home.ask("POST", "/v2/batch", json(Array.from({ length: 1200 }, () => item)))).status).toBe(200);
    expect((await home.ask("DELETE", "/v2/queues/q")).body).toEqual({ cancelled: 1200 });
  });

  test("gives up when messages come faster than they are cancelled, and leaves the queue paused", async () => {
    const busy = await createTestServer({
      wrap: (store) => ({ ...store, read: { ...store.read, listQueueMessages: async () => ["msg_1"] } }),
    });
    await busy.ask("POST", "/v2/queues", json({ queueName: "q" }));
    expect(await busy.ask("DELETE", "/v2/queues/q")).toMatchObject({
      status: 503,
      body: { error: expect.stringMatching(/^queue: 0 messages were cancelled.*ask again/) },
    });
    expect((await busy.ask("GET", "/v2/queues/q")).body).toEqual({ ...fresh, paused: true });
  });
});
