import { createHmac } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { readBody, httpDestination, start } from "../../../delivery/http/destination.ts";
import type { TestServer } from "../../testServer.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { listen, parseReply, request, send } from "../../wire.ts";

const destination = "https://shop.example/hook";
const github = { scheme: "github", secret: "gh-secret" };
const stripe = { scheme: "stripe", secret: "whsec_abc" };

type Made = { id: string; path: string; secret: string };

async function make(home: TestServer, fields: object = {}): Promise<Made> {
  const reply = await home.ask("POST", "/v2/sources", { body: JSON.stringify({ destination, ...fields }) });
  const { sourceId: id, url } = reply.body as { sourceId: string; url: string };
  const path = new URL(url).pathname;
  return { id, path, secret: path.slice("/v2/in/".length) };
}

const mac = (secret: string, ...parts: (string | Buffer)[]): string => {
  const hmac = createHmac("sha256", secret);
  for (const part of parts) hmac.update(part);
  return hmac.digest("hex");
};

const signed = (body: string | Buffer, event = "evt-1"): string[] => [
  `X-GitHub-Delivery: ${event}`,
  `X-Hub-Signature-256: sha256=${mac("gh-secret", body)}`,
];

/** A POST as a sender makes it, of text or of bytes. */
async function post(port: number, path: string, { headers = [], body = "" }: { headers?: string[]; body?: string | Buffer }) {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  const head = [`POST ${path} HTTP/1.1`, "Host: queue.example", "Connection: close", `Content-Length: ${bytes.length}`, ...headers, "", ""];
  return parseReply(await send(port, Buffer.concat([Buffer.from(head.join("\r\n")), bytes])));
}

const rejectionsOf = async (home: TestServer, { id }: Made) =>
  (await home.ask("GET", `/v2/sources/${id}/rejections`)).body.rejections as Record<string, unknown>[];

const rejectedOf = async (home: TestServer, { id }: Made): Promise<number> =>
  (await home.ask("GET", `/v2/sources/${id}`)).body.rejected as number;

describe("over the wire, to a real destination", () => {
  // No UTF-8, and bytes that whoever parses a body would change.
  const body = Buffer.concat([Buffer.from('{ "b":1,\r\n"a":"\\u00e9",  "id":"evt_7" }'), Buffer.from([0xff, 0, 13, 10])]);

  async function arrive(verification: object, headers: string[], path = "") {
    const home = await createTestServer();
    const received: { request: IncomingMessage; body: Buffer }[] = [];
    const destinationPort = await httpDestination((incoming, response) => {
      void readBody(incoming).then((bytes) => {
        received.push({ request: incoming, body: bytes });
        response.end("ok");
      });
    });
    const made = await make(home, { destination: `http://127.0.0.1:${destinationPort}/in`, verification });
    const reply = await post(await listen(home), made.path + path, { headers, body });
    expect(reply).toMatchObject({ status: 200, body: expect.stringMatching(/^\{"messageId":"msg_/) });
    const delivery = home.delivery();
    await home.settle(delivery, await start()(delivery));
    const [arrived] = received;
    if (!arrived) throw new Error("nothing arrived");
    expect(arrived.body).toEqual(body);
    expect(JSON.stringify([arrived.request.url, arrived.request.rawHeaders])).not.toContain(made.secret);
    return arrived.request;
  }

  test("a call that GitHub signed arrives byte for byte, and still verifies", async () => {
    const { headers, url } = await arrive(
      github,
      [...signed(body), "X-GitHub-Event: push", "Content-Type: application/json"],
      "?svc-delay=1h",
    );
    expect(url).toBe("/in");
    expect(headers["x-hub-signature-256"]).toBe(`sha256=${mac("gh-secret", body)}`);
    expect(headers).toMatchObject({ "x-github-event": "push", "x-github-delivery": "evt-1", "content-type": "application/json" });
  });

  test("a call that Stripe signed arrives byte for byte, and still verifies", async () => {
    const time = String(testTime / 1000);
    const { headers } = await arrive(stripe, [`Stripe-Signature: t=${time},v1=${mac("whsec_abc", `${time}.`, body)}`]);
    const [, seenTime = "", seen] = /^t=(\d+),v1=([0-9a-f]+)$/.exec(String(headers["stripe-signature"])) ?? [];
    expect(seen).toBe(mac("whsec_abc", `${seenTime}.`, body));
  });

  test("a body in chunks is verified and published whole", async () => {
    const home = await createTestServer();
    const { path } = await make(home, { verification: github });
    const text = "x".repeat(100_000);
    const chunks = [text.slice(0, 1), text.slice(1, 70_000), text.slice(70_000), ""].map(
      (one) => `${one.length.toString(16)}\r\n${one}\r\n`,
    );
    const head = [`POST ${path} HTTP/1.1`, "Host: x", "Connection: close", "Transfer-Encoding: chunked", ...signed(text), "", ""];
    expect(parseReply(await send(await listen(home), head.join("\r\n") + chunks.join("")))).toMatchObject({ status: 200 });
    expect(Buffer.from(home.delivery().message.body).toString()).toBe(text);
  });

  test("a body of 9 MiB is refused", async () => {
    const home = await createTestServer();
    const { path } = await make(home);
    expect(await post(await listen(home), path, { body: Buffer.alloc(9 * 2 ** 20) })).toMatchObject({ status: 413 });
    expect(home.deliveries).toEqual([]);
  });

  test.each([
    ["a signature and another", [...signed("{}"), `X-Hub-Signature-256: sha256=${"0".repeat(64)}`]],
    ["another signature and one", [`X-Hub-Signature-256: sha256=${"0".repeat(64)}`, ...signed("{}")]],
    ["two event ids", [...signed("{}"), "X-GitHub-Delivery: evt-2"]],
  ])("%s are refused", async (_, headers) => {
    const home = await createTestServer();
    const made = await make(home, { verification: github });
    expect(await post(await listen(home), made.path, { headers, body: "{}" })).toMatchObject({ status: 401 });
    expect(await rejectionsOf(home, made)).toMatchObject([{ reason: expect.stringContaining("came more than once") }]);
    expect(home.deliveries).toEqual([]);
  });

  test("headers that come twice go along twice, and one content type", async () => {
    const home = await createTestServer();
    const { path } = await make(home);
    await post(await listen(home), path, { headers: ["X-A: 1", "X-A: 2", "Content-Type: a/b", "Content-Type: c/d"], body: "{}" });
    expect(home.delivery().message.headers).toEqual([
      ["Content-Type", "a/b"],
      ["X-A", "1"],
      ["X-A", "2"],
    ]);
  });
});

describe("calls that are rejected", () => {
  test("are kept with reason, headers and body, and without secrets", async () => {
    const home = await createTestServer();
    const made = await make(home, { verification: github });
    const headers = {
      authorization: "Bearer t0ken",
      cookie: "c00kie",
      "x-hub-signature-256": `sha256=${"0".repeat(64)}`,
      referer: made.path,
    };
    const body = `${"é".repeat(10_000)} ${made.path}`;
    const reply = await home.ask("POST", made.path, { headers, body, token: null });
    expect(reply.status).toBe(401);
    expect(reply.body).toEqual({ error: "call: not accepted; the owner of this URL can see why" });
    const [rejection] = await rejectionsOf(home, made);
    expect(rejection).toMatchObject({
      time: testTime,
      method: "POST",
      callerIP: "127.0.0.1",
      bodySize: Buffer.byteLength(body),
      body: "é".repeat(8192),
      reason: expect.stringContaining("X-Hub-Signature-256: the signature does not match"),
      header: {
        "X-Hub-Signature-256": [`sha256=${"0".repeat(64)}`],
        Authorization: ["(not shown)"],
        Cookie: ["(not shown)"],
        Referer: ["(not shown)"],
      },
    });
    await home.ask("POST", made.path, { body: `{"hook":"https://queue.example${made.path}"}`, token: null });
    const all = await rejectionsOf(home, made);
    expect(all[0]).toMatchObject({ body: `{"hook":"https://queue.example/v2/in/${"*".repeat(32)}"}` });
    for (const text of [made.secret, "t0ken", "c00kie", "gh-secret"]) expect(JSON.stringify(all)).not.toContain(text);
    const bytes = Buffer.from([0xff, 0xfe]);
    await home.ask("POST", made.path, { body: bytes, token: null });
    expect((await rejectionsOf(home, made))[0]).toMatchObject({ bodyBase64: bytes.toString("base64") });
    expect(home.deliveries).toEqual([]);
  });

  test("a call whose headers are too large together with those of the source is refused, and kept with the reason", async () => {
    const home = await createTestServer();
    const made = await make(home, { settings: { "Svc-Forward-X-Own": "o".repeat(40_000) } });
    const reply = await home.ask("POST", made.path, { headers: { "x-theirs": "t".repeat(30_000) }, body: "x", token: null });
    expect(reply).toMatchObject({ status: 400, body: { error: "call: it cannot be published; the owner of this URL can see why" } });
    const [rejection] = await rejectionsOf(home, made);
    expect(rejection).toMatchObject({ reason: expect.stringContaining("headers: 70"), header: { "X-Theirs": ["t".repeat(1024)] } });
    expect(home.deliveries).toEqual([]);
  });

  test("a body that is cut within a character is text all the same", async () => {
    const home = await createTestServer();
    const made = await make(home, { verification: github });
    await home.ask("POST", made.path, { body: `a${"é".repeat(10_000)}`, token: null });
    expect((await rejectionsOf(home, made))[0]).toMatchObject({ body: `a${"é".repeat(8191)}` });
  });

  test("10,000 of them cost twenty rows, and are counted with the next one that is kept", { tags: "long" }, async () => {
    let commands = 0;
    const home = await createTestServer({
      wrap: (store) => ({
        ...store,
        execute: (name, input, haste) => {
          if (name === "keepRejection") commands++;
          return store.execute(name, input, haste);
        },
      }),
    });
    const made = await make(home, { verification: github });
    const bad = () => home.api.inject({ method: "POST", url: made.path, payload: "bad" });
    for (let round = 0; round < 100; round++) {
      const replies = await Promise.all(Array.from({ length: 100 }, bad));
      expect(replies.every(({ statusCode }) => statusCode === 401)).toBe(true);
    }
    expect(await rejectionsOf(home, made)).toHaveLength(20);
    expect(await rejectedOf(home, made)).toBe(10_000);
    expect(commands).toBeLessThanOrEqual(200);
    home.clock.now += 1_000;
    await bad();
    const [newest, ...others] = await rejectionsOf(home, made);
    expect(newest).toMatchObject({ notKept: 9_980, time: home.clock.now });
    expect(others).toHaveLength(20);
    expect(await rejectedOf(home, made)).toBe(10_001);
    for (let call = 0; call < 150; call++) {
      home.clock.now += 1_000;
      await bad();
    }
    expect(await rejectionsOf(home, made)).toHaveLength(100);
  });
});

describe("a URL", () => {
  const body = "{}";
  const headers = Object.fromEntries(signed(body).map((line) => line.split(": ") as [string, string]));
  const callAt = (home: TestServer, path: string) => home.ask("POST", path, { headers, body, token: null });

  test("that nobody was given is answered like any path with nothing at it", async () => {
    const home = await createTestServer();
    const { secret, path } = await make(home);
    const missing = [
      `${path}x`,
      "/v2/in/x",
      `/v2/in/${"a".repeat(32)}`,
      `/v2/in/${secret.toLowerCase()}`,
      `/v2/in/${"x".repeat(10_000)}`,
      "/v2/in/%00",
    ];
    for (const url of missing)
      expect(await callAt(home, url)).toMatchObject({ status: 404, body: { error: "path: there is nothing at this path" } });
    for (const url of ["/v2/in", "/v2/in/", `${path}/more`]) expect(await callAt(home, url)).toMatchObject({ status: 404 });
    for (const method of ["PUT", "PATCH", "DELETE"]) expect((await home.ask(method, path, { token: null })).status).toBe(405);
    expect(home.deliveries).toEqual([]);
  });

  test("ends when its source is deleted, with all that was kept", async () => {
    const home = await createTestServer();
    const made = await make(home, { verification: github });
    await home.ask("POST", made.path, { body: "bad", token: null });
    expect(await home.ask("DELETE", `/v2/sources/${made.id}`)).toMatchObject({ status: 200, body: { deleted: 1 } });
    expect((await callAt(home, made.path)).status).toBe(404);
    for (const [method, rest] of [
      ["GET", ""],
      ["PATCH", ""],
      ["DELETE", ""],
      ["POST", "/rotate"],
      ["GET", "/rejections"],
    ] as const)
      expect((await home.ask(method, `/v2/sources/${made.id}${rest}`, method === "PATCH" ? { body: "{}" } : {})).status).toBe(404);
    expect(await home.store.read.listResources("rejections", { account: "acc_1", limit: 10 })).toEqual([]);
  });

  test("is answered with 503 while its source is paused", async () => {
    const home = await createTestServer();
    const made = await make(home, { verification: github, paused: true });
    expect(await callAt(home, made.path)).toMatchObject({ status: 503, headers: { "retry-after": "60" } });
    expect(await rejectionsOf(home, made)).toEqual([]);
    await home.ask("PATCH", `/v2/sources/${made.id}`, { body: '{"paused":false}' });
    expect((await callAt(home, made.path)).status).toBe(200);
    expect(home.delivery().message.url).toBe(destination);
  });

  test("is another one after a rotation, and the old one ends at once", async () => {
    const home = await createTestServer();
    const made = await make(home, { verification: github });
    const rotated = await home.ask("POST", `/v2/sources/${made.id}/rotate`);
    const path = new URL(rotated.body.url as string).pathname;
    expect(path).not.toBe(made.path);
    expect((await callAt(home, made.path)).status).toBe(404);
    expect((await callAt(home, path)).status).toBe(200);
    expect((await home.ask("GET", `/v2/sources/${made.id}`)).body).not.toHaveProperty("url");
  });

  test("can do nothing but publish: its secret is no token", async () => {
    const home = await createTestServer();
    const { secret } = await make(home);
    for (const [method, url] of [
      ["GET", "/v2/sources"],
      ["GET", "/v2/keys"],
      ["POST", `/v2/publish/${destination}`],
    ] as const) {
      expect((await home.ask(method, url, { token: secret })).status).toBe(401);
      expect((await home.ask(method, `${url}?svc_token=${secret}`, { token: null })).status).toBe(401);
    }
  });

  test("is in no line of the log, however it is written", async () => {
    const home = await createTestServer();
    const port = await listen(home);
    const { path, secret } = await make(home);
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
    expect(home.lines).toHaveLength(1 + 3 * paths.length);
    expect(JSON.stringify(home.lines)).not.toContain(secret.slice(1));
    expect(home.lines[1]).toMatchObject({ path: "/v2/in/…", account: "acc_1", status: 200 });
  });

  test("that is unknown takes no room for its body, which is not even read", async () => {
    const home = await createTestServer({ requestBodyBytes: 1000 });
    const port = await listen(home);
    const { path } = await make(home);
    const announced = async (target: string): Promise<string> => {
      const socket = connect(port, "127.0.0.1");
      onTestFinished(() => void socket.destroy());
      socket.write(`POST ${target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 900\r\n\r\n`);
      const [answer] = (await once(socket, "data")) as [Buffer];
      return answer.toString();
    };
    for (let number = 0; number < 3; number++) expect(await announced("/v2/in/unknown")).toMatch(/^HTTP\/1.1 404 /);
    const post500 = () => home.ask("POST", path, { body: "x".repeat(500), token: null });
    expect((await post500()).status).toBe(200);
    // What is known takes its room before it has arrived.
    expect(await announced(path)).toMatch(/^HTTP\/1.1 100 /);
    expect((await post500()).status).toBe(503);
  });
});

test("a tenant sees and changes nothing of another", async () => {
  const home = await createTestServer();
  const made = await make(home, { verification: github, name: "mine" });
  await home.ask("POST", made.path, { body: "bad", token: null });
  const as = (method: string, rest: string, body?: string) =>
    home.ask(method, `/v2/sources${rest}`, { token: otherToken, ...(body === undefined ? {} : { body }) });
  expect((await as("GET", "")).body).toEqual({ sources: [] });
  for (const [method, rest, body] of [
    ["GET", ""],
    ["PATCH", "", '{"name":"theirs"}'],
    ["DELETE", ""],
    ["POST", "/rotate"],
    ["GET", "/rejections"],
  ] as const)
    expect((await as(method, `/${made.id}${rest}`, body)).status).toBe(404);
  expect((await home.ask("GET", `/v2/sources/${made.id}`)).body).toMatchObject({ name: "mine", rejected: 1 });
  // Groups of another account are none.
  await home.ask("POST", "/v2/topics/ours/endpoints", { body: '{"endpoints":[{"url":"https://one.example/"}]}' });
  expect((await as("POST", "", '{"destination":"ours"}')).status).toBe(404);
  // What is published belongs to the source's account.
  const headers = Object.fromEntries(signed("{}").map((line) => line.split(": ") as [string, string]));
  await home.ask("POST", made.path, { headers, body: "{}", token: otherToken });
  expect(home.delivery().message.account).toBe("acc_1");
});
