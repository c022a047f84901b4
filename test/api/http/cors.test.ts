import { connect } from "node:net";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { createTestServer, operatorPassword, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { formatBasic } from "../routes/accounts/possessions.ts";

const app = "https://app.example";
const stranger = "https://app.example.evil.example";
const to = "/v2/publish/https://e.example/x";

type Asked = { method: string; url: string; headers?: Record<string, string> };

/** Sends a request as a page of this origin. */
const from = (server: TestServer, origin: string, { method, url, headers }: Asked) =>
  server.api.inject({ method: method as "GET", url, headers: { origin, ...headers } });
type Preflight = { url?: string; method?: string; headers?: string };

const preflight = (
  server: TestServer,
  origin: string,
  { url = to, method = "POST", headers = "authorization, svc-retries" }: Preflight = {},
) =>
  from(server, origin, {
    method: "OPTIONS",
    url,
    headers: { "access-control-request-method": method, "access-control-request-headers": headers },
  });
const corsOf = (headers: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.startsWith("access-control-") || name === "vary"),
  );

describe("without --cors-origin", () => {
  test("no response has headers for browsers", async () => {
    const server = await createTestServer();
    expect(await preflight(server, app)).toMatchObject({ statusCode: 405 });
    for (const answer of [
      await preflight(server, app),
      await from(server, app, { method: "GET", url: "/v2/health" }),
      await from(server, app, { method: "POST", url: to }),
    ])
      expect(corsOf(answer.headers)).toEqual({});
  });
});

describe("with an origin", () => {
  test.each([
    [to, "POST", "POST"],
    ["/v2/enqueue/q/https://e.example", "POST", "POST"],
    ["/v2/batch", "POST", "POST"],
    ["/v2/queues", "GET", "POST, GET, HEAD"],
    ["/v2/messages/msg_1", "DELETE", "GET, HEAD, DELETE"],
    ["/v2/in/secret", "POST", "POST, GET, HEAD"],
    ["/v2/workflows/hooks/a/b/c", "PUT", "POST, GET, PUT, PATCH, DELETE"],
    ["/v2/health", "GET", "GET, HEAD"],
  ])(
    "a preflight request to %s is answered with the methods that a page may use",
    async (url, method, methods) => {
      const server = await createTestServer({ corsOrigins: ["https://other.example", app] });
      const answer = await preflight(server, app, { url, method });
      expect([answer.statusCode, answer.body]).toEqual([204, ""]);
      expect(corsOf(answer.headers)).toEqual({
        "access-control-allow-origin": app,
        "access-control-allow-methods": methods,
        "access-control-allow-headers": "authorization, svc-retries",
        "access-control-max-age": "7200",
        "access-control-expose-headers": expect.stringContaining("Waypost-Warning"),
        vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
      });
      expect(server.deliveries).toEqual([]);
    },
  );

  test("responses and refusals can be read by its pages", async () => {
    const server = await createTestServer({ corsOrigins: [app], requestBodyBytes: 12_000_000 });
    const authorization = `Bearer ${token}`;
    const large = {
      method: "POST" as const,
      url: to,
      headers: { origin: app, authorization },
      payload: Buffer.alloc(11_000_000),
    };
    const answers = [
      await from(server, app, { method: "POST", url: to, headers: { authorization } }),
      await from(server, app, { method: "POST", url: to }),
      await from(server, app, { method: "POST", url: "/v2/publish/nowhere", headers: { authorization } }),
      await from(server, app, { method: "GET", url: "/v2/nothing", headers: { authorization } }),
      await from(server, app, { method: "PUT", url: "/v2/health" }),
      await server.api.inject(large),
    ];
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 401, 404, 404, 405, 413]);
    for (const { headers } of answers)
      expect(corsOf(headers)).toEqual({
        "access-control-allow-origin": app,
        vary: "Origin",
        "access-control-expose-headers": expect.stringContaining("Retry-After"),
      });
  });

  test.each([stranger, "null", "https://APP.example", "http://app.example", "https://app.example:8443", ""])(
    "%j is another origin and gets no headers",
    async (origin) => {
      const server = await createTestServer({ corsOrigins: [app] });
      expect((await preflight(server, origin)).statusCode).toBe(405);
      for (const answer of [
        await preflight(server, origin),
        await from(server, origin, { method: "GET", url: "/v2/health" }),
      ])
        expect(corsOf(answer.headers)).toEqual({ vary: "Origin" });
    },
  );

  test("requests with a password are refused, and get no headers", async () => {
    const server = await createTestServer({ corsOrigins: ["*"] });
    for (const [url, authorization] of [
      ["/v2/svc/users", formatBasic("acc_1", "pass")],
      ["/v2/qstash/users", formatBasic("acc_1", "pass")],
      ["/v2/admin/accounts", formatBasic("operator", operatorPassword)],
    ] as const) {
      expect((await preflight(server, app, { url, method: "GET" })).statusCode).toBe(405);
      const answer = await from(server, app, { method: "GET", url, headers: { authorization } });
      expect([url, answer.statusCode, corsOf(answer.headers)]).toEqual([url, 403, {}]);
    }
  });

  test("unknown paths, other OPTIONS requests and invalid header names get no preflight answer", async () => {
    const server = await createTestServer({ corsOrigins: [app] });
    expect((await preflight(server, app, { url: "/v2/nothing" })).statusCode).toBe(404);
    expect((await from(server, app, { method: "OPTIONS", url: to })).statusCode).toBe(405);
    const odd = await preflight(server, app, { headers: "a b, <x>" });
    expect([odd.statusCode, odd.headers["access-control-allow-headers"]]).toEqual([204, undefined]);
  });

  test("credentials of a browser are never allowed", async () => {
    for (const corsOrigins of [[app], ["*"]]) {
      const server = await createTestServer({ corsOrigins });
      for (const answer of [
        await preflight(server, app),
        await from(server, app, { method: "GET", url: "/v2/health" }),
      ])
        expect(answer.headers).not.toHaveProperty("access-control-allow-credentials");
    }
  });
});

test("with * every origin is allowed as *", async () => {
  const server = await createTestServer({ corsOrigins: ["*"] });
  for (const origin of [app, stranger, "null"]) {
    expect((await preflight(server, origin)).statusCode).toBe(204);
    expect((await from(server, origin, { method: "GET", url: "/v2/health" })).headers).toMatchObject({
      "access-control-allow-origin": "*",
    });
  }
});

test("a plain publish over a connection gets the headers only for an allowed page", async () => {
  const server = await createTestServer({ corsOrigins: [app] });
  await server.api.listen({ port: 0 });
  const { port } = server.api.server.address() as { port: number };
  const publish = async (...more: string[]): Promise<string> => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    const lines = [
      `POST ${to} HTTP/1.1`,
      "Host: x",
      `Authorization: Bearer ${token}`,
      "Content-Length: 2",
      "Connection: close",
      ...more,
    ];
    socket.write(`${lines.join("\r\n")}\r\n\r\nhi`);
    return text(socket);
  };
  await publish();
  expect(await publish()).toMatch(/^HTTP\/1\.1 200 /);
  for (const name of ["Origin", "ORIGIN"])
    expect(await publish(`${name}: ${app}`)).toMatch(
      /\r\naccess-control-allow-origin: https:\/\/app\.example\r\n/i,
    );
  expect(await publish(`Origin: ${stranger}`)).not.toMatch(/access-control/i);
  expect(server.deliveries.length).toBe(5);
});
