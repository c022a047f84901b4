import { createHmac } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { readBody, httpDestination, start } from "../../engine/delivery/http/destination.ts";
import type { TestServer } from "../../api/testServer.ts";
import { testTime, createTestServer, otherToken } from "../../api/testServer.ts";
import { listen, parseReply, request, send } from "../../api/wire.ts";
import { destination, github, make, rejectionsOf } from "./sourceRequests.ts";

const stripe = { scheme: "stripe", secret: "whsec_abc" };

const mac = (secret: string, ...parts: (string | Buffer)[]): string => {
  const hmac = createHmac("sha256", secret);
  for (const part of parts) hmac.update(part);
  return hmac.digest("hex");
};

const signed = (body: string | Buffer, event = "evt-1"): string[] => [
  `X-GitHub-Delivery: ${event}`,
  `X-Hub-Signature-256: sha256=${mac("gh-secret", body)}`,
];

/** Sends a POST like a sender, with text or bytes. */
async function post(
  port: number,
  path: string,
  { headers = [], body = "" }: { headers?: string[]; body?: string | Buffer },
) {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  const head = [
    `POST ${path} HTTP/1.1`,
    "Host: queue.example",
    "Connection: close",
    `Content-Length: ${bytes.length}`,
    ...headers,
    "",
    "",
  ];
  return parseReply(await send(port, Buffer.concat([Buffer.from(head.join("\r\n")), bytes])));
}

describe("over the wire, to a real destination", () => {
  // Not UTF-8, and with bytes that would change if the server parsed and rewrote the body.
  const body = Buffer.concat([
    Buffer.from('{ "b":1,\r\n"a":"\\u00e9",  "id":"evt_7" }'),
    Buffer.from([0xff, 0, 13, 10]),
  ]);

  async function arrive(verification: object, headers: string[], path = "") {
    const server = await createTestServer();
    const received: { request: IncomingMessage; body: Buffer }[] = [];
    const destinationPort = await httpDestination((incoming, response) => {
      void readBody(incoming).then((bytes) => {
        received.push({ request: incoming, body: bytes });
        response.end("ok");
      });
    });
    const made = await make(server, { destination: `http://127.0.0.1:${destinationPort}/in`, verification });
    const reply = await post(await listen(server), made.path + path, { headers, body });
    expect(reply).toMatchObject({ status: 200, body: expect.stringMatching(/^\{"messageId":"msg_/) });
    const delivery = server.delivery();
    await server.settle(delivery, await start()(delivery));
    const [arrived] = received;
    if (!arrived) throw new Error("nothing arrived");
    expect(arrived.body).toEqual(body);
    expect(JSON.stringify([arrived.request.url, arrived.request.rawHeaders])).not.toContain(made.secret);
    return arrived.request;
  }

  test("a call signed by GitHub arrives byte for byte and still verifies", async () => {
    const { headers, url } = await arrive(
      github,
      [...signed(body), "X-GitHub-Event: push", "Content-Type: application/json"],
      "?svc-delay=1h",
    );
    expect(url).toBe("/in");
    expect(headers["x-hub-signature-256"]).toBe(`sha256=${mac("gh-secret", body)}`);
    expect(headers).toMatchObject({
      "x-github-event": "push",
      "x-github-delivery": "evt-1",
      "content-type": "application/json",
    });
  });

  test("a call signed by Stripe arrives byte for byte and still verifies", async () => {
    const time = String(testTime / 1000);
    const { headers } = await arrive(stripe, [
      `Stripe-Signature: t=${time},v1=${mac("whsec_abc", `${time}.`, body)}`,
    ]);
    const [, seenTime = "", seen] =
      /^t=(\d+),v1=([0-9a-f]+)$/.exec(String(headers["stripe-signature"])) ?? [];
    expect(seen).toBe(mac("whsec_abc", `${seenTime}.`, body));
  });

  test("a chunked body is verified and published as a whole", async () => {
    const server = await createTestServer();
    const { path } = await make(server, { verification: github });
    const text = "x".repeat(100_000);
    const chunks = [text.slice(0, 1), text.slice(1, 70_000), text.slice(70_000), ""].map(
      (one) => `${one.length.toString(16)}\r\n${one}\r\n`,
    );
    const head = [
      `POST ${path} HTTP/1.1`,
      "Host: x",
      "Connection: close",
      "Transfer-Encoding: chunked",
      ...signed(text),
      "",
      "",
    ];
    expect(parseReply(await send(await listen(server), head.join("\r\n") + chunks.join("")))).toMatchObject({
      status: 200,
    });
    expect(Buffer.from(server.delivery().message.body).toString()).toBe(text);
  });

  test("a body of 11 MiB is refused", async () => {
    const server = await createTestServer();
    const { path } = await make(server);
    expect(await post(await listen(server), path, { body: Buffer.alloc(11 * 2 ** 20) })).toMatchObject({
      status: 413,
    });
    expect(server.deliveries).toEqual([]);
  });

  test.each([
    ["a signature and another", [...signed("{}"), `X-Hub-Signature-256: sha256=${"0".repeat(64)}`]],
    ["another signature and one", [`X-Hub-Signature-256: sha256=${"0".repeat(64)}`, ...signed("{}")]],
    ["two event ids", [...signed("{}"), "X-GitHub-Delivery: evt-2"]],
  ])("%s are refused", async (_, headers) => {
    const server = await createTestServer();
    const made = await make(server, { verification: github });
    expect(await post(await listen(server), made.path, { headers, body: "{}" })).toMatchObject({
      status: 401,
    });
    expect(await rejectionsOf(server, made)).toMatchObject([
      { reason: expect.stringContaining("sent more than once") },
    ]);
    expect(server.deliveries).toEqual([]);
  });

  test("a repeated header is delivered repeatedly, but only one content type", async () => {
    const server = await createTestServer();
    const { path } = await make(server);
    await post(await listen(server), path, {
      headers: ["X-A: 1", "X-A: 2", "Content-Type: a/b", "Content-Type: c/d"],
      body: "{}",
    });
    expect(server.delivery().message.headers).toEqual([
      ["Content-Type", "a/b"],
      ["X-A", "1"],
      ["X-A", "2"],
    ]);
  });
});

describe("a URL", () => {
  const body = "{}";
  const headers = Object.fromEntries(signed(body).map((line) => line.split(": ") as [string, string]));
  const callAt = (server: TestServer, path: string) =>
    server.ask("POST", path, { headers, body, token: null });

  test("that does not exist has the response of any unknown path", async () => {
    const server = await createTestServer();
    const { secret, path } = await make(server);
    const missing = [
      `${path}x`,
      "/v2/in/x",
      `/v2/in/${"a".repeat(32)}`,
      `/v2/in/${secret.toLowerCase()}`,
      `/v2/in/${"x".repeat(10_000)}`,
      "/v2/in/%00",
    ];
    for (const url of missing)
      expect(await callAt(server, url)).toMatchObject({
        status: 404,
        body: { error: "path: does not exist" },
      });
    for (const url of ["/v2/in", "/v2/in/", `${path}/more`])
      expect(await callAt(server, url)).toMatchObject({ status: 404 });
    for (const method of ["PUT", "PATCH", "DELETE"])
      expect((await server.ask(method, path, { token: null })).status).toBe(405);
    expect(server.deliveries).toEqual([]);
  });

  test("is invalid once its source is deleted, and its rejected calls are deleted too", async () => {
    const server = await createTestServer();
    const made = await make(server, { verification: github });
    await server.ask("POST", made.path, { body: "bad", token: null });
    expect(await server.ask("DELETE", `/v2/sources/${made.sourceId}`)).toMatchObject({
      status: 200,
      body: { deleted: 1 },
    });
    expect((await callAt(server, made.path)).status).toBe(404);
    for (const [method, rest] of [
      ["GET", ""],
      ["PATCH", ""],
      ["DELETE", ""],
      ["POST", "/rotate"],
      ["GET", "/rejections"],
    ] as const)
      expect(
        (
          await server.ask(
            method,
            `/v2/sources/${made.sourceId}${rest}`,
            method === "PATCH" ? { body: "{}" } : {},
          )
        ).status,
      ).toBe(404);
    expect(await server.store.read.listResources("rejections", { account: "acc_1", limit: 10 })).toEqual([]);
  });

  test("has status 503 while its source is paused", async () => {
    const server = await createTestServer();
    const made = await make(server, { verification: github, paused: true });
    const answer = await callAt(server, made.path);
    expect(answer).toMatchObject({ status: 503, headers: { "retry-after": "60" } });
    expect(answer.body).toEqual({
      error: "call: not accepted at the moment; retry later",
      code: "unavailable",
      docs: "/docs/errors#unavailable",
    });
    expect(await rejectionsOf(server, made)).toEqual([]);
    await server.ask("PATCH", `/v2/sources/${made.sourceId}`, { body: '{"paused":false}' });
    expect((await callAt(server, made.path)).status).toBe(200);
    expect(server.delivery().message.url).toBe(destination);
  });

  test("is replaced by a rotation, and the old URL is invalid at once", async () => {
    const server = await createTestServer();
    const made = await make(server, { verification: github });
    const rotated = await server.ask("POST", `/v2/sources/${made.sourceId}/rotate`);
    const path = new URL(rotated.body.url as string).pathname;
    expect(path).not.toBe(made.path);
    expect((await callAt(server, made.path)).status).toBe(404);
    expect((await callAt(server, path)).status).toBe(200);
    expect((await server.ask("GET", `/v2/sources/${made.sourceId}`)).body).not.toHaveProperty("url");
  });

  test("can only publish, because its secret is not a token", async () => {
    const server = await createTestServer();
    const { secret } = await make(server);
    for (const [method, url] of [
      ["GET", "/v2/sources"],
      ["GET", "/v2/keys"],
      ["POST", "/v2/publish/https://shop.example/hook"],
    ] as const) {
      expect((await server.ask(method, url, { token: secret })).status).toBe(401);
      expect((await server.ask(method, `${url}?svc_token=${secret}`, { token: null })).status).toBe(401);
    }
  });

  test("does not appear in the request log, however it is written", async () => {
    const server = await createTestServer();
    const port = await listen(server);
    const { path, secret } = await make(server);
    const paths = [
      path,
      `${path}/`,
      `${path}?a=${secret}`,
      `/v2/%69n/${secret}`,
      `/V2/IN/${secret}`,
      `//v2/in/${secret}`,
      `/base/v2/in//${secret}`,
    ];
    paths.push(
      `${path}/more`,
      `${path}%zz`,
      `/v2/%69n/${secret}%zz`,
      `http://queue.example${path}`,
      `/v2/in/%${secret.charCodeAt(0).toString(16)}${secret.slice(1)}`,
    );
    for (const method of ["POST", "GET", "PUT"])
      for (const target of paths) {
        const received = await send(port, request(`${method} ${target} HTTP/1.1`));
        expect(parseReply(received).status).toBeGreaterThan(0);
        expect(received).not.toContain(secret);
      }
    expect(server.lines).toHaveLength(1 + 3 * paths.length);
    expect(JSON.stringify(server.lines)).not.toContain(secret.slice(1));
    expect(server.lines[1]).toMatchObject({ path: "/v2/in/…", account: "acc_1", status: 200 });
  });

  test("that is unknown reserves no memory for its body, which is not read", async () => {
    const server = await createTestServer({ requestBodyBytes: 1000 });
    const port = await listen(server);
    const { path } = await make(server);
    const announced = async (target: string): Promise<string> => {
      const socket = connect(port, "127.0.0.1");
      onTestFinished(() => void socket.destroy());
      socket.write(
        `POST ${target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 900\r\n\r\n`,
      );
      const [answer] = (await once(socket, "data")) as [Buffer];
      return answer.toString();
    };
    for (let number = 0; number < 3; number++)
      expect(await announced("/v2/in/unknown")).toMatch(/^HTTP\/1.1 404 /);
    const post500 = () => server.ask("POST", path, { body: "x".repeat(500), token: null });
    expect((await post500()).status).toBe(200);
    // A call to a known URL reserves the memory for its body before the body has arrived.
    expect(await announced(path)).toMatch(/^HTTP\/1.1 100 /);
    expect((await post500()).status).toBe(503);
  });
});

test("an account cannot see or change a source of another account", async () => {
  const server = await createTestServer();
  const made = await make(server, { verification: github, name: "mine" });
  await server.ask("POST", made.path, { body: "bad", token: null });
  const as = (method: string, rest: string, body?: string) =>
    server.ask(method, `/v2/sources${rest}`, { token: otherToken, ...(body === undefined ? {} : { body }) });
  expect((await as("GET", "")).body).toEqual({ sources: [] });
  for (const [method, rest, body] of [
    ["GET", ""],
    ["PATCH", "", '{"name":"theirs"}'],
    ["DELETE", ""],
    ["POST", "/rotate"],
    ["GET", "/rejections"],
  ] as const)
    expect((await as(method, `/${made.sourceId}${rest}`, body)).status).toBe(404);
  expect((await server.ask("GET", `/v2/sources/${made.sourceId}`)).body).toMatchObject({
    name: "mine",
    rejected: 1,
  });
  // A URL group of another account counts as unknown.
  await server.ask("POST", "/v2/topics/ours/endpoints", {
    body: '{"endpoints":[{"url":"https://one.example/"}]}',
  });
  expect((await as("POST", "", '{"destination":"ours"}')).status).toBe(404);
  // A published message belongs to the account of the source.
  const headers = Object.fromEntries(signed("{}").map((line) => line.split(": ") as [string, string]));
  await server.ask("POST", made.path, { headers, body: "{}", token: otherToken });
  expect(server.delivery().message.account).toBe("acc_1");
});
