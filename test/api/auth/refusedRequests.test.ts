import { expect, test } from "vitest";
import { RefusedRequests } from "../../../src/api/auth/refusedRequests.ts";
import { createAccessCounters } from "../../../src/api/auth/accessCounters.ts";
import { routes } from "../../../src/operations/routes.ts";
import { testTime, createTestServer, operatorPassword, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen, parseReply, request, send } from "../wire.ts";

const most = 5;
const from = (address: string) => ({ "x-forwarded-for": address });
const tooMany =
  "requests: more than 5 from this address in this second were refused or had no valid token; " +
  "retry in 1 s, or with a valid token";

/** Creates a server that allows 5 refused requests of an address per second. */
async function strict(trustProxy = false): Promise<TestServer> {
  const clock = { now: testTime };
  const server = await createTestServer({
    trustProxy,
    counted: createAccessCounters(() => clock.now, undefined, most),
  });
  return { ...server, clock };
}

/** Sends 5 requests that are refused for their own reason. Further ones are refused as too many. */
async function useUp({ ask }: TestServer, headers: Record<string, string> = {}): Promise<void> {
  for (let count = 0; count < most; count++)
    expect((await ask("GET", "/", { token: null, headers })).status).toBe(404);
  expect(await ask("GET", "/", { token: null, headers })).toMatchObject({
    status: 429,
    headers: { "retry-after": "1" },
    body: { error: tooMany },
  });
}

test.each([
  { of: "an unknown path", method: "GET", path: "/nothing", status: 404 },
  { of: "an unknown path with a token", method: "GET", path: "/nothing", status: 404, token },
  { of: "another method", method: "PUT", path: "/v2/queues", status: 405 },
  { of: "no token", method: "GET", path: "/v2/queues", status: 401 },
  { of: "a wrong token", method: "POST", path: "/v2/publish/https://e.example", status: 401, token: "wrong" },
  { of: "an unknown source", method: "POST", path: "/v2/in/unknown", status: 404 },
  { of: "an unknown webhook", method: "POST", path: "/v2/workflows/hooks/acc_1/wfr_1/e", status: 404 },
  {
    of: "a wrong password",
    method: "GET",
    path: "/v2/svc/users",
    status: 401,
    headers: { authorization: "Basic YTpi" },
  },
  { of: "a request that needs no credentials", method: "GET", path: "/v2/svc/ipv4", status: 200 },
])(
  "an address gets the usual answer up to its limit per second, then 429: $of",
  async ({ method, path, status, ...more }) => {
    const server = await strict();
    const given = { token: null, ...more };
    for (let count = 0; count < most; count++)
      expect((await server.ask(method, path, given)).status).toBe(status);
    expect(await server.ask(method, path, given)).toMatchObject({
      status: 429,
      headers: { "retry-after": "1" },
    });
    server.clock.now += 1_000;
    expect((await server.ask(method, path, given)).status).toBe(status);
  },
);

test("requests with valid credentials of the same address are still answered", async () => {
  const server = await strict();
  const { ask } = server;
  const made = await ask("POST", "/v2/sources", {
    body: JSON.stringify({ destination: "https://e.example" }),
  });
  const { pathname } = new URL(made.body.url);
  await useUp(server);
  const basic = (user: string, password: string) => ({
    authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
  });
  for (let count = 0; count < 3 * most; count++) {
    expect((await ask("POST", "/v2/publish/https://e.example")).status).toBe(200);
    expect((await ask("GET", `/v2/queues?svc_token=${token}`, { token: null })).status).toBe(200);
    expect((await ask("POST", pathname, { token: null })).status).toBe(200);
    expect((await ask("GET", "/v2/svc/users", { token: null, headers: basic("acc_1", "pass") })).status).toBe(
      200,
    );
    expect(
      (await ask("GET", "/v2/admin/accounts", { token: null, headers: basic("operator", operatorPassword) }))
        .status,
    ).toBe(200);
    // The account's own rules refuse this request, so it is not counted here.
    expect((await ask("GET", "/v2/messages/msg_none")).status).toBe(404);
  }
});

test("health reports are neither counted nor limited", async () => {
  const server = await strict();
  const paths = routes
    .filter(({ tag, access }) => tag === "Health" && access === "open")
    .map(({ path }) => path);
  expect(paths.length).toBeGreaterThan(2);
  for (const path of paths)
    for (let count = 0; count < 2 * most; count++)
      expect((await server.ask("GET", path, { token: null })).status).toBe(200);
  await useUp(server);
  for (const path of paths) expect((await server.ask("GET", path, { token: null })).status).toBe(200);
});

test("each address that a trusted proxy names has its own count; an IPv6 network has one count", async () => {
  const server = await strict(true);
  await useUp(server, from("192.0.2.1"));
  await useUp(server, from("2001:db8:0:1::1"));
  const status = async (address: string) =>
    (await server.ask("GET", "/", { token: null, headers: from(address) })).status;
  expect(await status("192.0.2.2")).toBe(404);
  expect(await status("2001:db8:0:1::2")).toBe(429);
  expect(await status("2001:db8:0:2::2")).toBe(404);
});

test("requests with a token are answered between excess requests on the same connection", async () => {
  const server = await strict();
  const port = await listen(server);
  const nothing = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const pause = `POST /v2/queues/q/pause HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n`;
  const received = await send(
    port,
    `${nothing.repeat(7)}${pause}\r\n${nothing}${pause}Connection: close\r\n\r\n`,
  );
  const statuses = [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
  expect(statuses).toEqual([404, 404, 404, 404, 404, 429, 429, 200, 429, 200]);
});

/** The framework always answers requests from a proxy. */
test.each(["/", "/v2/queues", "/v2/svc/users", "/V2/Queues/?token=x", "/v2/publish/https://e.example"])(
  "an early refusal is the same as that of the framework: %s",
  async (path) => {
    const replies = [];
    for (const trustProxy of [false, true]) {
      const server = await strict(trustProxy);
      await useUp(server);
      const port = await listen(server);
      for (const method of ["GET", "HEAD", "PUT", "POST"])
        replies.push(
          parseReply(
            await send(
              port,
              request(`${method} ${path} HTTP/1.1`, ["X-Request-Id: one"], method === "POST" ? "body" : ""),
            ),
          ),
        );
      expect(server.lines.at(-1)).toMatchObject({ method: "POST", status: 429, account: null });
    }
    const shown = replies.map(({ status, head, body }) => ({
      status,
      body,
      head: head.toLowerCase().split("\r\n").toSorted(),
    }));
    const same = shown.map((one) => ({ ...one, head: one.head.filter((line) => !line.startsWith("date:")) }));
    expect(same.slice(0, 4)).toEqual(same.slice(4));
    expect(shown.map(({ status }) => status)).toEqual(Array(8).fill(429));
  },
);

test("at most 10,000 addresses per second have their own count; further ones share one", () => {
  const clock = { now: testTime };
  const refused = new RefusedRequests(() => clock.now, 2);
  const codes = (address: string, times: number) =>
    Array.from({ length: times }, () => refused.count(address)?.code ?? null);
  for (let place = 0; place < 10_000; place++) codes(`10.0.${Math.floor(place / 256)}.${place % 256}`, 1);
  expect(codes("10.0.0.0", 2)).toEqual([null, "too-many-failures"]);
  expect(["192.0.2.1", "192.0.2.2", "192.0.2.3"].flatMap((one) => codes(one, 1))).toEqual([
    null,
    null,
    "too-many-failures",
  ]);
  clock.now += 1_000;
  expect(codes("192.0.2.3", 3)).toEqual([null, null, "too-many-failures"]);
});
