import { beforeEach, describe, expect, test } from "vitest";
import { Bursts } from "../../../src/api/auth/bursts.ts";
import { createAccessCounters } from "../../../src/api/auth/accessCounters.ts";
import { routes } from "../../../src/operations/routes.ts";
import type { Terms } from "../../../src/engine/core/model/accountTerms.ts";
import { testTime, createTestServer, otherToken } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";

let server: TestServer;
const limit = (requestsPerSecond: number): Promise<unknown> =>
  server.store.execute("changeAccount", {
    account: "acc_1",
    change: { plan: "free", limits: { requestsPerSecond } },
  });
beforeEach(async () => {
  server = await createTestServer();
  await limit(2);
});

const list = (token?: string) => server.ask("GET", "/v2/queues", token === undefined ? {} : { token });

describe("requests in a second", () => {
  test("are refused beyond the limit, with their own headers and the limit in the error", async () => {
    const burst = (remaining: number) => ({
      "burst-ratelimit-limit": "2",
      "burst-ratelimit-remaining": String(remaining),
      "burst-ratelimit-reset": String(testTime / 1000 + 1),
    });
    expect(await list()).toMatchObject({ status: 200, headers: burst(1) });
    expect(await list()).toMatchObject({ status: 200, headers: burst(0) });
    const refused = await list();
    expect(refused).toMatchObject({ status: 429, headers: { ...burst(0), "retry-after": "1" } });
    expect(refused.body.error).toMatch(
      /^requests: limit of 2 .*plan free.*waypost account limits acc_1 --requests-per-second /,
    );
    // Clients would take it for the daily limit.
    expect(Object.keys(refused.headers)).not.toContain("ratelimit-limit");
  });

  test("are counted from 0 in each second, and do not affect other accounts", async () => {
    for (let count = 0; count < 5; count++) await list();
    expect((await list()).status).toBe(429);
    const other = await list(otherToken);
    expect(other.status).toBe(200);
    expect(Object.keys(other.headers).filter((name) => name.includes("ratelimit"))).toEqual([]);
    server.clock.now += 999;
    expect((await list()).status).toBe(429);
    server.clock.now += 1;
    expect((await list()).status).toBe(200);
  });

  test("include those to the account endpoints, which refuse in their own form", async () => {
    const authorization = `Basic ${Buffer.from("acc_1:pass").toString("base64")}`;
    const read = () => server.ask("GET", "/v2/svc/user/acc_1", { token: null, headers: { authorization } });
    await read();
    await read();
    expect(await read()).toMatchObject({
      status: 429,
      body: { code: "too-many-requests", message: expect.stringMatching(/^requests: /) },
    });
  });

  test("are counted together at both ports of a server", async () => {
    const counted = createAccessCounters(() => testTime);
    const main = await createTestServer({ counted });
    const accounts = await createTestServer({ counted, servesAccountsOnly: true, wrap: () => main.store });
    await main.store.execute("changeAccount", {
      account: "acc_1",
      change: { limits: { requestsPerSecond: 2 } },
    });
    const authorization = `Basic ${Buffer.from("acc_1:pass").toString("base64")}`;
    const read = () => accounts.ask("GET", "/v2/svc/user/acc_1", { token: null, headers: { authorization } });
    expect([
      (await main.ask("GET", "/v2/queues")).status,
      (await read()).status,
      (await read()).status,
    ]).toEqual([200, 200, 429]);
    expect((await main.ask("GET", "/v2/queues")).status).toBe(429);
  });

  test("are counted by account, with any token, whether they succeed or fail", async () => {
    await server.ask("GET", "/v2/messages/none");
    await server.ask("GET", "/v2/messages/none");
    expect((await list()).status).toBe(429);
  });
});

test("publishes and steps are neither counted nor refused", async () => {
  await limit(1);
  await list();
  expect((await list()).status).toBe(429);
  const free = routes.filter(({ operation }) => operation !== undefined);
  expect(free.map(({ method, path }) => `${method} ${path}`).toSorted()).toEqual([
    ...[
      "DELETE /v2/workflows/runs/{workflowRunId}",
      "GET /v2/workflows/runs/{workflowRunId}",
      "POST /v2/batch",
    ],
    ...["POST /v2/batch/trigger", "POST /v2/enqueue/{queue}/{destination}", "POST /v2/notify/{eventId}"],
    ...[
      "POST /v2/notify/{workflowRunId}/{eventId}",
      "POST /v2/publish/{destination}",
      "POST /v2/trigger/{destination}",
    ],
    "POST /v2/wait/{eventId}",
    "POST /v2/workflows/runs/{workflowRunId}/run-on/{call}",
  ]);
  for (const { method, path } of free) {
    const url = path.replace("{destination}", "https://e.example/").replace(/\{\w+\}/g, "x");
    for (let count = 0; count < 3; count++) expect((await server.ask(method, url)).status, url).not.toBe(429);
  }
});

test("no count is kept of past seconds or of accounts without a limit", () => {
  const bursts = new Bursts();
  const account = (id: string, terms: Terms = {}) => ({
    id,
    name: id,
    password: "",
    token: "",
    tokenHash: "",
    signingKeys: { current: "", next: "" },
    createdAt: 0,
    ...terms,
  });
  expect(bursts.count(account("a"), testTime)).toBeNull();
  expect(bursts.count(account("b", { limits: { requestsPerSecond: 1 } }), testTime)).toMatchObject({
    taken: true,
  });
  expect(bursts.count(account("b", { limits: { requestsPerSecond: 1 } }), testTime)).toMatchObject({
    taken: false,
  });
  // The count also starts again if the clock is set back.
  expect(bursts.count(account("b", { limits: { requestsPerSecond: 1 } }), testTime - 1000)).toMatchObject({
    taken: true,
  });
});
