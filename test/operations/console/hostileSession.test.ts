import { describe, expect, test } from "vitest";
import { createTestServer, token } from "../../api/testServer.ts";
import { TestBrowser } from "./browser.ts";

async function signedIn(options: Parameters<typeof createTestServer>[0] = {}) {
  const server = await createTestServer({ console: {}, ...options });
  const browser = new TestBrowser(server);
  await browser.logIn({ token });
  return { server, browser };
}

describe("a cookie counts only if the console itself sends the request", () => {
  const host = "127.0.0.1:8080";
  test.each([
    ["a page of another site", { "sec-fetch-site": "cross-site" }],
    ["a page of another port", { "sec-fetch-site": "same-site" }],
    ["the address bar", { "sec-fetch-site": "none" }],
    ["another origin, over plain HTTP", { "sec-fetch-site": "", origin: "http://evil.example" }],
    ["an opaque origin", { "sec-fetch-site": "", origin: "null" }],
    ["the same host on another port", { "sec-fetch-site": "", origin: "http://127.0.0.1:9000" }],
    ["a page whose claim is contradicted", { "sec-fetch-site": "cross-site", origin: `http://${host}` }],
    ["no origin at all", { "sec-fetch-site": "" }],
    ["the marker on a change, without an origin", { "sec-fetch-site": "", "waypost-console": "1" }],
  ])("refused: %s", async (_, headers) => {
    const { browser } = await signedIn();
    expect((await browser.send("POST", "/v2/queues", { body: { queueName: "q" }, headers })).status).toBe(
      403,
    );
    expect((await browser.send("POST", "/console/session", { body: { token }, headers })).status).toBe(403);
    expect((await browser.send("DELETE", "/console/session", { headers })).status).toBe(403);
  });

  test.each([
    ["Sec-Fetch-Site", {}],
    ["the origin, over plain HTTP", { "sec-fetch-site": "", origin: `http://${host}` }],
    ["the origin behind a proxy that ends TLS", { "sec-fetch-site": "", origin: `https://${host}` }],
  ])("accepted by %s", async (_, headers) => {
    const { browser } = await signedIn();
    expect((await browser.send("POST", "/v2/queues", { body: { queueName: "q" }, headers })).status).toBe(
      200,
    );
  });

  test("a read over plain HTTP needs the header that only the console sends", async () => {
    const { browser } = await signedIn();
    const plain = { "sec-fetch-site": "" };
    expect((await browser.send("GET", "/v2/queues", { headers: plain })).status).toBe(403);
    const marked = { ...plain, "waypost-console": "1" };
    expect((await browser.send("GET", "/v2/queues", { headers: marked })).status).toBe(200);
  });

  test("no CORS setting lets another page use a cookie", async () => {
    const { browser } = await signedIn({ corsOrigins: ["*"] });
    const from = { "sec-fetch-site": "cross-site", origin: "https://evil.example", "waypost-console": "1" };
    const refused = await browser.send("GET", "/v2/queues", { headers: from });
    expect(refused.status).toBe(403);
    expect(refused.headers["access-control-allow-credentials"]).toBeUndefined();
  });
});

describe("a name that a stranger points at this server is refused", () => {
  test.each([
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "a b",
    "[::1",
  ])("%j", async (host) => {
    const { browser } = await signedIn();
    for (const headers of [{ host }, { host, origin: `http://${host}`, "sec-fetch-site": "" }]) {
      expect((await browser.send("GET", "/v2/queues", { headers })).status).toBe(403);
      expect((await browser.send("POST", "/console/session", { body: { token }, headers })).status).toBe(403);
    }
  });

  test.each([
    "localhost:8080",
    "LOCALHOST",
    "app.localhost:3000",
    "[::1]:8080",
    "192.0.2.7:8080",
    "queue.internal",
  ])("%s is accepted", async (host) => {
    const { browser } = await signedIn();
    expect((await browser.send("GET", "/v2/queues", { headers: { host } })).status).toBe(200);
  });

  test("the public URL is accepted, and the refusal names the setting", async () => {
    const server = await createTestServer({ console: { publicUrl: "https://queue.example.com/prefix" } });
    const browser = new TestBrowser(server, { host: "queue.example.com" });
    const opened = await browser.logIn({ token });
    expect(opened.status).toBe(200);
    const refused = await browser.logIn({ token }, { host: "other.example.com" });
    expect(refused.body.error).toContain("--allow-host other.example.com, or with --public-url");
  });
});

describe("cookies", () => {
  test("over HTTPS only a cookie with the prefix counts, which no other host can set", async () => {
    const server = await createTestServer({ console: { publicUrl: "https://queue.example.com" } });
    const browser = new TestBrowser(server, { host: "queue.example.com" });
    const opened = await browser.logIn({ token });
    expect(String(opened.headers["set-cookie"])).toMatch(
      /^__Host-waypost-session=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure$/,
    );
    const value = browser.cookies.get("__Host-waypost-session") ?? "";
    browser.cookies.clear();
    browser.cookies.set("waypost-session", value);
    expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
  });

  test("over plain HTTP it has no prefix and is not marked secure", async () => {
    const server = await createTestServer({ console: {} });
    const opened = await new TestBrowser(server).logIn({ token });
    expect(String(opened.headers["set-cookie"])).toMatch(
      /^waypost-session=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/,
    );
  });

  test("two cookies of one name count for nothing", async () => {
    const { browser } = await signedIn();
    const cookie = `waypost-session=${browser.cookies.get("waypost-session")}; waypost-session=other`;
    expect((await browser.send("GET", "/v2/queues", { headers: { cookie } })).status).toBe(401);
  });

  test.each([
    "x",
    ".",
    "YWNjXzE.",
    `YWNjXzE.${"A".repeat(43)}`,
    `${"A".repeat(5000)}.${"A".repeat(43)}`,
    "%00",
    `__proto__.${"A".repeat(43)}`,
  ])("a forged cookie is refused: %s", async (value) => {
    const { server } = await signedIn();
    const cookie = `waypost-session=${value}`;
    const forger = new TestBrowser(server);
    expect((await forger.send("GET", "/v2/queues", { headers: { cookie } })).status).toBe(401);
    expect((await forger.send("GET", "/console/session", { headers: { cookie } })).body).toMatchObject({
      account: null,
    });
  });

  test("a session of one account opens nothing in another", async () => {
    const { browser } = await signedIn();
    const [, secret = ""] = (browser.cookies.get("waypost-session") ?? "").split(".");
    const other = `${Buffer.from("acc_2").toString("base64url")}.${secret}`;
    browser.cookies.set("waypost-session", other);
    expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
  });

  test("a cookie is not a bearer token, and a token sent with it decides", async () => {
    const { server, browser } = await signedIn();
    const value = browser.cookies.get("waypost-session") ?? "";
    expect((await server.ask("GET", "/v2/queues", { token: value })).status).toBe(401);
    const beside = { authorization: "Bearer wrong" };
    expect((await browser.send("GET", "/v2/queues", { headers: beside })).status).toBe(401);
  });
});

test("a cookie never publishes to a destination in a path, or calls a source or a webhook", async () => {
  const { server, browser } = await signedIn();
  for (const path of ["/v2/publish/https://one.example/", "/v2/enqueue/q/https://one.example/"])
    expect((await browser.send("POST", path, { body: {} })).status).toBe(401);
  for (const path of ["/in/wrong-secret", "/v2/hooks/acc_1/run/event/secret"])
    expect((await browser.send("POST", path, { body: {} })).status).toBeGreaterThanOrEqual(400);
  expect(server.deliveries).toEqual([]);
  const batch = [{ destination: "https://one.example/", body: "hello" }];
  expect((await browser.send("POST", "/v2/batch", { body: batch })).status).toBe(200);
  expect(server.delivery().message.url).toBe("https://one.example/");
  browser.cookies.set("other-app", "1");
  const forward = { "x-own": "1", "svc-header-forward": "true" };
  await browser.send("POST", "/v2/trigger/https://one.example/", { body: {}, headers: forward });
  const names = server.delivery().message.headers.map(([name]) => name);
  expect(names).toContain("X-Own");
  expect(names).not.toContain("Cookie");
  expect(JSON.stringify(server.memory.tables.storedMessages.values().toArray())).not.toContain(
    "waypost-session",
  );
});

test("without the console there is nothing to log in to", async () => {
  const server = await createTestServer();
  const browser = new TestBrowser(server);
  expect((await browser.logIn({ token })).status).toBe(404);
  browser.cookies.set("waypost-session", `YWNjXzE.${"A".repeat(43)}`);
  expect((await browser.send("GET", "/v2/queues")).status).toBe(401);
});

test("the port of the account endpoints has no console", async () => {
  const server = await createTestServer({ console: {}, servesAccountsOnly: true });
  expect((await new TestBrowser(server).logIn({ token })).status).toBe(404);
});

test("no cookie, password or code is logged", async () => {
  const { server, browser } = await signedIn();
  const cookie = browser.cookies.get("waypost-session") ?? "";
  await browser.logIn({ account: "acc_1", password: "secret-password" });
  await browser.send("GET", `/v2/queues/${cookie}`);
  const lines = JSON.stringify(server.lines);
  for (const secret of [cookie, "secret-password"]) expect(lines).not.toContain(secret);
});
