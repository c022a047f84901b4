import { beforeEach, describe, expect, test } from "vitest";
import type { Route } from "../../../src/api/route/route.ts";
import { takesFieldsInBody } from "../../../src/api/route/route.ts";
import { routes } from "../../../src/operations/routes.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { createTestServer, operatorPassword, otherToken, shareTestServer, token } from "../testServer.ts";
import { listen, request, send } from "../wire.ts";
import { findNeededQuery } from "../routes/accounts/possessions.ts";
import { codeFields } from "../errorFields.ts";

const urlOf = (path: string): string =>
  path
    .replace("{destination}", "https://e.example/x")
    .replace("{call}", "msg_1.0.c1")
    .replace(/\{\w+\}/g, "1800000000000-0");
const rows = routes.map((row) => ({ row, name: `${row.method} ${row.path}`, url: urlOf(row.path) }));
/** The bodies and headers that requests require to be accepted. */
const needed: Readonly<Record<string, { body?: string; headers?: Record<string, string> }>> = {
  "PUT /v2/admin/alerts": {
    body: `{"url":"https://e.example","secret":"whsec_${"A".repeat(32)}"}`,
  },
  "PUT /v2/alerts": { body: '{"url":"https://e.example"}' },
  "POST /v2/jobs": { body: '{"action":"dlq.delete","filter":{}}' },
  "POST /v2/batch": { body: '[{"destination":"https://e.example"}]' },
  "POST /v2/batch/trigger": { body: '[{"destination":"https://e.example"}]' },
  "POST /v2/topics/{name}/endpoints": { body: '{"endpoints":[{"url":"https://e.example"}]}' },
  "DELETE /v2/topics/{name}/endpoints": { body: '{"endpoints":[{"url":"https://e.example"}]}' },
  "PATCH /v2/topics/{name}": { body: '{"headers":{"Svc-Retries":"1"}}' },
  "PATCH /v2/schedules/{scheduleId}": { body: '{"settings":{"Svc-Retries":"1"}}' },
  "POST /v2/schedules/{destination}": { headers: { "svc-cron": "0 0 1 1 *" } },
  "POST /v2/queues": { body: '{"queueName":"q"}' },
  "POST /v2/attempts": {
    ...{ body: '{"outcome":"ok"}', headers: { "svc-attempt": `${"A".repeat(43)}.0.msg_1.YWNjXzE` } },
  },
  "POST /v2/attempts/batch": { body: '{"reports":[{"attempt":"a","outcome":"ok"}]}' },
  "PUT /v2/pulled": { body: '{"origin":"https://e.example"}' },
  "POST /v2/pull": { body: '{"origin":"https://e.example","wait":"0s"}' },
  "POST /v2/wait/{eventId}": {
    headers: { "svc-workflow-runid": "r" },
    body: '{"url":"https://e.example","step":{"stepId":1,"stepName":"s","stepType":"Wait"}}',
  },
  "POST /v2/workflows/runs/{workflowRunId}/run-on/{call}": {
    body: '{"stepId":1,"stepName":"s","stepType":"Run"}',
  },
  "POST /v2/tokens": { body: '{"verbs":["read"]}' },
  "POST /v2/admin/accounts": { body: '{"name":"n"}' },
  "PATCH /v2/admin/accounts/{account}": { body: '{"plan":"paid"}' },
  "POST /v2/sources": { body: '{"name":"s","destination":"https://e.example"}' },
  "PUT /v2/outboxes/{name}": { body: '{"databaseUrl":"postgres://u:p@e.example/d","token":"t"}' },
};
const neededBy = ({ method, path }: Route) => needed[`${method} ${path}`] ?? {};
const authorization = `Authorization: Bearer ${token}`;
/** Returns the body of an error. The account endpoints have other fields. */
const makeBody = (path: string, { status, error, code }: { status: string; error: unknown; code: string }) =>
  /^\/v2\/(svc|qstash|admin)\//.test(path)
    ? {
        code: status,
        message: error,
        errorCode: code,
        ...(!path.startsWith("/v2/qstash/") && { docs: codeFields(code).docs }),
      }
    : { error, ...codeFields(code) };
const asHolder = {
  token: null,
  headers: { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` },
};
const asOperator = {
  token: null,
  headers: { authorization: `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}` },
};
const guarded = rows.filter(({ row }) => row.access === "token");
const shared = shareTestServer();
// So that no test is locked out for the wrong tokens of another.
beforeEach(() => void (shared().clock.now += 3_600_000));

describe.each(guarded)("$name", ({ row, url }) => {
  test.each([
    ["without a token", {}, /^token: missing; send/],
    ["with an unknown token", { authorization: "Bearer unknown" }, /^token: not valid/],
    ["with an empty token", { authorization: "Bearer " }, /^token: missing; send/],
    [
      "with the hash of a token",
      { authorization: "Bearer 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683" },
      /^token: not valid/,
    ],
    ["with another scheme", { authorization: `Basic ${token}` }, /^token: missing; send/],
    ["with two tokens in one", { authorization: `Bearer ${token} ${otherToken}` }, /^token: missing; send/],
  ])("%s is answered with 401", async (_, headers: Record<string, string>, error) => {
    const { ask, lines } = shared();
    const reply = await ask(row.method, url, { ...neededBy(row), headers, token: null });
    expect(reply).toMatchObject({
      status: 401,
      headers: { "www-authenticate": "Bearer" },
    });
    expect(reply.body).toEqual({ error: expect.stringMatching(error), ...codeFields("unauthorized") });
    expect(lines).toMatchObject([{ status: 401, account: null }]);
  });

  test.each(["svc_token", "qstash_token"])("accepts the token as %s", async (name) => {
    const { ask } = shared();
    const { status } = await ask(row.method, `${url}?${name}=${encodeURIComponent(token)}`, {
      token: null,
      ...neededBy(row),
    });
    // A link must not rotate the keys, so this route reads only the header.
    if (row.method === "GET" && url === "/v2/keys/rotate") expect(status).toBe(401);
    else expect(status).not.toBe(401);
    expect((await ask(row.method, `${url}?${name}=wrong`, { token: null })).status).toBe(401);
    expect((await ask(row.method, `${url}?${name}=%zz`, { token: null })).status).toBe(401);
  });

  test("exists with a slash at its end", async () => {
    const { ask } = shared();
    const { status, body } = await ask(row.method, `${url}/`, neededBy(row));
    expect(body?.error ?? "").not.toMatch(/^path:/);
    expect(status).not.toBe(405);
  });

  test("refuses an unknown parameter", async () => {
    const { ask } = shared();
    // An unknown parameter of a publish belongs to the destination.
    const names = row.path.endsWith("{destination}")
      ? ["svc-retrys", "svc-__proto__"]
      : ["surprise", "svc-retrys", "__proto__", "a%00"];
    for (const name of names) {
      const reply = await ask(row.method, `${url}?${name}=1`, neededBy(row));
      const expected = decodeURIComponent(name);
      expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(`${expected}: `) } });
    }
  });

  test("refuses an unknown field in a body, if it has no other body", async () => {
    if (!takesFieldsInBody(row)) return;
    const { ask } = await createTestServer();
    const names = [
      "surprise",
      "Svc-Retries",
      "__proto__",
      ...("dryRun" in row.query.shape ? [] : ["dryRun"]),
    ];
    for (const name of names) {
      const reply = await ask(row.method, url, { body: `{${JSON.stringify(name)}:true}` });
      expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(`${name}: `) } });
    }
    for (const body of ["true", "[]", "{", "null"])
      expect(await ask(row.method, url, { body })).toMatchObject({
        status: 400,
        body: { error: expect.stringContaining("body: not ") },
      });
    expect((await ask(row.method, url, { body: "{}" })).status).toBe(
      (await (await createTestServer()).ask(row.method, url)).status,
    );
  });

  test("is refused in the ways that its row names", async () => {
    if (row.refusals.includes("not-found")) {
      const { ask } = await createTestServer();
      const missing = row.path === "/v2/batch" ? { body: '[{"destination":"group"}]' } : neededBy(row);
      const gone = await ask(
        row.method,
        `${url.replace("https://e.example/x", "group")}${findNeededQuery(row)}`,
        missing,
      );
      expect(gone).toMatchObject({ status: 404, body: { error: expect.any(String) } });
    }
  });
});

/** A store whose reads and changes all fail. The token is still found, so that the request gets so far. */
const broken = (store: Store): Store => {
  const fail = async (): Promise<never> => {
    throw new Error("the disk said: secret");
  };
  const read = new Proxy(store.read, {
    get: (target, name) => (name === "accountByToken" ? target.accountByToken : fail),
  });
  return { ...store, execute: fail, read, nextDueAt: fail, hold: { isOnHold: fail, set: fail } };
};
const failing = shareTestServer({ wrap: broken });

describe.each(rows)("$name", ({ row, url }) => {
  test("returns 405 for methods that the path does not have, and names those that it has", async () => {
    const { ask } = shared();
    const allowed: ReadonlySet<string> = new Set(
      routes.filter(({ path }) => path === row.path).map(({ method }) => method),
    );
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].filter(
      (other) => !allowed.has(other),
    )) {
      const reply = await ask(method, url);
      // A path with a parameter can be another route's as well.
      if (reply.status === 405) {
        expect(reply.headers["allow"]).toContain(row.method);
        // The hint does not name the request that cancels all messages.
        const error = expect.stringContaining(url === "/v2/messages" ? "GET" : row.method);
        const status = "method-not-allowed";
        expect(reply.body).toEqual(makeBody(row.path, { status, error, code: status }));
      } else
        expect(routes.some(({ path, method: known }) => known === method && path !== row.path)).toBe(true);
    }
  });

  test("returns 500 for an internal error, hides the reason and logs it", async () => {
    const { ask, lines } = failing();
    const reply = await ask(
      row.method,
      `${url}${findNeededQuery(row)}`,
      row.access === "account"
        ? asHolder
        : row.access === "operator"
          ? { ...asOperator, ...neededBy(row) }
          : neededBy(row),
    );
    if (row.access === "open" && row.path.endsWith("/ipv4")) return expect(reply.status).toBe(200);
    if (row.access === "open") return expect([200, 503]).toContain(reply.status);
    // It describes the caller, whose account is already loaded.
    // Its figures are in memory, so that a scrape never waits for the store.
    if (row.path === "/metrics") return expect(reply.status).toBe(200);
    // The store of a test belongs to one node, which lists itself without a read.
    if (row.path === "/v2/admin/nodes") return expect(reply.status).toBe(200);
    // It shows settings of the process.
    if (row.path === "/v2/admin/egress") return expect(reply.status).toBe(200);
    if (row.path === "/v2/me") return expect(reply.status).toBe(200);
    expect(reply.status).toBe(500);
    const error = expect.stringMatching(/^internal error/);
    expect(reply.body).toEqual(
      makeBody(row.path, { status: "internal-server-error", error, code: "internal" }),
    );
    expect(JSON.stringify(reply.body)).not.toContain("secret");
    expect(lines).toMatchObject([{ status: 500, fault: expect.stringContaining("the disk said: secret") }]);
  });
});

test.each([
  "/",
  "/v2",
  "/v1/publish/https://e.example",
  "/v2/publisher",
  "/v2/messages/a/b",
  "//v2/keys",
  "/v2/keyss",
])("%s is 404", async (url) => {
  const { ask } = shared();
  expect(await ask("GET", url, { token: null })).toMatchObject({
    status: 404,
    body: { error: expect.stringMatching(/^path: does not exist/), ...codeFields("not-found") },
  });
});

test("each request has one line in the log, regardless of its result", async () => {
  const server = await createTestServer();
  const port = await listen(server);
  const questions: [line: string, status: number][] = [
    ["GET /v2/keys HTTP/1.1", 200],
    ["GET /v2/messages/%zz HTTP/1.1", 400],
    ["GET /nowhere HTTP/1.1", 404],
    [`GET /v2/messages/${"x".repeat(1_000)} HTTP/1.1`, 404],
    ["PUT /v2/keys HTTP/1.1", 405],
    ["POST /v2/publish/https://e.example/%zz?x HTTP/1.1", 200],
  ];
  for (const [line] of questions) await send(port, request(line, [authorization]));
  expect(server.lines.map(({ status }) => status)).toEqual(questions.map(([, status]) => status));
  expect(server.lines.every(({ ms }) => ms >= 0)).toBe(true);
});

describe("tokens", () => {
  test("the header wins over the parameter", async () => {
    const { ask } = await createTestServer();
    await ask("POST", `/v2/keys/rotate?svc_token=${otherToken}`);
    expect((await ask("GET", "/v2/keys")).body.current).toBe("sig_2");
    expect((await ask("GET", "/v2/keys", { token: otherToken })).body.current).toBe("sig_1");
  });

  test("never appear in a log line or an error, like queries, bodies and paths of destinations", async () => {
    const { ask, lines } = await createTestServer();
    await ask(
      "POST",
      `/v2/publish/https://u:p@e.example/secret/path?secret=1&svc_token=${encodeURIComponent(token)}`,
      {
        body: "secret",
        token: null,
      },
    );
    await ask("POST", "/v2/publish/https%3A%2F%2Fe.example%2Fsecret", { body: "secret" });
    const refused = await ask("GET", "/v2/keys?svc_token=secret", { token: "secret" });
    expect(lines).toMatchObject([
      { method: "POST", path: "/v2/publish/https://e.example", status: 200, account: "acc_1" },
      { status: 200 },
      { path: "/v2/keys", status: 401 },
    ]);
    expect(JSON.stringify([lines, refused.body])).not.toMatch(/secret|eyJ/);
  });

  test.each([
    ["http://user:p@ss:word@host/x", "http://host"],
    ["http://user:p@ss@host:80", "http://host"],
    ["http://host/a@b", "http://host"],
    ["http://host#a@b", "http://host"],
    ["http:/user:secret@host/a", "http://host"],
  ])("and passwords in %s never appear in a log line", async (url, shown) => {
    const { ask, lines } = await createTestServer();
    await ask("POST", `/v2/publish/${url}`);
    expect(lines).toMatchObject([{ path: `/v2/publish/${shown}` }]);
  });

  test("of an account are cached for 5 s, unknown ones not at all", async () => {
    let asked = 0;
    const counted = (store: Store): Store => ({
      ...store,
      read: { ...store.read, accountByToken: (hash) => (asked++, store.read.accountByToken(hash)) },
    });
    const { ask, clock } = await createTestServer({ wrap: counted });
    for (let n = 0; n < 3; n++) await ask("GET", "/v2/keys");
    expect(asked).toBe(1);
    clock.now += 5_000;
    await ask("GET", "/v2/keys");
    expect(asked).toBe(2);
    clock.now -= 60_000;
    await ask("GET", "/v2/keys");
    expect(asked).toBe(3);
    for (let n = 0; n < 3; n++) await ask("GET", "/v2/keys", { token: "wrong" });
    expect(asked).toBe(6);
  });
});

describe("the caller's address", () => {
  test.each([
    [false, "9.9.9.9", "127.0.0.1"],
    [true, "9.9.9.9", "9.9.9.9"],
    [["127.0.0.1"], "8.8.8.8, 9.9.9.9", "9.9.9.9"],
    [["10.0.0.0/8"], "9.9.9.9", "127.0.0.1"],
    [true, "unknown", "127.0.0.1"],
    [true, "::ffff:9.9.9.9", "9.9.9.9"],
    [true, "2001:db8::1", "2001:db8::1"],
  ])("with proxies %o trusted and X-Forwarded-For %s is %s", async (trustProxy, forwardedFor, expected) => {
    const { ask, delivery } = await createTestServer({ trustProxy });
    await ask("POST", "/v2/publish/https://e.example", { headers: { "x-forwarded-for": forwardedFor } });
    expect(delivery().message.callerIp).toBe(expected);
  });
});

describe("health", () => {
  test("is reported without a token, with figures", async () => {
    const { ask } = await createTestServer();
    expect(await ask("GET", "/v2/health", { token: null })).toMatchObject({
      status: 200,
      body: { status: "ok", pending: 0 },
    });
  });

  test.each(["/v2/health?ready=true", "/v2/health/ready", "/v2/readiness"])(
    "%s returns 503 while the server stops, and while its store does not answer",
    async (url) => {
      const well = await createTestServer();
      expect((await well.ask("GET", url, { token: null })).status).toBe(200);
      well.stop();
      expect(await well.ask("GET", url, { token: null })).toMatchObject({
        status: 503,
        body: { error: expect.stringContaining("stopping") },
      });
      expect((await well.ask("GET", "/v2/health", { token: null })).status).toBe(200);
      const failing = await createTestServer({
        wrap: (store) => ({ ...store, nextDueAt: () => Promise.reject(new Error("gone")) }),
      });
      expect((await failing.ask("GET", url, { token: null })).status).toBe(503);
      const silent = await createTestServer({
        wrap: (store) => ({ ...store, nextDueAt: () => new Promise(() => {}) }),
      });
      expect((await silent.ask("GET", url, { token: null })).status).toBe(503);
    },
  );
});
