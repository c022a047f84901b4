import { createHmac } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { createAlertTask } from "../../../src/operations/alerts/task.ts";
import type { Deliver } from "../../../src/engine/delivery/deliver.ts";
import { failMessage, listDeadLetters } from "../../api/routes/deadLetters/deadLetters.ts";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, operatorPassword, otherToken } from "../../api/testServer.ts";
import { createTestDeliver } from "../../engine/delivery/http/destination.ts";
import { verifyJwt } from "../../../src/engine/delivery/signature.ts";
import { startDestination } from "../../server/waypost.ts";
import { formatBasic } from "../../api/routes/accounts/possessions.ts";

const minute = 60_000;

type Options = { isOnHold?: boolean; stop?: AbortSignal; bytes?: { free: number; total: number } | null };

function createTask(
  testServer: TestServer,
  deliver: Deliver,
  { isOnHold = false, bytes = null, stop = new AbortController().signal }: Options = {},
) {
  const clock = { now: () => testServer.clock.now, sleep: () => Promise.resolve() };
  const disk = () => Promise.resolve(bytes);
  testServer.seen.disk = bytes;
  return createAlertTask({
    ...{ store: testServer.store, clock, deliver, disk, stop, isOnHold: () => isOnHold },
    listConditions: testServer.listConditions,
  });
}

const set = async ({ ask }: TestServer, url: string, more: object = {}): Promise<void> => {
  const { status, body } = await ask("PUT", "/v2/alerts", { body: JSON.stringify({ url, ...more }) });
  expect({ status, body }).toMatchObject({ status: 200 });
};

const readLog = async ({ ask }: TestServer) =>
  (await ask("GET", "/v2/alerts/log")).body.alerts as Record<string, unknown>[];

describe("a receiver of alerts", () => {
  test("gets one alert about dead letters, with a signature", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination(() => ({ status: 204 }));
    await set(testServer, `${receiver.url}/ops`);
    await failMessage(testServer, "https://one.example", {});
    await failMessage(testServer, "https://one.example", {});
    const task = createTask(testServer, createTestDeliver());
    await task.run();
    await task.run();
    expect(receiver.arrivals).toHaveLength(1);
    const [arrival] = receiver.arrivals;
    expect(JSON.parse(String(arrival?.body))).toMatchObject({
      event: "deadLetter.created",
      subject: "https://one.example 500",
      count: 2,
      account: { id: expect.any(String) },
    });
    const account = (await testServer.store.read.accounts())[0];
    const claims = verifyJwt(String(arrival?.headers["svc-signature"]), {
      keys: [account?.signingKeys.current ?? ""],
      body: arrival?.body ?? Buffer.alloc(0),
      url: `${receiver.url}/ops`,
      now: Date.now(),
    });
    expect(claims).not.toBeNull();
    expect(await readLog(testServer)).toMatchObject([{ state: "sent", responseStatus: 204, attempts: 1 }]);
  });

  test("with a secret verifies alerts by Standard Webhooks, and by no key of the account", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    const bytes = Buffer.from([...Array(32).keys()].map((at) => at * 8));
    await set(testServer, receiver.url, { secret: `whsec_${bytes.toString("base64")}` });
    await failMessage(testServer, "https://one.example", {});
    await createTask(testServer, createTestDeliver()).run();
    const [{ headers, body } = { headers: {} as Record<string, unknown>, body: Buffer.alloc(0) }] =
      receiver.arrivals;
    const id = String(headers["webhook-id"]);
    const signed = `${id}.${String(headers["webhook-timestamp"])}.${String(body)}`;
    const expected = createHmac("sha256", bytes).update(signed).digest("base64");
    expect(headers["webhook-signature"]).toBe(`v1,${expected}`);
    expect(id).toBe(JSON.parse(String(body)).alertId);
    expect(Object.keys(headers)).not.toContain("svc-signature");
  });

  test("that fails is tried again, and neither makes a dead letter nor another alert", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination(() => ({ status: 500 }));
    await set(testServer, receiver.url);
    await failMessage(testServer, "https://one.example", {});
    const task = createTask(testServer, createTestDeliver());
    for (let round = 0; round < 20; round++) {
      await task.run();
      testServer.clock.now += 2 * minute;
    }
    // After an hour, the dead letter is too old for an alert.
    testServer.clock.now += 60 * minute;
    await task.run();
    expect(receiver.arrivals).toHaveLength(5);
    expect(await readLog(testServer)).toMatchObject([
      { event: "deadLetter.created", state: "failed", attempts: 5, responseStatus: 500 },
    ]);
    expect((await listDeadLetters(testServer)).messages).toHaveLength(1);
    expect((await testServer.ask("GET", "/v2/messages")).body).toMatchObject({ messages: [] });
  });

  test("at a private address is not called", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await set(testServer, receiver.url);
    await failMessage(testServer, "https://one.example", {});
    await createTask(testServer, createTestDeliver({ allow: [] })).run();
    expect(receiver.arrivals).toEqual([]);
    expect(await readLog(testServer)).toMatchObject([
      { state: "pending", error: expect.stringContaining("WAYPOST_EGRESS_ALLOW") },
    ]);
  });

  test("on a host that is no longer allowed is not called", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await set(testServer, `${receiver.url}/ops`);
    await failMessage(testServer, "https://one.example", {});
    await testServer.store.execute("changeAccount", {
      account: "acc_1",
      change: { allowedHosts: ["one.example"] },
    });
    await createTask(testServer, createTestDeliver()).run();
    expect(receiver.arrivals).toEqual([]);
    const [alert] = await readLog(testServer);
    expect(alert).toMatchObject({ error: "the host 127.0.0.1 is not allowed for this account" });
  });

  test("gets nothing while deliveries are held, and afterwards the alerts", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await set(testServer, receiver.url);
    await failMessage(testServer, "https://one.example", {});
    await createTask(testServer, createTestDeliver(), { isOnHold: true }).run();
    expect(receiver.arrivals).toEqual([]);
    await createTask(testServer, createTestDeliver()).run();
    expect(receiver.arrivals).toHaveLength(1);
  });

  test("of one account gets nothing of another, and fails without stopping the others", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await set(testServer, "https://down.example/");
    await failMessage(testServer, "https://one.example", {});
    await testServer.ask("PUT", "/v2/alerts", {
      token: otherToken,
      body: JSON.stringify({ url: receiver.url }),
    });
    const real = createTestDeliver();
    await createTask(testServer, (delivery) =>
      delivery.message.url === "https://down.example/"
        ? { outcome: Promise.reject(new Error("down")), abort: () => undefined }
        : real(delivery),
    )
      .run()
      .catch((error: unknown) => expect(String(error)).toContain("down"));
    expect(receiver.arrivals).toEqual([]);
    const { body } = await testServer.ask("GET", "/v2/alerts/log", { token: otherToken });
    expect(body).toEqual({ alerts: [], dropped: 0 });
  });

  test("that does not respond delays no stop of the server", async () => {
    const testServer = await createTestServer();
    const stopping = new AbortController();
    const server = createServer(() => stopping.abort()).listen(0, "127.0.0.1");
    onTestFinished(() => void (server.closeAllConnections(), server.close()));
    await once(server, "listening");
    const address = server.address();
    await set(testServer, `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}/`);
    await failMessage(testServer, "https://one.example", {});
    const task = createTask(testServer, createTestDeliver(), { stop: stopping.signal });
    // The receiver never responds. Without the stop, this takes as long as the timeout.
    await task.run();
    expect(await readLog(testServer)).toMatchObject([
      { state: "pending", attempts: 1, error: expect.any(String) },
    ]);
    testServer.clock.now += minute;
    await task.run();
    expect(await readLog(testServer)).toMatchObject([{ attempts: 1 }]);
  });

  test("that was removed gets nothing, and the task sleeps", async () => {
    const testServer = await createTestServer();
    const task = createTask(testServer, createTestDeliver());
    expect(await task.nextAt()).toBe(Infinity);
    await set(testServer, "https://ops.example");
    expect(await task.nextAt()).toBe(testServer.clock.now);
    expect((await testServer.ask("DELETE", "/v2/alerts")).body).toEqual({ deleted: true });
    expect(await task.nextAt()).toBe(Infinity);
  });
});

describe("alerts beyond the limit of an hour", () => {
  test("are dropped and counted, and one more alert tells the receiver", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await set(testServer, receiver.url, { events: ["deadLetter.created"] });
    for (let at = 0; at < 33; at++) await failMessage(testServer, `https://host${at}.example`, {});
    const task = createTask(testServer, createTestDeliver());
    for (let look = 0; look < 8; look++) await task.run();
    const bodies = receiver.arrivals.map(({ body }) => JSON.parse(String(body)) as Record<string, unknown>);
    expect(bodies).toHaveLength(11);
    expect(bodies.filter(({ event }) => event === "alerts.dropped")).toMatchObject([{ count: 23 }]);
    const { body } = await testServer.ask("GET", "/v2/alerts/log");
    expect(body.dropped).toBe(23);
    expect(body.alerts).toHaveLength(11);
    await failMessage(testServer, "https://last.example", {});
    await task.run();
    expect(receiver.arrivals, "a second one about the same hour").toHaveLength(11);
    expect((await testServer.ask("GET", "/v2/alerts/log")).body.dropped).toBe(24);
    testServer.clock.now += 60 * minute;
    await failMessage(testServer, "https://host1.example", {});
    await task.run();
    expect(receiver.arrivals).toHaveLength(12);
  });
});

describe("the receiver of alerts of the server", () => {
  const bytes = Buffer.alloc(32, 7);
  const secret = `whsec_${bytes.toString("base64")}`;
  const authorization = formatBasic("operator", operatorPassword);
  const as =
    (testServer: TestServer) =>
    (method: string, path = "", body?: object) =>
      testServer.ask(method, `/v2/admin/alerts${path}`, {
        token: null,
        headers: { authorization },
        ...(body && { body: JSON.stringify(body) }),
      });
  const low = { free: 5, total: 100 };
  const readEvents = async (testServer: TestServer) =>
    (await as(testServer)("GET", "/log")).body.alerts.map(
      ({ event, subject }: { event: string; subject: string }) => `${event} ${subject}`,
    );

  test("gets those of the disk, signed by its secret, and an account gets its own nevertheless", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    const own = await startDestination();
    await set(testServer, own.url);
    await as(testServer)("PUT", "", { url: receiver.url, secret });
    const task = createTask(testServer, createTestDeliver(), { bytes: low });
    await task.run();
    await task.run();
    expect(own.arrivals).toHaveLength(1);
    expect(await readLog(testServer), "the log of the account").toMatchObject([{ event: "disk.low" }]);
    expect(receiver.arrivals).toHaveLength(1);
    const [{ headers, body } = { headers: {} as Record<string, unknown>, body: Buffer.alloc(0) }] =
      receiver.arrivals;
    expect(JSON.parse(String(body))).toMatchObject({ event: "disk.low", subject: "disk" });
    expect(String(body)).not.toContain("account");
    const signed = [headers["webhook-id"], headers["webhook-timestamp"], body].map(String).join(".");
    const expected = createHmac("sha256", bytes).update(signed).digest("base64");
    expect(headers["webhook-signature"]).toBe(`v1,${expected}`);
    expect(Object.keys(headers)).not.toContain("svc-signature");
    expect(await readEvents(testServer)).toEqual(["disk.low disk"]);
    await as(testServer)("DELETE");
    expect(await readEvents(testServer)).toEqual([]);
    testServer.clock.now += 60 * minute;
    await task.run();
    expect(receiver.arrivals, "after the removal of the URL").toHaveLength(1);
    expect(own.arrivals).toHaveLength(2);
  });

  test("gets those of accounts near their quota, once in an hour and again in the next", async () => {
    const testServer = await createTestServer();
    await as(testServer)("PUT", "", { url: "https://ops.example/", secret, events: ["storage.low"] });
    await testServer.ask("POST", "/v2/publish/https://one.example", { body: "x".repeat(2_000), headers: {} });
    await testServer.store.execute("changeAccount", {
      account: "acc_1",
      change: { limits: { storageBytes: 1_000 } },
    });
    const task = createTask(testServer, createTestDeliver({ allow: [] }), { bytes: low });
    await task.run();
    expect(await readEvents(testServer)).toEqual(["storage.low acc_1"]);
    testServer.clock.now += 6 * minute;
    await task.run();
    expect(await readEvents(testServer)).toHaveLength(1);
    testServer.clock.now += 60 * minute;
    await task.run();
    expect(await readEvents(testServer)).toEqual(["storage.low acc_1", "storage.low acc_1"]);
  });

  test("at a private address is not called", async () => {
    const testServer = await createTestServer();
    const receiver = await startDestination();
    await as(testServer)("PUT", "", { url: receiver.url, secret });
    await createTask(testServer, createTestDeliver({ allow: [] }), { bytes: low }).run();
    expect(receiver.arrivals).toEqual([]);
    expect((await as(testServer)("GET", "/log")).body.alerts).toMatchObject([
      { state: "pending", error: expect.stringContaining("WAYPOST_EGRESS_ALLOW") },
    ]);
  });
});
