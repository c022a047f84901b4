import { createHmac } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import type { TestServer } from "../../api/testServer.ts";
import { testTime, createTestServer } from "../../api/testServer.ts";
import {
  call,
  change,
  destination,
  github as verification,
  make,
  rejectionsOf,
  signed,
} from "./sourceRequests.ts";

let server: TestServer;

beforeEach(async () => {
  server = await createTestServer();
});

describe("a call", () => {
  test("is published with the settings of the source, and only its body and headers", async () => {
    const { path, secret } = await make(server, {
      settings: { "Svc-Retries": "7", "Svc-Forward-X-Own": "o", "Svc-Label": "l" },
    });
    const headers = {
      "content-type": "text/x; charset=y",
      "content-encoding": "gzip",
      "x-event": "push",
      "user-agent": "Sender/1",
      "svc-retries": "0",
      "upstash-delay": "1h",
      "svc-forward-x-own": "theirs",
      "svc-callback": "https://evil.example/",
      "svc-method": "DELETE",
      authorization: "Basic abc",
      cookie: "a=b",
      "proxy-authorization": "x",
      "x-forwarded-for": "9.9.9.9",
      referer: `https://queue.example/v2/in/${secret}`,
      "x-original-uri": `/v2/in/%${secret.charCodeAt(0).toString(16)}${secret.slice(1)}`,
    };
    const query = "?svc-delay=1d&upstash-method=PUT&svc_token=x&admin=1&svc-deduplication-id=1";
    const body = Buffer.from([0, 255, 13, 10, 0xe2, 0x82]);
    const reply = await call(server, path + query, { headers, body });
    const { message } = server.delivery();
    expect(reply).toMatchObject({ status: 200, text: JSON.stringify({ messageId: message.id }) });
    expect(message).toMatchObject({
      account: "acc_1",
      url: destination,
      method: "POST",
      retries: 7,
      callback: null,
      labels: ["l"],
      notBefore: testTime,
      deduplication: null,
    });
    expect(Buffer.from(message.body)).toEqual(body);
    expect(message.headers.filter(([name]) => name !== "Accept" && name !== "Accept-Encoding")).toEqual([
      ["Content-Type", "text/x; charset=y"],
      ["Content-Encoding", "gzip"],
      ["X-Event", "push"],
      ["User-Agent", "Sender/1"],
      ["X-Own", "o"],
    ]);
    expect(JSON.stringify([message, reply, server.lines])).not.toContain(secret);
  });

  test("may have a cookie of the console, which is not delivered", async () => {
    const console = await createTestServer({ console: {} });
    const { path } = await make(console);
    expect(
      (await call(console, path, { headers: { cookie: "waypost-session=a.b" }, body: "x" })).status,
    ).toBe(200);
    expect(JSON.stringify(console.delivery().message.headers)).not.toContain("waypost");
  });

  test("is published without its headers if the source has header-forward off", async () => {
    const { path } = await make(server, { settings: { "Upstash-Header-Forward": "false" } });
    await call(server, path, { headers: { "content-type": "text/plain", "x-a": "1" }, body: "x" });
    expect(server.delivery().message).toMatchObject({
      headers: [["Content-Type", "text/plain"]],
      brand: "upstash",
    });
  });

  test("keeps the brand of the source", async () => {
    const { path } = await make(server, { settings: { "Upstash-Retries": "1" } });
    await call(server, path, { headers: { "svc-retries": "2" }, body: "x" });
    expect(server.delivery().message).toMatchObject({ brand: "upstash", retries: 1 });
  });

  test("goes to all endpoints of a group without revealing them to the sender", async () => {
    const endpoints = ["https://one.example/a", "https://two.example/b"].map((url) => ({ url }));
    await server.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const { path } = await make(server, { destination: "shops", verification });
    const reply = await call(server, path, { headers: signed("{}"), body: "{}" });
    const sent = server.deliveries.splice(0);
    expect(sent.map(({ message }) => message.url).toSorted()).toEqual([
      "https://one.example/a",
      "https://two.example/b",
    ]);
    expect(reply.status).toBe(200);
    expect(JSON.parse(reply.text)).toEqual(sent.map(({ message }) => ({ messageId: message.id })));
    expect((await call(server, path, { headers: signed("{}"), body: "{}" })).status).toBe(202);
    expect(server.deliveries).toEqual([]);
  });

  test("uses the settings in the query of a group destination", async () => {
    const endpoints = [{ url: "https://one.example/a" }];
    await server.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const { path } = await make(server, { destination: "shops?svc-retries=5&shop=1" });
    await call(server, path, { body: "x" });
    expect(server.delivery().message).toMatchObject({ url: "https://one.example/a?shop=1", retries: 5 });
  });

  test("has status 503 if its group was deleted, and the owner sees the reason", async () => {
    const endpoints = [{ url: "https://one.example/a" }];
    await server.ask("POST", "/v2/topics/shops/endpoints", { body: JSON.stringify({ endpoints }) });
    const made = await make(server, { destination: "shops" });
    expect((await server.ask("DELETE", "/v2/topics/shops")).status).toBe(200);
    const reply = await call(server, made.path, { body: "x" });
    expect(reply).toMatchObject({ status: 503, headers: { "retry-after": expect.any(String) } });
    expect(reply.text).not.toContain("shops");
    expect(await rejectionsOf(server, made)).toMatchObject([{ reason: expect.stringContaining("shops") }]);
  });

  test("with the same signed event is accepted once by each source", async () => {
    const one = await make(server, { verification });
    const other = await make(server, { verification });
    const first = await call(server, one.path, { headers: signed("{}"), body: "{}" });
    const { message } = server.delivery();
    const again = await call(server, one.path, { headers: signed("{}"), body: "{}" });
    expect(again).toMatchObject({
      status: 202,
      text: JSON.stringify({ messageId: message.id, deduplicated: true }),
    });
    expect(first.text).toBe(JSON.stringify({ messageId: message.id }));
    expect(server.deliveries).toEqual([]);
    expect(
      (await call(server, one.path, { headers: signed("{}", { event: "evt-2" }), body: "{}" })).status,
    ).toBe(202);
    expect((await call(server, one.path, { headers: signed("[]"), body: "[]" })).status).toBe(200);
    expect((await call(server, other.path, { headers: signed("{}"), body: "{}" })).status).toBe(200);
    await change(server, one.sourceId, { deduplicate: false });
    expect((await call(server, one.path, { headers: signed("{}"), body: "{}" })).status).toBe(200);
    server.deliveries.splice(0);
    // A publish request of the owner with the same id is not a duplicate of the event.
    const own = await server.ask("POST", `/v2/publish/${destination}`, {
      headers: { "svc-deduplication-id": "evt-1" },
    });
    expect(own.status).toBe(200);
  });

  test("counts accepted and rejected calls, and has the time of the last one", async () => {
    const one = await make(server, { verification });
    const other = await make(server);
    const read = async ({ sourceId }: { sourceId: string }) =>
      (await server.ask("GET", `/v2/sources/${sourceId}`)).body;
    expect(await read(one)).not.toHaveProperty("lastCallAt");
    await call(server, one.path, { headers: signed("{}", { event: "evt-1" }), body: "{}" });
    await call(server, one.path, { headers: signed("{}", { event: "evt-1" }), body: "{}" });
    expect(await read(one)).toMatchObject({ accepted: 2, rejected: 0, lastCallAt: testTime });
    server.clock.now += 1_000;
    expect((await call(server, one.path, { body: "forged" })).status).toBe(401);
    await call(server, other.path, { body: "x" });
    expect(await read(one)).toMatchObject({ accepted: 2, rejected: 1, lastCallAt: testTime + 1_000 });
    expect(await read(other)).toMatchObject({ accepted: 1, rejected: 0 });
    await change(server, other.sourceId, { paused: true });
    expect((await call(server, other.path, { body: "x" })).status).toBe(503);
    const { sources } = (await server.ask("GET", "/v2/sources")).body;
    expect(sources.map(({ accepted }: { accepted: number }) => accepted).toSorted()).toEqual([1, 2]);
  });

  test("sets the time of the last accepted call, to the minute", async () => {
    const { path, sourceId } = await make(server);
    await call(server, path, { body: "x" });
    server.clock.now += 30_000;
    await call(server, path, { body: "x" });
    expect((await server.ask("GET", `/v2/sources/${sourceId}`)).body.acceptedAt).toBe(testTime);
    server.clock.now += 30_000;
    await call(server, path, { body: "x" });
    expect((await server.ask("GET", `/v2/sources/${sourceId}`)).body.acceptedAt).toBe(testTime + 60_000);
  });

  test("is verified with the URL that the sender called, which a trusted proxy may report", async () => {
    const twilio = { scheme: "twilio", secret: "12345" };
    const body = "MessageSid=SM1&MessageStatus=sent";
    const headersFor = (url: string) => ({
      "content-type": "application/x-www-form-urlencoded",
      host: "queue.example",
      "x-twilio-signature": createHmac("sha1", "12345")
        .update(`${url}MessageSidSM1MessageStatussent`)
        .digest("base64"),
    });
    const plain = await make(server, { verification: twilio });
    expect(
      (
        await call(server, `${plain.path}?a=1`, {
          headers: headersFor(`http://queue.example${plain.path}?a=1`),
          body,
        })
      ).status,
    ).toBe(200);
    const forged = {
      ...headersFor(`https://evil.example${plain.path}`),
      "x-forwarded-proto": "https",
      "x-forwarded-host": "evil.example",
    };
    expect((await call(server, plain.path, { headers: forged, body })).status).toBe(401);
    server = await createTestServer({ trustProxy: true });
    const proxied = await make(server, { verification: twilio });
    const through = {
      ...headersFor(`https://front.example${proxied.path}`),
      "x-forwarded-proto": "https",
      "x-forwarded-host": "front.example",
    };
    expect((await call(server, proxied.path, { headers: through, body })).status).toBe(200);
  });
});

describe("handshakes", () => {
  test("of Slack are answered if they are verified, and publish nothing", async () => {
    const { path } = await make(server, { verification: { scheme: "slack", secret: "sl" } });
    const body = JSON.stringify({ type: "url_verification", challenge: "3eZbrw1a" });
    const time = String(testTime / 1000);
    const signature = `v0=${createHmac("sha256", "sl").update(`v0:${time}:${body}`).digest("hex")}`;
    const headers = {
      "content-type": "application/json",
      "x-slack-request-timestamp": time,
      "x-slack-signature": signature,
    };
    const reply = await call(server, path, { headers, body });
    expect(reply).toMatchObject({
      status: 200,
      text: "3eZbrw1a",
      headers: { "content-type": "text/plain; charset=utf-8" },
    });
    expect(
      (
        await call(server, path, {
          headers: { ...headers, "x-slack-signature": `v0=${"0".repeat(64)}` },
          body,
        })
      ).status,
    ).toBe(401);
    expect(server.deliveries).toEqual([]);
  });

  test("by GET are answered if the scheme has them", async () => {
    const handshake = { kind: "hub", verifyToken: "vt" };
    const made = await make(server, {
      verification: { scheme: "hmac", secret: "s", header: "X-Signature", handshake },
    });
    const query = "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    expect(await call(server, `${made.path}${query}vt`, { method: "GET" })).toMatchObject({
      status: 200,
      text: "1158201444",
    });
    expect((await call(server, `${made.path}${query}wrong`, { method: "GET" })).status).toBe(401);
    expect((await call(server, made.path, { method: "GET" })).status).toBe(401);
    expect(server.deliveries).toEqual([]);
    expect(await rejectionsOf(server, made)).toMatchObject([
      { method: "GET" },
      { reason: expect.stringContaining("hub.verify_token") },
    ]);
  });

  test("by Microsoft are answered with the token, as plain text", async () => {
    const { path } = await make(server, { verification: { scheme: "microsoft", secret: "cs" } });
    const reply = await call(server, `${path}?validationToken=a%3Cb%3E`);
    expect(reply).toMatchObject({
      status: 200,
      text: "a<b>",
      headers: { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" },
    });
  });

  test("a GET publishes nothing, regardless of its content", async () => {
    const open = await make(server);
    expect(await call(server, open.path, { method: "GET" })).toMatchObject({
      status: 200,
      text: '{"ready":true}',
    });
    const twilio = await make(server, { verification: { scheme: "twilio", secret: "12345" } });
    const signature = createHmac("sha1", "12345")
      .update(`http://localhost:80${twilio.path}?MessageSid=1`)
      .digest("base64");
    const reply = await call(server, `${twilio.path}?MessageSid=1`, {
      method: "GET",
      headers: { "x-twilio-signature": signature },
    });
    expect(reply.status).toBe(400);
    expect(await rejectionsOf(server, twilio)).toMatchObject([
      { reason: expect.stringContaining("configure the sender to use POST") },
    ]);
    expect(server.deliveries).toEqual([]);
  });
});
