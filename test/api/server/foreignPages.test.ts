import { describe, expect, test } from "vitest";
import { routes } from "../../../src/operations/routes.ts";
import { listMethods } from "../../../src/api/route/route.ts";
import { TestBrowser } from "../../operations/console/browser.ts";
import { createTestServer, token } from "../testServer.ts";
import { listen, parseReply, send } from "../wire.ts";

const fromOtherSite = { "sec-fetch-site": "cross-site", origin: "https://evil.example" };
const serve = (options: Parameters<typeof createTestServer>[0] = {}) =>
  createTestServer({ console: {}, hosts: { isDevelopment: true }, ...options });

/** Publishes over its own connection with these header lines. Returns the status. */
async function publish(
  server: Awaited<ReturnType<typeof serve>>,
  lines: string[],
  query = "",
): Promise<number> {
  const head = [
    `POST /v2/publish/https://e.example/${query} HTTP/1.1`,
    "Connection: close",
    "Content-Length: 1",
  ];
  const received = await send(await listen(server), [...head, ...lines, "", "x"].join("\r\n"));
  return parseReply(received).status;
}

const bearer = `Authorization: Bearer ${token}`;
const own = "Host: 127.0.0.1:8080";

describe("a publish in development", () => {
  test.each<[name: string, lines: string[], status: number]>([
    ["of a program", [own, bearer], 200],
    ["of Node's fetch", [own, bearer, "Sec-Fetch-Mode: cors"], 200],
    ["of a program in another container", ["Host: waypost:8080", bearer], 200],
    ["of another site", [own, bearer, "Sec-Fetch-Site: cross-site"], 403],
    ["of another site, in an older browser", [own, bearer, "ORIGIN: https://evil.example"], 403],
    ["of a page that hides its origin, in an older browser", [own, bearer, "Origin: null"], 403],
    ["of a page of this machine, in an older browser", [own, bearer, "Origin: http://localhost:3000"], 200],
    ["by a rebound name", ["Host: evil.example:8080", bearer, "Sec-Fetch-Site: same-origin"], 403],
    ["by a rebound name, in an older browser", ["host: evil.example", bearer], 403],
  ])("%s", async (_, lines, status) => {
    const server = await serve();
    // The token is known, so that the fast path decides at once.
    await server.ask("GET", "/v2/queues");
    expect(await publish(server, lines)).toBe(status);
    const inQuery = lines.filter((line) => line !== bearer);
    expect(await publish(server, inQuery, `?svc_token=${token}`)).toBe(status);
    expect(server.deliveries).toHaveLength(status === 200 ? 2 : 0);
  });

  test("of another site is accepted outside of development, because its token is a secret", async () => {
    const server = await serve({ hosts: {} });
    const lines = ["Host: evil.example", "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"];
    expect(await publish(server, [...lines, bearer])).toBe(200);
    expect(await publish(server, lines, `?svc_token=${token}`)).toBe(200);
  });

  test("of another site is refused before its token is looked up", async () => {
    const server = await serve();
    for (let at = 0; at < 30; at++)
      expect(await publish(server, [own, "Authorization: Bearer wrong", "Sec-Fetch-Site: cross-site"])).toBe(
        403,
      );
    expect((await server.ask("GET", "/v2/queues", { token: "wrong" })).status, "no attempt was counted").toBe(
      401,
    );
  });
});

describe("every route in development", () => {
  const rows = routes.flatMap((row) =>
    listMethods(row).map((method) => ({ name: `${method} ${row.path}`, method, row })),
  );
  test.each(rows)("$name", async ({ method, row }) => {
    const server = await serve();
    const url = row.path.replace("{destination}", "https://e.example").replaceAll(/\{\w+\}/g, "x");
    const isGuarded = ["token", "account", "operator"].includes(row.access);
    const other = await server.ask(method, url, { headers: { host: "localhost", ...fromOtherSite } });
    const rebound = await server.ask(method, url, { headers: { host: "evil.example" } });
    const texts = [other, rebound].map(({ body }) => JSON.stringify(body));
    if (method === "HEAD") expect(other.status === 403).toBe(isGuarded);
    else {
      expect(texts[0]?.includes("--cors-origin https://evil.example")).toBe(isGuarded);
      expect(texts[1]?.includes("--allow-host evil.example")).toBe(isGuarded);
    }
  });

  test("the console opens from another site, and only its own page opens a session", async () => {
    const server = await serve({ console: { built: new Map([["index.html", page]]) } });
    for (const headers of [fromOtherSite, { host: "evil.example" }])
      expect((await server.ask("GET", "/console/session", { token: null, headers })).status).toBe(403);
    const port = await listen(server);
    const lines = [own, "Sec-Fetch-Site: cross-site", "Connection: close", "", ""];
    const opened = parseReply(await send(port, ["GET /console/ HTTP/1.1", ...lines].join("\r\n")));
    expect(opened.status).toBe(200);
    const browser = new TestBrowser(server);
    expect((await browser.logIn({ token }, fromOtherSite)).status).toBe(403);
    expect((await browser.logIn({ token }, { host: "evil.example" })).status).toBe(403);
    expect((await browser.logIn({ token }, { host: "my-mac.local:8080" })).status).toBe(200);
    expect((await browser.send("GET", "/v2/queues")).status).toBe(200);
  });

  test("--allow-host and --cors-origin allow a name and a page, and preflights are answered", async () => {
    const server = await serve({
      hosts: { isDevelopment: true, allowed: ["queue.example"] },
      corsOrigins: ["https://evil.example"],
    });
    const headers = { host: "queue.example", ...fromOtherSite };
    expect((await server.ask("GET", "/v2/queues", { headers })).status).toBe(200);
    const asks = { ...headers, "access-control-request-method": "POST" };
    expect((await server.ask("OPTIONS", "/v2/queues", { token: null, headers: asks })).status).toBe(204);
    expect(
      (await server.ask("GET", "/v2/queues", { headers: { ...headers, host: "other.example" } })).status,
    ).toBe(403);
  });
});

const page = { type: "text/html; charset=utf-8", body: Buffer.from("<!doctype html>") };

test("a password that a browser may have added does not count for a page of another site", async () => {
  const server = await serve({ hosts: {} });
  const authorization = `Basic ${Buffer.from("acc_1:pass").toString("base64")}`;
  const read = async (headers: Record<string, string>): Promise<number> =>
    (await server.ask("GET", "/v2/svc/users", { token: null, headers: { authorization, ...headers } }))
      .status;
  expect(await read({})).toBe(200);
  expect(await read({ "sec-fetch-site": "same-origin" })).toBe(200);
  expect(await read({ "sec-fetch-site": "cross-site" })).toBe(403);
  expect(await read({ origin: "https://evil.example" })).toBe(403);
});

test.each([true, false])(
  "a link does not rotate the signing keys, in development: %s",
  async (isDevelopment) => {
    const server = await serve({ hosts: { isDevelopment } });
    const before = (await server.ask("GET", "/v2/keys")).body;
    const inQuery = `/v2/keys/rotate?svc_token=${token}`;
    const refused = await server.ask("GET", inQuery, { token: null });
    expect([refused.status, refused.body.error]).toEqual([
      401,
      expect.stringContaining("only in the header"),
    ]);
    expect((await server.ask("GET", inQuery, { token: "of-the-destination" })).status).toBe(401);
    expect((await server.ask("GET", "/v2/keys")).body).toEqual(before);
    expect((await server.ask("GET", "/v2/keys/rotate")).body.current).toBe(before.next);
    expect((await server.ask("POST", `${inQuery}&force=true`, { token: null })).status).toBe(200);
  },
);
