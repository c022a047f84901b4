import { expect, test } from "vitest";
import { makeReadOnlyToken } from "../../../src/api/auth/token.ts";
import { createTestServer, operatorPassword, token } from "../../api/testServer.ts";
import { TestBrowser } from "./browser.ts";

const hour = 3_600_000;

test("each credential opens a session with its own rights", async () => {
  const server = await createTestServer({ console: {} });
  const account = await server.store.read.account("acc_1");
  const readOnly = makeReadOnlyToken({ id: "acc_1", token: account?.token ?? "" });
  const made = await server.ask("POST", "/v2/tokens", {
    body: JSON.stringify({ verbs: ["read", "publish"] }),
  });
  const logins = [
    [
      { account: "acc_1", password: "pass" },
      { rights: "all", openedWith: "password" },
    ],
    [{ token }, { rights: "all", openedWith: "main" }],
    [{ token: readOnly }, { rights: "read", openedWith: "readOnly" }],
    [{ token: made.body.token }, { rights: ["publish", "read"], openedWith: "token" }],
  ] as const;
  for (const [given, expected] of logins) {
    const browser = new TestBrowser(server);
    const opened = await browser.logIn({ ...given, name: " Maria " });
    const shown = { account: { id: "acc_1", name: "acc_1" }, name: "Maria", operator: false, ...expected };
    expect(opened).toMatchObject({ status: 200, body: shown, headers: { "cache-control": "no-store" } });
    expect((await browser.send("GET", "/console/session")).body).toEqual(opened.body);
    expect((await browser.send("GET", "/v2/queues")).status).toBe(200);
  }
});

test("a session has the rights of its credential and no others", async () => {
  const server = await createTestServer({ console: {} });
  const { token: mainToken = "" } = (await server.store.read.account("acc_1")) ?? {};
  const browser = new TestBrowser(server);
  await browser.logIn({ token: makeReadOnlyToken({ id: "acc_1", token: mainToken }) });
  expect(await browser.send("POST", "/v2/queues", { body: { queueName: "q" } })).toMatchObject({
    status: 403,
    body: { error: expect.stringContaining("read-only") },
  });
  expect((await browser.send("POST", "/v2/queues/q/pause")).status).toBe(403);
  // The account's settings and secrets need the password, as without the console.
  for (const kind of ["readOnly", "main"]) {
    if (kind === "main") await browser.logIn({ token });
    const { status, body } = await browser.send("GET", "/v2/svc/users");
    expect([status, body]).toMatchObject([200, [{ id: "acc_1" }]]);
    for (const name of ["password", "token", "read_only_token"]) expect(body[0]).not.toHaveProperty(name);
    expect((await browser.send("GET", "/v2/me")).body).toMatchObject({ credential: { kind } });
    expect((await browser.send("POST", "/v2/svc/rotate-token/acc_1")).status).toBe(403);
  }
  await browser.logIn({ account: "acc_1", password: "pass" });
  expect((await browser.send("GET", "/v2/svc/users")).body).toMatchObject([{ id: "acc_1", token }]);
  expect((await browser.send("GET", "/v2/me")).body).toMatchObject({
    credential: { kind: "password", verbs: ["publish", "read", "manage", "receive"] },
    session: { name: expect.any(String), expiresAt: expect.any(Number) },
  });
  expect((await browser.send("GET", "/v2/admin/accounts")).status).toBe(401);
});

test("only a hash of a session is stored", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  await browser.logIn({ token });
  const [cookie = ""] = browser.cookies.values();
  const [, secret = ""] = cookie.split(".");
  const stored = JSON.stringify([...server.memory.tables.accounts.values()]);
  expect(secret).toMatch(/^[\w-]{43}$/);
  expect(stored).toContain('"sessions"');
  expect(stored).not.toContain(secret);
});

test("a session ends after 12 hours, at log-out, and when the token is replaced", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  const isIn = async () => (await browser.send("GET", "/v2/queues")).status;
  const password = () =>
    server.memory.tables.accounts.values().find(({ id }) => id === "acc_1")?.password ?? "";
  const logIn = () => browser.logIn({ account: "acc_1", password: password() });
  await logIn();
  server.clock.now += 12 * hour - 1;
  expect(await isIn()).toBe(200);
  server.clock.now += 1;
  expect(await isIn()).toBe(401);
  await logIn();
  const kept = new Map(browser.cookies);
  expect((await browser.send("DELETE", "/console/session")).body).toMatchObject({ account: null });
  expect(browser.cookies.size).toBe(0);
  for (const [name, value] of kept) browser.cookies.set(name, value);
  expect(await isIn()).toBe(401);
  await logIn();
  expect((await browser.send("POST", "/v2/svc/rotate-token/acc_1")).status).toBe(200);
  expect(await isIn()).toBe(401);
});

test("a session ends with the token that opened it", async () => {
  const server = await createTestServer({ console: {} });
  const made = await server.ask("POST", "/v2/tokens", {
    body: JSON.stringify({ verbs: ["read"], expires: "1h" }),
  });
  const browser = new TestBrowser(server);
  await browser.logIn({ token: made.body.token });
  expect((await browser.send("GET", "/v2/queues")).status).toBe(200);
  server.clock.now += hour;
  expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
  const other = await server.ask("POST", "/v2/tokens", { body: JSON.stringify({ verbs: ["read"] }) });
  await browser.logIn({ token: other.body.token });
  await server.ask("DELETE", `/v2/tokens/${other.body.tokenId}`);
  expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
});

test("the audit log names the person of a session beside the credential", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  await browser.logIn({ token, name: "maria" });
  await browser.send("POST", "/v2/queues", { body: { queueName: "parcels", parallelism: 2 } });
  await browser.send("DELETE", "/console/session");
  const by = { kind: "token", token: "main", user: "maria", address: "127.0.0.1" };
  expect((await server.ask("GET", "/v2/audit")).body.entries).toMatchObject([
    { action: "session.close", by },
    { action: "queue.set", object: "parcels", by },
    { action: "session.open", by },
  ]);
});

test("the oldest session ends when an account has more than 50", async () => {
  const server = await createTestServer({ console: {} });
  const browsers = Array.from({ length: 51 }, () => new TestBrowser(server));
  for (const browser of browsers) await browser.logIn({ token });
  const statuses = await Promise.all(
    browsers.map(async (one) => (await one.send("GET", "/v2/queues")).status),
  );
  expect(statuses).toEqual([401, ...Array.from({ length: 50 }, () => 200)]);
});

test("the operator opens a session, switches accounts, and every switch is audited", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  const opened = await browser.logIn({ operatorPassword, name: "op" });
  expect(opened.body).toMatchObject({ account: null, operator: true, name: "op" });
  expect((await browser.send("GET", "/v2/admin/accounts")).body.accounts).toHaveLength(2);
  expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
  for (const switchTo of ["acc_1", "acc_2"]) {
    const switched = await browser.logIn({ switchTo });
    expect(switched.body).toMatchObject({ account: { id: switchTo }, operator: true, name: "op" });
    await browser.send("POST", "/v2/queues", { body: { queueName: `of-${switchTo}` } });
    const { entries } = (await browser.send("GET", "/v2/audit")).body;
    expect(entries).toMatchObject([
      { action: "queue.set", object: `of-${switchTo}`, by: { kind: "operator", user: "op" } },
      { action: "session.open", by: { kind: "operator", user: "op" } },
    ]);
  }
  expect((await browser.logIn({ switchTo: "none" })).status).toBe(404);
  // The session in the account is worth nothing without that of the operator.
  const operator = [...browser.cookies].find(([name]) => name === "waypost-operator")?.[1] ?? "";
  browser.cookies.delete("waypost-operator");
  expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
  browser.cookies.set("waypost-operator", operator);
  expect((await browser.send("GET", "/v2/queues")).status).toBe(200);
  await browser.send("DELETE", "/console/session");
  for (const ended of [operator, `${operator}.`, `${operator}.x`]) {
    browser.cookies.set("waypost-operator", ended);
    expect((await browser.send("GET", "/v2/admin/accounts")).status).toBe(401);
  }
});

test("an account cannot switch, and a changed or expired operator cookie is refused", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  await browser.logIn({ token });
  expect((await browser.logIn({ switchTo: "acc_2" })).status).toBe(403);
  await browser.logIn({ operatorPassword });
  const cookie = browser.cookies.get("waypost-operator") ?? "";
  const forged = Buffer.from(JSON.stringify({ name: "", expiresAt: 9e15 })).toString("base64url");
  for (const value of [`${forged}.${cookie.split(".")[1]}`, `${cookie}x`, forged, ".", "x.y.z"]) {
    browser.cookies.set("waypost-operator", value);
    expect((await browser.send("GET", "/v2/admin/accounts")).status).toBe(401);
  }
  browser.cookies.set("waypost-operator", cookie);
  expect((await browser.send("GET", "/v2/admin/accounts")).status).toBe(200);
  server.clock.now += 12 * hour;
  expect((await browser.send("GET", "/v2/admin/accounts")).status).toBe(401);
});

test("wrong credentials count in the lockout", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  const statuses: number[] = [];
  for (let at = 0; at < 21; at++)
    statuses.push((await browser.logIn({ account: "acc_1", password: "no" })).status);
  expect([statuses[0], statuses[20]]).toEqual([401, 429]);
  const last = await new TestBrowser(server).logIn({ token: "no" });
  expect(last).toMatchObject({ status: 429, body: { error: expect.stringContaining("failed attempts") } });
  expect((await browser.logIn({ operatorPassword: "wrong-password-1" })).status).toBe(429);
});

test("a code opens a session once, within ten minutes, from this machine", async () => {
  const server = await createTestServer({ console: {}, trustProxy: true });
  const browser = new TestBrowser(server);
  const code = server.sessions.createCode("acc_1");
  expect((await browser.logIn({ code }, { "x-forwarded-for": "203.0.113.7" })).status).toBe(401);
  expect((await browser.logIn({ code })).body).toMatchObject({ account: { id: "acc_1" }, rights: "all" });
  expect((await browser.logIn({ code })).status).toBe(401);
  const late = server.sessions.createCode("acc_1");
  server.clock.now += 600_000;
  expect((await browser.logIn({ code: late })).status).toBe(401);
});

test("a trusted proxy names the person of a session, and nobody else does", async () => {
  const server = await createTestServer({ console: { trustsUserHeader: true } });
  const header = { "x-user": "maria@example.com" };
  const named = await new TestBrowser(server).logIn({ token, name: "someone" }, header);
  expect(named.body.name).toBe("maria@example.com");
  // The header alone signs nobody in.
  expect((await new TestBrowser(server).send("GET", "/v2/queues", { headers: header })).status).toBe(401);
  const without = await createTestServer({ console: {} });
  expect((await new TestBrowser(without).logIn({ token, name: "joe" }, header)).body.name).toBe("joe");
});

test.each([
  {},
  { token: "" },
  { token: 7 },
  { account: "acc_1" },
  { account: "acc_1", password: "pass", switchTo: "acc_2" },
  { token, name: "n".repeat(101) },
  [],
])("a malformed login is refused: %j", async (given) => {
  const server = await createTestServer({ console: {} });
  expect((await new TestBrowser(server).send("POST", "/console/session", { body: given })).status).toBe(400);
});

test("a session response has an ETag, and an unchanged list is not sent again", async () => {
  const server = await createTestServer({ console: {} });
  const browser = new TestBrowser(server);
  await browser.logIn({ token });
  const first = await browser.send("GET", "/v2/queues");
  expect(first.headers).toMatchObject({
    "cache-control": "private, no-cache",
    "x-content-type-options": "nosniff",
  });
  const etag = { "if-none-match": String(first.headers["etag"]) };
  expect(await browser.send("GET", "/v2/queues", { headers: etag })).toMatchObject({
    status: 304,
    body: null,
  });
  await browser.send("POST", "/v2/queues", { body: { queueName: "q" } });
  expect((await browser.send("GET", "/v2/queues", { headers: etag })).body).toMatchObject([{ name: "q" }]);
  const { headers } = await server.ask("GET", "/v2/queues");
  expect(headers["cache-control"]).toBeUndefined();
});
