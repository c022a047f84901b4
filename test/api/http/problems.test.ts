import { once } from "node:events";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import type { Route } from "../../../src/api/route/route.ts";
import { takesFieldsInBody } from "../../../src/api/route/route.ts";
import { routes } from "../../../src/api/routes/index.ts";
import type { Store } from "../../../src/store/store.ts";
import { createTestServer, operatorPassword, otherToken, token } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";

const urlOf = (path: string): string => path.replace("{destination}", "https://e.example/x").replace(/\{\w+\}/g, "1800000000000-0");
const rows = routes.map((row) => ({ row, name: `${row.method} ${row.path}`, url: urlOf(row.path) }));
/** What a request needs besides, to be taken. */
const needed: Readonly<Record<string, { body?: string; headers?: Record<string, string> }>> = {
  "POST /v2/batch": { body: '[{"destination":"https://e.example"}]' },
  "POST /v2/batch/trigger": { body: '[{"destination":"https://e.example"}]' },
  "POST /v2/topics/{name}/endpoints": { body: '{"endpoints":[{"url":"https://e.example"}]}' },
  "DELETE /v2/topics/{name}/endpoints": { body: '{"endpoints":[{"url":"https://e.example"}]}' },
  "PATCH /v2/topics/{name}": { body: '{"headers":{"Svc-Retries":"1"}}' },
  "POST /v2/schedules/{destination}": { headers: { "svc-cron": "0 0 1 1 *" } },
  "POST /v2/queues": { body: '{"queueName":"q"}' },
  "POST /v2/wait/{eventId}": {
    headers: { "svc-workflow-runid": "r" },
    body: '{"url":"https://e.example","step":{"stepId":1,"stepName":"s","stepType":"Wait"}}',
  },
  "POST /v2/tokens": { body: '{"verbs":["read"]}' },
  "POST /v2/admin/accounts": { body: '{"name":"n"}' },
  "PATCH /v2/admin/accounts/{account}": { body: '{"plan":"paid"}' },
  "POST /v2/sources": { body: '{"name":"s","destination":"https://e.example"}' },
};
const neededBy = ({ method, path }: Route) => needed[`${method} ${path}`] ?? {};
const authorization = `Authorization: Bearer ${token}`;
/** The account interface words its refusals in another field. */
const wordsIn = ({ path }: Route): "error" | "message" => (/^\/v2\/(svc|qstash|admin)\//.test(path) ? "message" : "error");
const asHolder = { token: null, headers: { authorization: `Basic ${Buffer.from("acc_1:pass").toString("base64")}` } };
const asOperator = { token: null, headers: { authorization: `Basic ${Buffer.from(`operator:${operatorPassword}`).toString("base64")}` } };
const guarded = rows.filter(({ row }) => row.access === "token");

describe.each(guarded)("$name", ({ row, url }) => {
  test.each([
    ["without a token", {}, /^token: missing; send/],
    ["with an unknown token", { authorization: "Bearer unknown" }, /^token: unknown/],
    ["with an empty token", { authorization: "Bearer " }, /^token: missing; send/],
    [
      "with the hash of a token",
      { authorization: "Bearer 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683" },
      /^token: unknown/,
    ],
    ["with another scheme", { authorization: `Basic ${token}` }, /^token: missing; send/],
    ["with two tokens in one", { authorization: `Bearer ${token} ${otherToken}` }, /^token: missing; send/],
  ])("%s is answered with 401", async (_, headers: Record<string, string>, error) => {
    const { ask, lines } = await createTestServer();
    const reply = await ask(row.method, url, { ...neededBy(row), headers, token: null });
    expect(reply).toMatchObject({ status: 401, headers: { "www-authenticate": "Bearer" }, body: { error: expect.stringMatching(error) } });
    expect(lines).toMatchObject([{ status: 401, account: null }]);
  });

  test.each(["svc_token", "qstash_token"])("takes the token as %s", async (name) => {
    const { ask } = await createTestServer();
    const { status } = await ask(row.method, `${url}?${name}=${encodeURIComponent(token)}`, { token: null, ...neededBy(row) });
    expect(status).not.toBe(401);
    expect((await ask(row.method, `${url}?${name}=wrong`, { token: null })).status).toBe(401);
    expect((await ask(row.method, `${url}?${name}=%zz`, { token: null })).status).toBe(401);
  });

  test("is there with a slash at its end", async () => {
    const { ask } = await createTestServer();
    const { status, body } = await ask(row.method, `${url}/`, neededBy(row));
    expect(body?.error ?? "").not.toMatch(/^path:/);
    expect(status).not.toBe(405);
  });

  test("refuses what it does not know", async () => {
    const { ask } = await createTestServer();
    // What is no setting belongs to the destination.
    const names = row.path.endsWith("{destination}") ? ["svc-retrys", "svc-__proto__"] : ["surprise", "svc-retrys", "__proto__", "a%00"];
    for (const name of names) {
      const reply = await ask(row.method, `${url}?${name}=1`, neededBy(row));
      const expected = decodeURIComponent(name);
      expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(`${expected}: `) } });
    }
  });

  test("refuses what it does not know in a body, where it takes none of another kind", async () => {
    const { ask } = await createTestServer();
    if (!takesFieldsInBody(row)) return;
    const names = ["surprise", "Svc-Retries", "__proto__", ...("dryRun" in row.query.shape ? [] : ["dryRun"])];
    for (const name of names) {
      const reply = await ask(row.method, url, { body: `{${JSON.stringify(name)}:true}` });
      expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(`${name}: `) } });
    }
    for (const body of ["true", "[]", "{", "null"])
      expect(await ask(row.method, url, { body })).toMatchObject({ status: 400, body: { error: expect.stringContaining("body: not ") } });
    expect((await ask(row.method, url, { body: "{}" })).status).toBe((await (await createTestServer()).ask(row.method, url)).status);
  });

  test("may be refused in the ways its row names", async () => {
    const { ask } = await createTestServer();
    if (row.refusals.includes("not-found")) {
      const missing = row.path === "/v2/batch" ? { body: '[{"destination":"group"}]' } : neededBy(row);
      const gone = await ask(row.method, url.replace("https://e.example/x", "group"), missing);
      expect(gone).toMatchObject({ status: 404, body: { error: expect.any(String) } });
    }
  });
});

describe.each(rows)("$name", ({ row, url }) => {
  test("is 405 for methods that the path does not have, and names those it has", async () => {
    const { ask } = await createTestServer();
    const allowed: ReadonlySet<string> = new Set(routes.filter(({ path }) => path === row.path).map(({ method }) => method));
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].filter((other) => !allowed.has(other))) {
      const reply = await ask(method, url);
      // A path with a name in it can be another route's as well.
      if (reply.status === 405)
        expect(reply).toMatchObject({
          headers: { allow: expect.stringContaining(row.method) },
          body: { [wordsIn(row)]: expect.stringContaining(row.method) },
        });
      else expect(routes.some(({ path, method: known }) => known === method && path !== row.path)).toBe(true);
    }
  });

  test("answers an internal failure with 500, tells nothing of it, and logs why", async () => {
    const broken = (store: Store): Store => {
      const fail = async (): Promise<never> => {
        throw new Error("the disk said: secret");
      };
      const read = new Proxy(store.read, { get: (target, name) => (name === "accountByToken" ? target.accountByToken : fail) });
      return { ...store, execute: fail, read, nextDueAt: fail };
    };
    const { ask, lines } = await createTestServer({ wrap: broken });
    const query = row.path.endsWith("/pin") ? "?parallelism=1" : "";
    const reply = await ask(
      row.method,
      `${url}${query}`,
      row.access === "account" ? asHolder : row.access === "operator" ? { ...asOperator, ...neededBy(row) } : neededBy(row),
    );
    if (row.access === "open" && row.path.endsWith("/ipv4")) return expect(reply.status).toBe(200);
    if (row.access === "open") return expect([200, 503]).toContain(reply.status);
    expect(reply).toMatchObject({ status: 500, body: { [wordsIn(row)]: expect.stringMatching(/^internal error/) } });
    expect(JSON.stringify(reply.body)).not.toContain("secret");
    expect(lines).toMatchObject([{ status: 500, fault: expect.stringContaining("the disk said: secret") }]);
  });
});

test.each(["/", "/v2", "/v1/publish/https://e.example", "/v2/publisher", "/v2/messages/a/b", "//v2/keys", "/v2/keyss"])(
  "%s is 404",
  async (url) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", url, { token: null })).toMatchObject({
      status: 404,
      body: { error: expect.stringMatching(/^path: there is nothing/) },
    });
  },
);

test("each request has one line in the log, however it ended", async () => {
  const home = await createTestServer();
  const port = await listen(home);
  const questions: [line: string, status: number][] = [
    ["GET /v2/keys HTTP/1.1", 200],
    ["GET /v2/messages/%zz HTTP/1.1", 400],
    ["GET /nowhere HTTP/1.1", 404],
    [`GET /v2/messages/${"x".repeat(1_000)} HTTP/1.1`, 404],
    ["PUT /v2/keys HTTP/1.1", 405],
    ["POST /v2/publish/https://e.example/%zz?x HTTP/1.1", 200],
  ];
  for (const [line] of questions) await send(port, request(line, [authorization]));
  expect(home.lines.map(({ status }) => status)).toEqual(questions.map(([, status]) => status));
  expect(home.lines.every(({ ms }) => ms >= 0)).toBe(true);
});

describe("tokens", () => {
  test("the header wins over the parameter", async () => {
    const { ask } = await createTestServer();
    await ask("POST", `/v2/keys/rotate?svc_token=${otherToken}`);
    expect((await ask("GET", "/v2/keys")).body.current).toBe("sig_2");
    expect((await ask("GET", "/v2/keys", { token: otherToken })).body.current).toBe("sig_1");
  });

  test("never appear in a log line or an error, nor do queries, bodies and paths of destinations", async () => {
    const { ask, lines } = await createTestServer();
    await ask("POST", `/v2/publish/https://u:p@e.example/secret/path?secret=1&svc_token=${encodeURIComponent(token)}`, {
      body: "secret",
      token: null,
    });
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

  test("of an account are remembered for seconds only, wrong ones not at all", async () => {
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

describe("over the wire", () => {
  const head = `POST /v2/publish/https://e.example HTTP/1.1\r\nHost: x\r\n${authorization}\r\n`;

  test.each([
    ["no HTTP", "\x00\x01\x02\r\n\r\n", 400],
    ["an unknown method", request("BREW / HTTP/1.1"), 400],
    ["an unknown version", request("GET / HTTP/3.0"), 400],
    ["bytes that no target has", request("GET /\xe4\xff HTTP/1.1"), 400],
    ["a header without a colon", "GET / HTTP/1.1\r\nHost x\r\n\r\n", 400],
    ["a negative length", `${head}Content-Length: -1\r\n\r\n`, 400],
    ["a length and chunks", `${head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
    ["malformed chunks", `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n`, 400],
    ["malformed encoding in a path", request("GET /v2/messages/%zz HTTP/1.1", [authorization]), 400],
    ["a very long name in a path", request(`GET /v2/messages/${"x".repeat(1_000)} HTTP/1.1`, [authorization]), 404],
    ["headers of more than 64 KiB", `GET /v2/keys HTTP/1.1\r\nX-A: ${"a".repeat(66_000)}\r\n\r\n`, 431],
    ["a target of more than 64 KiB", `GET /${"a".repeat(66_000)} HTTP/1.1\r\n\r\n`, 431],
    ["a body that is announced too large", `${head}Content-Length: 8388609\r\n\r\nabc`, 413],
    ["CONNECT", "CONNECT e.example:443 HTTP/1.1\r\nHost: e.example:443\r\n\r\n", 405],
    ["a method that only some servers know", request("PURGE /v2/keys HTTP/1.1"), 405],
    ["another one", request("MKCOL /nowhere HTTP/1.1"), 404],
    ["QUERY", request("QUERY /v2/keys HTTP/1.1"), 405],
    ["TRACE", request("TRACE /v2/keys HTTP/1.1"), 405],
    ["OPTIONS of the server", request("OPTIONS * HTTP/1.1"), 404],
  ])("%s is answered in JSON", async (_, bytes, status) => {
    const reply = parseReply(await send(await listen(await createTestServer()), bytes));
    expect(reply.status).toBe(status);
    expect(reply.head).toMatch(/content-type: application\/json/i);
    expect(JSON.parse(reply.body)).toEqual({ error: expect.stringMatching(/^\w+: \S/) });
  });

  test("a body that grows too large in chunks is refused with its limit", async () => {
    const chunk = `100000\r\n${"a".repeat(0x100000)}\r\n`;
    const reply = parseReply(
      await send(await listen(await createTestServer()), `${head}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(9)}`),
    );
    expect(reply).toMatchObject({ status: 413 });
    expect(JSON.parse(reply.body).error).toContain("8388608");
  });

  test("a request needs no Host, and may ask for an upgrade in vain", async () => {
    const port = await listen(await createTestServer());
    expect(parseReply(await send(port, "GET /v2/health HTTP/1.1\r\nConnection: close\r\n\r\n")).status).toBe(200);
    expect(parseReply(await send(port, "GET /v2/health HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n")).status).toBe(200);
  });

  test("while the server stops, running requests end, and later ones on the same connection are refused", async () => {
    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    let arrived = (): void => {};
    const running = new Promise<void>((resolve) => (arrived = resolve));
    const slow = (store: Store): Store => ({
      ...store,
      execute: async (name, input) => {
        arrived();
        await held;
        return store.execute(name, input);
      },
    });
    const home = await createTestServer({ wrap: slow });
    const port = await listen(home);
    const connection = once(home.api.server, "connection");
    const socket = connect(port, "127.0.0.1");
    const received: string[] = [];
    socket.on("data", (chunk: Buffer) => received.push(chunk.toString()));
    socket.write(`${head}Content-Length: 0\r\n\r\n`);
    await running;
    const closed = home.api.close();
    socket.write(request("GET /v2/keys HTTP/1.1", [authorization]));
    const [accepted] = await connection;
    while (!accepted.isPaused()) await new Promise((resolve) => setImmediate(resolve));
    release();
    await once(socket, "close");
    await closed;
    const statuses = [...received.join("").matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    expect(statuses).toEqual(["200", "503"]);
    expect(received.join("")).toContain('{"error":"the server is stopping; ask again"}');
  });
});

describe("a body that waits for 100 Continue", () => {
  const head = "POST /v2/publish/https://e.example HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n";

  test("is asked for once the token is known to be good", async () => {
    const home = await createTestServer();
    const socket = connect(await listen(home), "127.0.0.1");
    socket.write(`${head}${authorization}\r\n\r\n`);
    const [first] = await once(socket, "data");
    expect(String(first)).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    socket.write("abc");
    const [second] = await once(socket, "data");
    expect(String(second)).toMatch(/^HTTP\/1.1 200 /);
    socket.destroy();
    expect(Buffer.from(home.delivery().message.body).toString()).toBe("abc");
  });

  test("is not asked for when the request is refused", async () => {
    const port = await listen(await createTestServer());
    expect(parseReply(await send(port, `${head}Authorization: Bearer wrong\r\n\r\n`)).status).toBe(401);
    const large = head.replace("Length: 3", "Length: 99999999");
    expect(parseReply(await send(port, `${large}${authorization}\r\n\r\n`)).status).toBe(413);
  });
});

test("a client that sends slowly is given up, and header lines are never left out", async () => {
  const { api } = await createTestServer();
  const { headersTimeout, requestTimeout, keepAliveTimeout, maxHeadersCount } = api.server;
  expect({ headersTimeout, requestTimeout, keepAliveTimeout, maxHeadersCount }).toEqual({
    headersTimeout: 30_000,
    requestTimeout: 300_000,
    keepAliveTimeout: 72_000,
    maxHeadersCount: 0,
  });
});

describe("health", () => {
  test("is told without a token, with figures", async () => {
    const { ask } = await createTestServer();
    expect(await ask("GET", "/v2/health", { token: null })).toMatchObject({ status: 200, body: { status: "ok", pending: 0 } });
  });

  test.each(["/v2/health?ready=true", "/v2/health/ready", "/v2/readiness"])(
    "%s is 503 while the server stops, and while its store is silent",
    async (url) => {
      const well = await createTestServer();
      expect((await well.ask("GET", url, { token: null })).status).toBe(200);
      well.stop();
      expect(await well.ask("GET", url, { token: null })).toMatchObject({
        status: 503,
        body: { error: expect.stringContaining("stopping") },
      });
      expect((await well.ask("GET", "/v2/health", { token: null })).status).toBe(200);
      const failing = await createTestServer({ wrap: (store) => ({ ...store, nextDueAt: () => Promise.reject(new Error("gone")) }) });
      expect((await failing.ask("GET", url, { token: null })).status).toBe(503);
      const silent = await createTestServer({ wrap: (store) => ({ ...store, nextDueAt: () => new Promise(() => {}) }) });
      expect((await silent.ask("GET", url, { token: null })).status).toBe(503);
    },
  );
});
