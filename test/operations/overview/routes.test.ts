import { describe, expect, test } from "vitest";
import { createTestServer, otherToken, testTime, token } from "../../api/testServer.ts";
import type { TestServer } from "../../api/testServer.ts";
import { makeReadOnlyToken } from "../../../src/api/auth/token.ts";

const publish = (server: TestServer, headers: Record<string, string> = {}, url = "https://e.example/x") =>
  server.ask("POST", `/v2/publish/${url}`, { headers, body: "hello" });
const timing = { startedAt: testTime, connect: 1, firstByte: 2, duration: 40 };
const basic = { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` };

async function makeToken(server: TestServer, rights: object): Promise<{ id: string; token: string }> {
  const { status, body } = await server.ask("POST", "/v2/tokens", { body: JSON.stringify(rights) });
  expect(status).toBe(201);
  return { id: body.tokenId, token: body.token };
}

describe("GET /v2/overview", () => {
  test("shows outcomes, what waits, what is paused, and the hosts that fail", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/queues/q/pause");
    await server.ask("POST", "/v2/enqueue/q/https://e.example/x");
    await publish(server, { "svc-delay": "1m" });
    await publish(server, { "svc-retries": "0" }, "https://bad.example/x");
    await server.settle(server.delivery(), { status: 503, timing });
    await publish(server);
    await server.settle(server.delivery(), { status: 200, timing });
    await publish(server);
    await server.store.execute("claim", { limit: 10 });
    const { status, body } = await server.ask("GET", "/v2/overview");
    expect(status).toBe(200);
    expect(body).toMatchObject({
      unfinished: { count: 3 },
      states: {
        ...{ pending: { count: 1 }, retrying: { count: 0 }, delivering: { count: 1 } },
        ...{ held: { count: 0 }, paused: { count: 1 } },
      },
      inFlight: 1,
      held: {
        queue: { count: 1, oldestAt: testTime, largest: [{ name: "q", count: 1, paused: true }] },
        ...{ key: { count: 0 }, capacity: { count: 0 } },
      },
      ended: { delivered: { count: 1 }, failed: { count: 1 }, cancelled: { count: 0 } },
      nextDueAt: testTime + 60_000,
      deadLetters: 1,
      paused: {
        queues: { count: 1, names: ["q"] },
        keys: { count: 0, names: [] },
        schedules: { count: 0, names: [] },
        sources: { count: 0, names: [] },
      },
      runs: {
        ...{ active: { count: 0 }, failed: { count: 0 }, succeeded: { count: 0 } },
        cancelled: { count: 0 },
      },
      worstHosts: [{ host: "bad.example", attempts: 1, failures: 1, failureShare: 1, p50: 40 }],
      storage: { max: expect.any(Number) },
    });
    expect(body.minutes.at(-1)).toMatchObject({ start: testTime, messages: 5, delivered: 1, failed: 1 });
    expect(body).not.toHaveProperty("disk");
    expect((await server.ask("GET", "/v2/overview", { token: otherToken })).body).toMatchObject({
      unfinished: { count: 0 },
      worstHosts: [],
    });
  });

  describe("shows what is wrong", () => {
    const read = async (server: TestServer, by = token) =>
      (await server.ask("GET", "/v2/overview", { token: by })).body.conditions;

    test("a paused queue with who paused it, of the own account alone", async () => {
      const server = await createTestServer();
      expect(await read(server)).toEqual([]);
      await server.ask("POST", "/v2/queues/q/pause");
      const note = { kind: "queue.paused", level: "note", subject: "q", text: "Queue q is paused" };
      expect(await read(server)).toMatchObject([note]);
      await server.ask("POST", "/v2/enqueue/q/https://e.example/x");
      expect(await read(server)).toEqual([
        {
          ...note,
          level: "warning",
          text: "Queue q is paused: 1 message waits",
          since: testTime,
          oldestDueAt: testTime,
          count: 1,
          by: { kind: "token", token: "main", address: "127.0.0.1" },
        },
      ]);
      expect(await read(server, otherToken)).toEqual([]);
    });

    test("a server that is not ready, to every account", async () => {
      const server = await createTestServer();
      server.stop();
      server.seen.isHeld = true;
      for (const by of [token, otherToken])
        expect(await read(server, by)).toMatchObject([
          { kind: "server.notReady", level: "problem", subject: "server" },
          { kind: "deliveries.held", level: "problem" },
        ]);
    });

    test("hosts that fail, hosts that hang, and sources that reject", async () => {
      const server = await createTestServer();
      const since = testTime - 60_000;
      server.seen.failing = [{ host: "bad.example", failures: 5, since, last: testTime }];
      for (let at = 0; at < 3; at++) await publish(server, {}, "https://slow.example/x");
      server.clock.now += 60_000;
      const { body: source } = await server.ask("POST", "/v2/sources", {
        body: JSON.stringify({
          destination: "https://e.example/x",
          name: "shop",
          verification: { scheme: "github", secret: "s3cret-s3cret" },
        }),
      });
      const { pathname } = new URL(source.url);
      expect((await server.ask("POST", pathname, { body: "{}" })).status).toBe(401);
      expect(await read(server)).toMatchObject([
        { kind: "host.failing", subject: "bad.example", since },
        { kind: "source.rejecting", subject: source.sourceId, count: 1 },
        { kind: "host.hanging", level: "warning", subject: "slow.example", since: testTime, count: 3 },
      ]);
    });
  });

  test("names paused schedules and sources", async () => {
    const server = await createTestServer();
    const headers = { "svc-cron": "0 0 1 1 *", "svc-schedule-id": "daily" };
    await server.ask("POST", "/v2/schedules/https://e.example/x", { headers });
    await server.ask("POST", "/v2/schedules/daily/pause");
    const source = {
      destination: "https://e.example/x",
      verification: { scheme: "github", secret: "s3cret-s3cret" },
      paused: true,
    };
    const created = await server.ask("POST", "/v2/sources", { body: JSON.stringify(source) });
    expect(created.status, JSON.stringify(created.body)).toBeLessThan(300);
    expect((await server.ask("GET", "/v2/overview")).body.paused).toMatchObject({
      schedules: { count: 1, names: ["daily"] },
      sources: { count: 1 },
    });
  });
});

describe("GET /v2/hosts", () => {
  test("shows deliveries, failures and durations by host, of the own account", async () => {
    const server = await createTestServer();
    await publish(server, { "svc-retry-delay": "60000" }, "https://bad.example/x");
    await server.settle(server.delivery(), { error: "connection refused", timing });
    await publish(server);
    await server.store.execute("claim", { limit: 10 });
    expect((await server.ask("GET", "/v2/hosts")).body).toEqual({
      hosts: [
        {
          host: "bad.example",
          state: "failing",
          inFlight: 0,
          waiting: 0,
          attempts: 1,
          failures: 1,
          failureShare: 1,
          p50: 40,
          p95: 40,
          lastFailure: { time: testTime, error: "connection refused" },
        },
        { host: "e.example", state: "unknown", inFlight: 1, oldestStart: testTime, waiting: 0 },
      ],
    });
    expect((await server.ask("GET", "/v2/hosts", { token: otherToken })).body).toEqual({ hosts: [] });
  });
});

describe("GET /v2/me", () => {
  test("shows the account and the rights of each kind of token", async () => {
    const server = await createTestServer({ region: "EU-CENTRAL-1" });
    const account = { id: "acc_1", name: "acc_1", state: "active" };
    const me = async (by: string) => (await server.ask("GET", "/v2/me", { token: by })).body;
    expect(await me(token)).toEqual({
      account: { ...account, name: expect.any(String) },
      credential: { kind: "main", verbs: ["publish", "read", "manage", "receive"] },
      brand: "svc",
      headerPrefix: "Svc",
      region: "EU-CENTRAL-1",
      version: "1.2.3",
    });
    expect(await me(makeReadOnlyToken({ id: "acc_1", token }))).toMatchObject({
      credential: { kind: "readOnly", verbs: ["read"] },
    });
    const rights = { verbs: ["publish", "read"], destinations: ["https://e.example/*"] };
    const scoped = await makeToken(server, rights);
    expect(await me(scoped.token)).toMatchObject({
      credential: { kind: "token", tokenId: scoped.id, ...rights },
    });
    expect(await me(otherToken)).toMatchObject({ account: { id: "acc_2" } });
    expect(JSON.stringify(await me(token))).not.toContain(token);
  });

  test("shows the brand of the server", async () => {
    const server = await createTestServer({ brand: "upstash" });
    expect((await server.ask("GET", "/v2/me")).body).toMatchObject({
      brand: "upstash",
      headerPrefix: "Upstash",
    });
  });
});

describe.each(["svc", "qstash"])("the account record and the statistics of /v2/%s", (brand) => {
  test("are readable with a token that may read, without secrets", async () => {
    const server = await createTestServer();
    const { token: reading } = await makeToken(server, { verbs: ["read"] });
    const { token: publishing } = await makeToken(server, { verbs: ["publish"] });
    for (const path of [`/v2/${brand}/user/acc_1`, `/v2/${brand}/users`]) {
      const shown = await server.ask("GET", path, { token: reading });
      expect(shown.status).toBe(200);
      expect([shown.body].flat()[0]).toMatchObject({ id: "acc_1", state: "active" });
      for (const name of ["password", "token", "read_only_token"])
        expect([shown.body].flat()[0]).not.toHaveProperty(name);
      const owner = await server.ask("GET", path, { token: null, headers: basic });
      expect([owner.body].flat()[0]).toMatchObject({ id: "acc_1", password: "pass", token });
      expect((await server.ask("GET", path, { token: publishing })).status).toBe(403);
      expect((await server.ask("GET", path, { token: "wrong" })).status).toBe(401);
    }
    expect((await server.ask("GET", `/v2/${brand}/stats/acc_1`, { token: reading })).status).toBe(200);
    expect((await server.ask("GET", `/v2/${brand}/stats/acc_1`, { token: publishing })).status).toBe(403);
    expect((await server.ask("GET", `/v2/${brand}/stats/acc_1`, { token: otherToken })).status).toBe(404);
    expect((await server.ask("GET", `/v2/${brand}/user/acc_1`, { token: otherToken })).status).toBe(404);
    // Everything else of the account API still needs the password.
    const change = await server.ask("POST", `/v2/${brand}/rotate-token/acc_1`, { token });
    expect(change.status).toBe(401);
  });
});
