import { expect, test } from "vitest";
import { sumHostPoints } from "../../../src/engine/core/accounts/hostStatistics.ts";
import { createTestServer, otherToken, testTime } from "../../api/testServer.ts";

const minute = 60_000;
const timing = { startedAt: testTime, connect: 1, firstByte: 2, duration: 40 };

test("a host shows its last hour, and its attempts in flight with their timeouts", async () => {
  const server = await createTestServer();
  const publish = (path: string, headers: Record<string, string> = {}) =>
    server.ask("POST", `/v2/enqueue/q/https://e.example/${path}`, {
      headers: { "svc-retries": "0", ...headers },
    });
  await publish("a");
  await server.settle(server.delivery(), { status: 500, timing });
  server.clock.now += minute;
  const { body: sent } = await publish("b", { "svc-timeout": "10m" });
  server.clock.now += 5_000;
  const { status, body } = await server.ask("GET", "/v2/hosts/e.example");
  expect(status).toBe(200);
  expect(body).toMatchObject({
    ...{ host: "e.example", state: "failing", inFlight: 1, waiting: 0, attempts: 1, failures: 1 },
    ...{ at: testTime + minute + 5_000, oldestStart: testTime + minute },
  });
  expect(body.running).toEqual([
    {
      messageId: sent.messageId,
      ...{ attempt: 0, url: "https://e.example/b", queueName: "q", node: "nod_1" },
      ...{ since: testTime + minute, timeoutAt: testTime + 11 * minute },
    },
  ]);
  expect(body.minutes).toHaveLength(60);
  expect(body.minutes.slice(-2)).toEqual([
    { start: testTime, attempts: 1, failures: 1, p50: 40, p95: 40, inFlight: 0 },
    { start: testTime + minute, attempts: 0, failures: 0, inFlight: 1 },
  ]);
  const other = await server.ask("GET", "/v2/hosts/e.example", { token: otherToken });
  expect(other.body).toMatchObject({ state: "unknown", inFlight: 0, running: [] });
});

test("hosts that hang come first and are not healthy, and a host without data is unknown", async () => {
  const server = await createTestServer();
  const publish = (host: string) => server.ask("POST", `/v2/publish/https://${host}/x`);
  await publish("good.example");
  await server.settle(server.delivery(), { status: 200, timing });
  await publish("new.example");
  for (let at = 0; at < 3; at++) await publish("silent.example");
  server.clock.now += 25_000;
  const { body } = await server.ask("GET", "/v2/hosts");
  expect(body.hosts).toMatchObject([
    { host: "silent.example", state: "hanging", inFlight: 3, oldestStart: testTime },
    { host: "good.example", state: "healthy" },
    { host: "new.example", state: "unknown", inFlight: 1 },
  ]);
  expect((await server.ask("GET", "/v2/overview")).body.conditions).toMatchObject([
    { kind: "host.hanging", subject: "silent.example", count: 3, since: testTime },
  ]);
});

test("what is in flight is counted at the end of each span", () => {
  const row = (time: number, startedAt: number) => ({
    ...{ time, status: 200, error: null },
    attempt: { startedAt, connect: 1, firstByte: 1, duration: time - startedAt, node: "nod_1", host: "e" },
  });
  const spans = { from: 0, step: 10, points: 3 };
  const points = sumHostPoints([row(25, 5), row(12, 11)], [18], spans);
  expect(points.map(({ attempts, inFlight }) => [attempts, inFlight])).toEqual([
    [0, 1],
    [1, 2],
    [1, 1],
  ]);
});
