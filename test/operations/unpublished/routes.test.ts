import { beforeEach, describe, expect, test, vi } from "vitest";
import { hashToken } from "../../../src/api/auth/token.ts";
import { makeToken } from "../../../src/engine/core/values/tokenText.ts";
import { SeriesCounter } from "../../../src/operations/unpublished/counter.ts";
import type { TestServer } from "../../api/testServer.ts";
import { createTestServer, operatorPassword, otherToken, testTime, token } from "../../api/testServer.ts";

const minute = 60_000;
const to = "/v2/publish/https://e.example/orders";
const operator = {
  token: null,
  headers: { authorization: `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}` },
};

let counter: SeriesCounter;
let server: TestServer;

beforeEach(async () => {
  server = await createTestServer({
    extend: (parts) => {
      counter = new SeriesCounter(parts);
      return { noteUnpublished: (one) => counter.note(one), storeUnpublished: () => counter.store() };
    },
  });
});

const list = async (by = token) => (await server.ask("GET", "/v2/unpublished", { token: by })).body.series;
const createToken = async (body: object): Promise<{ tokenId: string; token: string }> =>
  (await server.ask("POST", "/v2/tokens", { body: JSON.stringify(body) })).body;
const publish = (more: Parameters<TestServer["ask"]>[2] = {}) => server.ask("POST", to, more);
const conditions = async (by = token) =>
  (await server.ask("GET", "/v2/overview", { token: by })).body.conditions;

describe("GET /v2/unpublished", () => {
  test("is empty if every request became a message", async () => {
    await publish();
    await server.ask("GET", "/v2/messages/none");
    expect(await list()).toEqual([]);
  });

  test("counts duplicates, and names the earlier message", async () => {
    const headers = { "svc-deduplication-id": "order-1" };
    const { messageId } = (await publish({ headers })).body;
    for (let at = 0; at < 3; at++) expect((await publish({ headers })).status).toBe(202);
    const [series, ...others] = await list();
    expect(others).toEqual([]);
    expect(series).toEqual({
      ...{ kind: "token", subject: "main", name: "main token", reason: "deduplicated" },
      ...{ lastHour: 3, total: 3, firstAt: testTime, lastAt: testTime, messageId },
      address: "127.0.0.1",
      deduplicationId: "order-1",
      minutes: [{ start: testTime, count: 3 }],
      hours: [{ start: testTime, count: 3 }],
    });
    server.clock.now += 2 * 60 * minute;
    expect(await list()).toMatchObject([{ lastHour: 0, total: 3, minutes: [], hours: [{ count: 3 }] }]);
  });

  test("shows the beginning of a long deduplication id, and none if contents were compared", async () => {
    const long = { "svc-deduplication-id": "x".repeat(300) };
    for (let at = 0; at < 2; at++) await publish({ headers: long });
    expect((await list())[0].deduplicationId).toBe("x".repeat(200));
    server.clock.now += minute;
    for (let at = 0; at < 2; at++)
      await publish({ headers: { "svc-content-based-deduplication": "true" }, body: "one" });
    const [series] = await list();
    expect(series.total).toBe(2);
    expect(series).not.toHaveProperty("deduplicationId");
  });

  test("names tokens that were revoked, have expired, were replaced, or may not publish there", async () => {
    const revoked = await createToken({ name: "ci", verbs: ["publish"] });
    const expiring = await createToken({ name: "trial", verbs: ["publish"], expires: testTime + minute });
    const limited = await createToken({
      name: "shop",
      verbs: ["publish"],
      destinations: ["https://shop.example/*"],
    });
    await server.ask("DELETE", `/v2/tokens/${revoked.tokenId}`);
    server.clock.now += 2 * minute;
    const statuses = [];
    for (const one of [revoked, revoked, expiring, limited])
      statuses.push((await publish({ token: one.token })).status);
    expect(statuses).toEqual([401, 401, 401, 403]);
    expect(
      (await list()).map(({ name, reason, total }: Record<string, unknown>) => [name, reason, total]),
    ).toEqual(
      expect.arrayContaining([
        ["ci", "revoked", 2],
        ["trial", "expired", 1],
        ["shop", "forbidden", 1],
      ]),
    );
    expect(await conditions()).toMatchObject([
      {
        ...{ kind: "token.refused", level: "problem", subject: revoked.tokenId, count: 2 },
        text: "Token ci was refused: it was revoked or replaced; 2 requests within an hour, the last 0 s ago",
      },
      {
        subject: expiring.tokenId,
        text: "Token trial was refused: it has expired; 1 request within an hour, the last 0 s ago",
      },
      {
        subject: limited.tokenId,
        text: "Token shop was refused: it may not publish there; 1 request within an hour, the last 0 s ago",
      },
    ]);
    expect(await conditions(otherToken)).toEqual([]);
    expect(await list()).toMatchObject([
      { name: "ci", rights: { verbs: ["publish"], destinations: [] } },
      {},
      {},
    ]);
  });

  test("counts a replaced main token", async () => {
    await server.store.execute("rotateToken", {
      account: "acc_1",
      password: "p",
      token: "t",
      tokenHash: "h",
    });
    // The token of the tests names another account than its own, so it is not known to be a replaced one.
    expect((await publish()).status).toBe(401);
    const before = makeToken("acc_2", "first");
    await server.store.execute("rotateToken", {
      ...{ account: "acc_2", password: "p", token: before, tokenHash: hashToken(before) },
    });
    const now = makeToken("acc_2", "second");
    await server.store.execute("rotateToken", {
      ...{ account: "acc_2", password: "p", token: now, tokenHash: hashToken(now) },
    });
    expect((await publish({ token: before })).status).toBe(401);
    expect(await list(now)).toMatchObject([{ subject: "main", name: "main token", reason: "revoked" }]);
  });

  test("counts the refused messages of a list, and a refused list once", async () => {
    const body = (destinations: string[]) =>
      JSON.stringify(destinations.map((destination) => ({ destination })));
    await server.ask("POST", "/v2/batch", { body: body(["https://e.example/1", "none", "none"]) });
    expect(await list()).toMatchObject([{ subject: "main", reason: "not-found", total: 2 }]);
    await server.ask("POST", "/v2/batch", { body: body(["none", "none"]) });
    expect(await list()).toMatchObject([{ subject: "main", reason: "not-found", total: 3 }]);
  });

  test("counts calls that a source rejected", async () => {
    const { sourceId, url } = (
      await server.ask("POST", "/v2/sources", {
        body: JSON.stringify({
          ...{ name: "shop", destination: "https://e.example/" },
          verification: { scheme: "github", secret: "s" },
        }),
      })
    ).body;
    await server.ask("POST", new URL(url).pathname, { token: null, body: "{}" });
    expect(await list()).toMatchObject([
      { kind: "source", subject: sourceId, name: "shop", reason: "unauthorized", total: 1 },
    ]);
    // The source has its own condition.
    expect((await conditions()).map(({ kind }: { kind: string }) => kind)).toEqual(["source.rejecting"]);
  });

  test("shows nothing of another account, and needs a token that may read", async () => {
    await publish({ headers: { "svc-deduplication-id": "a" } });
    await publish({ headers: { "svc-deduplication-id": "a" } });
    expect(await list(otherToken)).toEqual([]);
    const { token: publisher } = await createToken({ name: "p", verbs: ["publish"] });
    expect((await server.ask("GET", "/v2/unpublished", { token: publisher })).status).toBe(403);
    const { token: reader } = await createToken({ name: "r", verbs: ["read"] });
    expect(await list(reader)).toHaveLength(1);
    expect((await server.ask("GET", "/v2/admin/unpublished", { token })).status).toBe(401);
  });
});

test("a flood of wrong tokens takes one row of an account, and is only a note", async () => {
  const execute = vi.spyOn(server.store, "execute");
  for (let at = 0; at < 300; at++) {
    await publish({ token: makeToken("acc_1", `guess ${at}`) });
    await publish({ token: makeToken(`none_${at}`, "guess") });
    await publish({ token: `not a token ${at}` });
  }
  expect(execute).not.toHaveBeenCalled();
  expect(await list()).toMatchObject([{ kind: "unknown", reason: "unauthorized", total: 300 }]);
  expect(await conditions()).toMatchObject([
    {
      ...{ kind: "token.refused", level: "note", subject: "unknown", count: 300 },
      text: "Tokens that never existed were refused: 300 requests within an hour, the last 0 s ago",
    },
  ]);
  const { accounts } = (await server.ask("GET", "/v2/admin/unpublished", operator)).body;
  expect(accounts.map(({ account }: { account: string }) => account)).toEqual(["", "acc_1"]);
  expect(server.memory.tables.series.size).toBeLessThan(5);
});

test("the operator sees all accounts, a page at a time", async () => {
  await publish({ token: makeToken("none", "guess") });
  // A request without a token names nobody.
  await publish({ token: null });
  await publish({ token: otherToken, headers: { "svc-retries": "none" } });
  const first = (await server.ask("GET", "/v2/admin/unpublished?count=2", operator)).body;
  expect(first).toMatchObject({
    accounts: [{ account: "", name: "", series: [{ kind: "unknown", reason: "unauthorized" }] }],
    cursor: "acc_1",
  });
  const next = (await server.ask("GET", "/v2/admin/unpublished?cursor=acc_1", operator)).body;
  expect(next).toEqual({
    accounts: [
      { account: "acc_2", name: "acc_2", series: [expect.objectContaining({ reason: "invalid", total: 1 })] },
    ],
  });
});

describe("conditions", () => {
  const headers = { "svc-deduplication-id": "same" };

  test("say that most publishes are dropped as duplicates", async () => {
    await publish({ headers });
    for (let at = 0; at < 9; at++) await publish({ headers });
    await list();
    expect(await conditions()).toEqual([]);
    await publish({ headers });
    await list();
    expect(await conditions()).toMatchObject([
      {
        ...{ kind: "publishes.dropped", level: "warning", subject: "deduplicated", count: 10 },
        text:
          "10 publishes were dropped within an hour, because they repeat earlier ones; " +
          "1 message was accepted",
      },
    ]);
    for (let at = 0; at < 5; at++) await publish();
    expect(await conditions()).toEqual([]);
  });

  test("say that publishes are refused, as a warning if they are many", async () => {
    await publish({ headers: { "svc-retries": "none" } });
    await list();
    expect(await conditions()).toMatchObject([
      {
        level: "note",
        subject: "invalid",
        text: "1 publish was refused within an hour: the request is malformed",
      },
    ]);
    for (let at = 0; at < 9; at++) await publish({ headers: { "svc-retries": "none" } });
    await list();
    expect(await conditions()).toMatchObject([{ kind: "publishes.dropped", level: "warning", count: 10 }]);
    server.clock.now += 61 * minute;
    expect(await conditions()).toEqual([]);
  });
});

test("counts that cannot be stored are stored later", async () => {
  await publish({ headers: { "svc-retries": "none" } });
  const execute = vi.spyOn(server.store, "execute").mockRejectedValueOnce(new Error("no database"));
  await expect(counter.store()).rejects.toThrow("no database");
  execute.mockRestore();
  await publish({ headers: { "svc-retries": "none" } });
  expect(await list()).toMatchObject([{ total: 2 }]);
});
