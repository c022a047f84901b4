import { describe, expect, test } from "vitest";
import { createTestServer, operatorPassword, otherToken, testTime, token } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";

const timing = { startedAt: testTime, connect: 1, firstByte: 2, duration: 40 };
const minute = 60_000;
const operator = { authorization: `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}` };

async function deliver(server: TestServer, status: number): Promise<void> {
  const headers = { "svc-retries": "0" };
  await server.ask("POST", "/v2/publish/https://e.example/x", { headers, body: "hello" });
  await server.settle(server.delivery(), { status, timing });
}

describe("GET /v2/activity", () => {
  test("shows outcomes over time, with marks for pauses, of the own account", async () => {
    const server = await createTestServer();
    await deliver(server, 200);
    await server.ask("POST", "/v2/queues/mail/pause");
    server.clock.now += 5 * minute;
    await deliver(server, 500);
    const { status, body } = await server.ask("GET", "/v2/activity");
    expect(status).toBe(200);
    expect(body).toMatchObject({ step: minute });
    expect(body.points).toHaveLength(60);
    expect(body.points.at(-1)).toMatchObject({ messages: 1, delivered: 0, failed: 1, cancelled: 0 });
    expect(body.points.at(-6)).toMatchObject({ start: testTime, messages: 1, delivered: 1, failed: 0 });
    const start = { time: testTime, kind: "start", text: "a server started" };
    expect(body.marks).toEqual([{ time: testTime, kind: "pause", text: "queue mail paused" }, start]);
    const other = await server.ask("GET", "/v2/activity", { token: otherToken });
    expect(other.body.marks).toEqual([start]);
    expect(other.body.points.every(({ messages }: { messages: number }) => messages === 0)).toBe(true);
  });

  test("counts retries and shows how long attempts took, as far as the log goes back", async () => {
    const server = await createTestServer();
    const send = async (by: string, duration: number): Promise<void> => {
      const headers = { "svc-retry-delay": "3600000" };
      await server.ask("POST", "/v2/publish/https://e.example/x", { token: by, headers, body: "hello" });
      await server.settle(server.delivery(), { status: 500, timing: { ...timing, duration } });
    };
    for (const duration of [10, 400, 30]) await send(token, duration);
    await send(otherToken, 9_000);
    server.clock.now += 5 * minute;
    await deliver(server, 200);
    const read = async (period: string) =>
      (await server.ask("GET", `/v2/activity?period=${period}`)).body.points;
    const points = await read("1h");
    expect(points.at(-6)).toMatchObject({ start: testTime, retried: 3, p95: 400 });
    expect(points.at(-1)).toMatchObject({ retried: 0, p95: 40 });
    expect(points.at(-2)).toMatchObject({ retried: 0 });
    expect(points.at(-2)).not.toHaveProperty("p95");
    const month = await read("30d");
    expect(month.at(-1)).toMatchObject({ retried: 3, p95: 400 });
    // The log is kept for a shorter time.
    expect(month[0]).not.toHaveProperty("retried");
  });

  test("has longer periods, and refuses unknown ones", async () => {
    const server = await createTestServer();
    await deliver(server, 200);
    const month = await server.ask("GET", "/v2/activity?period=30d");
    expect(month.body.points).toHaveLength(240);
    expect(month.body.points.at(-1)).toMatchObject({ delivered: 1 });
    expect((await server.ask("GET", "/v2/activity?period=1y")).status).toBe(400);
  });
});

describe("GET /v2/queues/{name}/forecast", () => {
  test("says at which pace a queue is emptied", async () => {
    const server = await createTestServer();
    for (let times = 0; times < 6; times++)
      await server.ask("POST", "/v2/enqueue/mail/https://e.example/x", { body: "hello" });
    server.clock.now += 4 * minute;
    await server.settle(server.delivery(), { status: 200, timing });
    server.clock.now += 1_000;
    const { status, body } = await server.ask("GET", "/v2/queues/mail/forecast");
    expect(status).toBe(200);
    expect(body).toMatchObject({ waiting: 4, publishedPerMinute: 0, sentPerMinute: 0.3 });
    expect(body.emptyIn).toBe(12 * minute);
    expect(body.faster).toEqual({ parallelism: 5, emptyIn: 2.4 * minute });
    expect((await server.ask("GET", "/v2/queues/none/forecast")).status).toBe(404);
    expect((await server.ask("GET", "/v2/queues/mail/forecast", { token: otherToken })).status).toBe(404);
  });
});

describe("GET /v2/admin/activity", () => {
  test("lists the busiest accounts first, for the operator alone", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/queues/mail/pause");
    for (const by of [token, token, otherToken])
      await server.ask("POST", "/v2/enqueue/mail/https://e.example/x", { token: by, body: "hello" });
    const { status, body } = await server.ask("GET", "/v2/admin/activity", {
      headers: operator,
      token: null,
    });
    expect(status).toBe(200);
    expect(body.accounts).toMatchObject([
      { messages: 2, delivered: 0, failed: 0, held: 2 },
      { messages: 1, held: 0 },
    ]);
    expect((await server.ask("GET", "/v2/admin/activity")).status).toBe(401);
  });

  test("compares with the minutes before", async () => {
    const server = await createTestServer();
    const read = async () => {
      const { body } = await server.ask("GET", "/v2/admin/activity", { headers: operator, token: null });
      return body.accounts;
    };
    await server.ask("POST", "/v2/publish/https://e.example/x", { body: "hello" });
    expect(await read()).toMatchObject([{ messages: 1, messagesBefore: 0 }]);
    server.clock.now += 15 * 60_000;
    expect(await read()).toEqual([]);
    for (let at = 0; at < 2; at++)
      await server.ask("POST", "/v2/publish/https://e.example/x", { body: "hello" });
    expect(await read()).toMatchObject([{ messages: 2, messagesBefore: 1 }]);
    server.clock.now += 15 * 60_000;
    await server.ask("POST", "/v2/publish/https://e.example/x", { body: "hello" });
    expect(await read()).toMatchObject([{ messages: 1, messagesBefore: 2 }]);
  });
});
