import { beforeEach, describe, expect, test } from "vitest";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

let server: TestServer;
beforeEach(async () => {
  server = await createTestServer();
});

const second = 1000;
const seconds = testTime / second;

/** A key without limits and without messages. */
const idle = {
  flowControlKey: "k",
  waitListSize: 0,
  waitlistSize: 0,
  parallelismMax: 0,
  parallelismCount: 0,
  rateMax: 0,
  rateCount: 0,
  ratePeriod: 0,
  ratePeriodStart: 0,
  isPaused: false,
  isPinnedParallelism: false,
  isPinnedRate: false,
};

async function publish(
  key: string,
  value: string,
  more: { delay?: string; token?: string; count?: number } = {},
): Promise<void> {
  const { delay, token, count = 1 } = more;
  const headers = {
    "svc-flow-control-key": key,
    "svc-flow-control-value": value,
    ...(delay && { "svc-delay": delay }),
  };
  for (let times = 0; times < count; times++) {
    expect(
      (await server.ask("POST", "/v2/publish/https://e.example", { headers, ...(token && { token }) }))
        .status,
    ).toBe(200);
  }
}

const read = async (key = "k"): Promise<unknown> =>
  (await server.ask("GET", `/v2/flowControl/${encodeURIComponent(key)}`)).body;

/** Sends a request that changes the key `k`, which must succeed. */
async function change(what: string): Promise<unknown> {
  const { status, body } = await server.ask("POST", `/v2/flowControl/k/${what}`);
  expect(body).not.toHaveProperty("error");
  expect(status).toBe(200);
  return body;
}

describe("a key", () => {
  test("has all of its fields from its first message on", async () => {
    await publish("k", "parallelism=2,rate=5,period=1m", { count: 3 });
    expect(await read()).toEqual({
      flowControlKey: "k",
      waitListSize: 1,
      waitlistSize: 1,
      parallelismMax: 2,
      parallelismCount: 2,
      rateMax: 5,
      rateCount: 2,
      ratePeriod: 60,
      ratePeriodStart: seconds,
      isPaused: false,
      isPinnedParallelism: false,
      isPinnedRate: false,
    });
  });

  test("has 0 for each limit that it does not have", async () => {
    await publish("k", "parallelism=2", { delay: "1h" });
    expect(await read()).toEqual({ ...idle, parallelismMax: 2 });
    await publish("k", "rate=7", { delay: "1h" });
    expect(await read()).toEqual({ ...idle, rateMax: 7, ratePeriod: 1, ratePeriodStart: seconds });
  });

  test("shows the current period, even if no delivery has started in it", async () => {
    await publish("k", "rate=7, period=10");
    server.clock.now += 9_999;
    expect(await read()).toMatchObject({ rateCount: 1, ratePeriodStart: seconds });
    server.clock.now += 1;
    expect(await read()).toMatchObject({ rateCount: 0, ratePeriodStart: seconds + 10 });
  });

  test.each([
    "a/b",
    "__proto__",
    "constructor",
    "ü 💣",
    "%",
    "?x#y",
    "..",
    ".",
    "pause",
    "a,b",
    "key:k",
    "x".repeat(512),
  ])("may be called %s", async (key) => {
    const path = `/v2/flowControl/${encodeURIComponent(key)}`;
    const written = Buffer.from(key).toString("latin1");
    // A client resolves a path segment of dots as a folder, so such a name cannot be requested.
    const headers = { "svc-flow-control-key": written, "svc-flow-control-value": "parallelism=1" };
    await server.ask("POST", "/v2/publish/https://e.example", { headers });
    expect((await server.ask("GET", "/v2/flowControl")).body).toEqual([
      { ...idle, flowControlKey: key, parallelismMax: 1, parallelismCount: 1 },
    ]);
    if (/^\.+$/.test(key)) return;
    expect(await server.ask("GET", path)).toMatchObject({ status: 200, body: { flowControlKey: key } });
    expect(await server.ask("POST", `${path}/pause`)).toMatchObject({
      status: 200,
      body: { flowControlKey: key, isPaused: true },
    });
    expect((await server.ask("GET", "/v2/flowControl")).body).toHaveLength(1);
  });

  test.each(["%00", "a%0Ab", "%7F", "x".repeat(513)])("cannot be called %s", async (key) => {
    expect((await server.ask("GET", `/v2/flowControl/${key}`)).status).toBe(404);
    for (const what of ["pause", "resume", "pin?rate=1", "unpin", "resetRate", "reset"]) {
      const reply = await server.ask("POST", `/v2/flowControl/${key}/${what}`);
      expect(reply).toMatchObject({
        status: 400,
        body: { error: expect.stringMatching(/^flowControlKey: /) },
      });
    }
    const published = await server.ask(
      "POST",
      `/v2/publish/https://e.example?svc-flow-control-key=${key}&svc-flow-control-value=rate%3D1`,
    );
    expect(published).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^svc-flow-control-key: /) },
    });
    expect((await server.ask("GET", "/v2/flowControl")).body).toEqual([]);
  });

  test("with a lone surrogate is refused in a batch", async () => {
    const headers = { "Svc-Flow-Control-Key": "\ud800", "Svc-Flow-Control-Value": "rate=1" };
    const body = JSON.stringify([{ destination: "https://e.example", headers }]);
    expect(await server.ask("POST", "/v2/batch", { body })).toMatchObject({ status: 400 });
  });

  test("has status 404 if it is unknown", async () => {
    const error = 'flowControlKey: there is no flow-control key "unknown"';
    expect(await server.ask("GET", "/v2/flowControl/unknown")).toMatchObject({
      status: 404,
      body: { error },
    });
  });

  test("belongs to one account", async () => {
    await publish("k", "parallelism=1", { count: 2 });
    expect((await server.ask("GET", "/v2/flowControl/k", { token: otherToken })).status).toBe(404);
    expect((await server.ask("GET", "/v2/flowControl", { token: otherToken })).body).toEqual([]);
    await publish("k", "parallelism=5", { token: otherToken });
    expect(server.deliveries.map(({ message }) => message.account)).toEqual(["acc_1", "acc_2"]);
    await server.ask("POST", "/v2/flowControl/k/pin?parallelism=9", { token: otherToken });
    await server.ask("POST", "/v2/flowControl/k/pause", { token: otherToken });
    expect(await read()).toEqual({
      ...idle,
      parallelismMax: 1,
      parallelismCount: 1,
      waitListSize: 1,
      waitlistSize: 1,
    });
  });
});

describe("the list of keys", () => {
  const names = async (query: string): Promise<string[]> =>
    (await server.ask("GET", `/v2/flowControl${query}`)).body.map(
      ({ flowControlKey }: { flowControlKey: string }) => flowControlKey,
    );

  test("has all keys, or those whose names contain a string, in order, and no queues", async () => {
    for (const key of ["shop-2", "shop-1", "a%b", "Shop"]) await publish(key, "rate=1");
    await server.ask("POST", "/v2/queues", { body: '{"queueName":"shop-3"}' });
    expect(await names("")).toEqual(["Shop", "a%b", "shop-1", "shop-2"]);
    expect(await names("/")).toHaveLength(4);
    expect(await names("?search=shop")).toEqual(["shop-1", "shop-2"]);
    expect(await names("?search=%25")).toEqual(["a%b"]);
    expect(await names("?search=key:")).toEqual([]);
    expect(await names("?after=a%25b")).toEqual(["shop-1", "shop-2"]);
    expect(await names("?after=shop-1&search=2")).toEqual(["shop-2"]);
  });

  test("continues where one read of the store ends", async () => {
    const items = Array.from({ length: 1001 }, (_, number) => ({
      destination: "https://e.example",
      headers: {
        "svc-flow-control-key": `k${number}`,
        "svc-flow-control-value": "rate=1",
        "svc-delay": "1h",
      },
    }));
    await server.ask("POST", "/v2/batch", { body: JSON.stringify(items) });
    expect(await names("")).toHaveLength(1001);
    expect(await names("?search=999")).toEqual(["k999"]);
  });
});

describe("pausing", () => {
  test("holds messages back until the key is resumed", async () => {
    await publish("k", "parallelism=1");
    expect(await change("pause")).toEqual({
      ...idle,
      parallelismMax: 1,
      parallelismCount: 1,
      isPaused: true,
    });
    await server.settle(server.delivery(), { status: 200 });
    await publish("k", "parallelism=1");
    expect(await read()).toEqual({
      ...idle,
      parallelismMax: 1,
      waitListSize: 1,
      waitlistSize: 1,
      isPaused: true,
    });
    expect(await change("pause")).toMatchObject({ isPaused: true });
    expect(await change("resume")).toMatchObject({ isPaused: false });
    await server.store.execute("claim", { limit: 10 });
    expect(server.deliveries).toHaveLength(1);
    expect(await change("resume")).toEqual({ ...idle, parallelismMax: 1, parallelismCount: 1 });
  });

  test("creates an unknown key, unlike resuming, unpinning and resetting", async () => {
    for (const what of ["resume", "unpin?rate=true", "resetRate", "reset"])
      expect(await change(what)).toEqual(idle);
    expect((await server.ask("GET", "/v2/flowControl/k")).status).toBe(404);
    expect(await change("pause")).toEqual({ ...idle, isPaused: true });
    await publish("k", "parallelism=1");
    expect(server.deliveries).toEqual([]);
    expect(await read()).toMatchObject({ waitListSize: 1 });
  });
});

describe("pinning", () => {
  test("sets limits that messages cannot change, also before the first message", async () => {
    expect(await change("pin?parallelism=3&rate=5&period=60")).toEqual({
      ...idle,
      parallelismMax: 3,
      rateMax: 5,
      ratePeriod: 60,
      ratePeriodStart: seconds,
      isPinnedParallelism: true,
      isPinnedRate: true,
    });
    await publish("k", "parallelism=9,rate=9,period=9");
    const begun = { parallelismCount: 1, rateCount: 1 };
    expect(await read()).toMatchObject({ parallelismMax: 3, rateMax: 5, ratePeriod: 60, ...begun });
    expect(await change("unpin?parallelism=true")).toMatchObject({
      parallelismMax: 3,
      isPinnedParallelism: false,
      isPinnedRate: true,
    });
    await publish("k", "parallelism=9,rate=9,period=9");
    expect(await read()).toMatchObject({ parallelismMax: 9, rateMax: 5, ratePeriod: 60 });
    expect(await change("unpin?rate=true&parallelism=false")).toMatchObject({
      isPinnedRate: false,
      rateMax: 5,
    });
    await publish("k", "rate=8,period=9");
    expect(await read()).toMatchObject({ parallelismMax: 0, rateMax: 8, ratePeriod: 9 });
  });

  test("of one limit lets messages change the others", async () => {
    await publish("k", "parallelism=1,rate=2,period=60");
    server.clock.now += second;
    expect(await change("pin?parallelism=4")).toMatchObject({
      parallelismMax: 4,
      isPinnedParallelism: true,
      isPinnedRate: false,
      // The rate is not pinned.
      rateMax: 2,
      rateCount: 1,
      ratePeriod: 60,
      ratePeriodStart: seconds,
    });
    expect(await change("pin?period=2m")).toMatchObject({
      parallelismMax: 4,
      isPinnedParallelism: true,
      isPinnedRate: true,
      rateMax: 2,
      rateCount: 0,
      ratePeriod: 120,
      ratePeriodStart: seconds + 1,
    });
  });

  test.each([
    ["", 400, "query: nothing to pin; give parallelism, rate or period"],
    ["?parallelism=0", 400, "parallelism: must be at least 1"],
    ["?rate=0", 400, "rate: must be at least 1"],
    ["?rate=-1", 400, "rate: is not a whole number"],
    ["?parallelism=1.5", 400, "parallelism: is not a whole number"],
    ["?parallelism=1e3", 400, "parallelism: is not a whole number"],
    ["?parallelism=NaN", 400, "parallelism: is not a whole number"],
    ["?parallelism=", 400, "parallelism: is empty"],
    ["?parallelism=10001", 412, "parallelism: 10001 exceeds the limit of 10000"],
    ["?rate=1000001", 412, "rate: 1000001 exceeds the limit of 1000000"],
    ["?rate=9999999999999999999999", 400, "rate: is not a whole number"],
    ["?rate=1&period=0", 400, "period: is not a duration from 1ms to 7d, such as 60 or 1m"],
    ["?rate=1&period=soon", 400, "period: is not a duration from 1ms to 7d, such as 60 or 1m"],
    ["?rate=1&period=604801", 400, "period: 7d1s exceeds the limit of 7d"],
    ["?rate=1&rate=2", 400, "rate: is given more than once, with different values"],
    ["?paralelism=1", 400, "paralelism: unknown parameter; did you mean parallelism?"],
  ])("with %j is refused", async (query, status, error) => {
    expect(await server.ask("POST", `/v2/flowControl/k/pin${query}`)).toMatchObject({
      status,
      body: { error },
    });
    expect((await server.ask("GET", "/v2/flowControl")).body).toEqual([]);
  });

  test.each(["?parallelism=yes", "?rate=1", "?period=true"])(
    "stays if unpin is refused: %s",
    async (query) => {
      await change("pin?parallelism=1&rate=1");
      expect((await server.ask("POST", `/v2/flowControl/k/unpin${query}`)).status).toBe(400);
      expect(await change("unpin")).toMatchObject({ isPinnedParallelism: true, isPinnedRate: true });
    },
  );
});

test.each(["resetRate", "reset"])(
  "%s starts a new period, and deliveries in flight still count",
  async (what) => {
    await publish("k", "parallelism=2, rate=2, period=60", { count: 3 });
    server.clock.now += 5 * second;
    expect(await change(what)).toMatchObject({
      rateCount: 0,
      ratePeriodStart: seconds + 5,
      parallelismCount: 2,
      waitListSize: 1,
    });
    await server.store.execute("claim", { limit: 10 });
    expect(await read()).toMatchObject({ rateCount: 0, parallelismCount: 2, waitListSize: 1 });
  },
);

test("the global parallelism is the number of deliveries of the account", async () => {
  const under = async (token?: string): Promise<unknown> => {
    const { status, body } = await server.ask("GET", "/v2/globalParallelism", token ? { token } : {});
    expect(status).toBe(200);
    return body;
  };
  expect(await under()).toEqual({ parallelismMax: 0, parallelismCount: 0 });
  await publish("k", "parallelism=2", { count: 5 });
  await publish("l", "parallelism=2", { delay: "10s" });
  await publish("k", "parallelism=9", { token: otherToken, count: 1 });
  expect(await under()).toEqual({ parallelismMax: 0, parallelismCount: 2 });
  expect(await under(otherToken)).toEqual({ parallelismMax: 0, parallelismCount: 1 });
  const [first] = server.deliveries;
  await server.ask("POST", "/v2/flowControl/k/pause");
  if (first) await server.settle(first, { status: 500 });
  expect(await under()).toEqual({ parallelismMax: 0, parallelismCount: 1 });
});
