import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { testTime, createTestServer } from "../../api/testServer.ts";
import type { TestServer, Reply } from "../../api/testServer.ts";

// An attacker has overheard a signed call and sends it again, with changes that its signature does not cover.

const secret = "s3cret";
const hour = 3_600_000;
const day = 86_400_000;

type Sender = {
  scheme: object;
  headers(body: string, more?: Record<string, string>): Record<string, string>;
  body: string;
};

const mac = (body: string, encoding: "hex" | "base64"): string =>
  createHmac("sha256", secret).update(body).digest(encoding);
const github: Sender = {
  scheme: { scheme: "github", secret },
  headers: (body, more) => ({
    "X-Hub-Signature-256": `sha256=${mac(body, "hex")}`,
    "X-GitHub-Event": "push",
    ...more,
  }),
  body: '{"push":1}',
};
const shopify: Sender = {
  scheme: { scheme: "shopify", secret },
  headers: (body, more) => ({
    "X-Shopify-Hmac-Sha256": mac(body, "base64"),
    "X-Shopify-Topic": "orders/create",
    ...more,
  }),
  body: '{"id":1}',
};
const linear: Sender = {
  scheme: { scheme: "linear", secret },
  headers: (body, more) => ({ "Linear-Signature": mac(body, "hex"), ...more }),
  body: JSON.stringify({ webhookTimestamp: testTime }),
};
const stamped = { header: "X-Time", unit: "milliseconds" } as const;
const ours = (options: object, time = testTime): Sender => ({
  scheme: {
    scheme: "hmac",
    secret,
    header: "X-Signature",
    timestamp: stamped,
    signed: "{timestamp}.{body}",
    ...options,
  },
  headers: (body, more) => ({
    "X-Time": String(time),
    "X-Signature": mac(`${time}.${body}`, "hex"),
    ...more,
  }),
  body: "event",
});

type Called = {
  server: TestServer;
  call(more?: Record<string, string>, body?: string): Promise<Reply>;
  messages(): number;
  sourceId: string;
};

async function sourceFor(
  { scheme, headers, body: usual }: Sender,
  more: object = {},
  server?: TestServer,
): Promise<Called> {
  const here = server ?? (await createTestServer());
  const asked = { destination: "https://e.example/", verification: scheme, ...more };
  const { status, body } = await here.ask("POST", "/v2/sources", { body: JSON.stringify(asked) });
  expect({ status, body }).toMatchObject({ status: 201 });
  const { pathname } = new URL(body.url);
  return {
    server: here,
    sourceId: body.sourceId,
    messages: () => here.memory.tables.storedMessages.size,
    call: (given, text = usual) =>
      here.ask("POST", pathname, { headers: headers(text, given), body: text, token: null }),
  };
}

describe("a repeated call", () => {
  test.each([
    ["GitHub", github, "X-GitHub-Delivery"],
    ["Shopify", shopify, "X-Shopify-Event-Id"],
    ["Shopify", shopify, "X-Shopify-Webhook-Id"],
    ["Linear", linear, "Linear-Delivery"],
  ])("of %s with another id each time creates one message", async (_, sender, header) => {
    const { call, messages } = await sourceFor(sender);
    const replies: Reply[] = [];
    for (const id of ["a", "b", "c", "d", "e"]) replies.push(await call({ [header]: id }));
    expect(replies.map(({ status }) => status)).toEqual([200, 202, 202, 202, 202]);
    expect(new Set(replies.map(({ body }) => body.messageId)).size).toBe(1);
    expect(messages()).toBe(1);
  });

  test("with another spelling of its signature creates no second message", async () => {
    const { call, messages } = await sourceFor(github);
    expect((await call()).status).toBe(200);
    expect(
      (await call({ "X-Hub-Signature-256": `sha256=${mac(github.body, "hex").toUpperCase()}` })).status,
    ).toBe(202);
    expect(messages()).toBe(1);
  });

  test("with another body counts as another event", async () => {
    const { call, messages } = await sourceFor(github);
    for (const body of ["{}", "[]"])
      expect((await call({ "X-GitHub-Delivery": "same" }, body)).status).toBe(200);
    expect(messages()).toBe(2);
  });

  test.each([
    ["GitHub", github, "X-GitHub-Event"],
    ["Shopify", shopify, "X-Shopify-Topic"],
  ])("of %s under 16 topics creates 16 messages, and is rejected under a 17th", async (_, sender, header) => {
    const { server, call, messages, sourceId } = await sourceFor(sender);
    const topics = Array.from({ length: 16 }, (_, n) => `topic/${n}`);
    for (const topic of topics) expect((await call({ [header]: topic })).status).toBe(200);
    expect(await call({ [header]: "topic/16" })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("the owner of this URL can see why") },
    });
    for (const topic of topics) expect((await call({ [header]: topic })).status).toBe(202);
    expect(messages()).toBe(16);
    const { body } = await server.ask("GET", `/v2/sources/${sourceId}/rejections`);
    expect(body.rejections).toMatchObject([
      { reason: expect.stringMatching(/^topic: the same signed body was sent under 16 other topics/) },
    ]);
    // Another event may have 16 topics as well.
    expect((await call({ [header]: "topic/16" }, "{}")).status).toBe(200);
  });

  test("to two sources with one secret creates a message for each", async () => {
    const first = await sourceFor(github);
    const second = await sourceFor(github, {}, first.server);
    expect([(await first.call()).status, (await second.call()).status]).toEqual([200, 200]);
  });

  test.each([
    ["a day", undefined, day],
    ["the window of the source", { "Svc-Deduplication-Window": "1h" }, hour],
  ])("creates one message within %s", async (_, settings, window) => {
    const { server, call, messages } = await sourceFor(github, settings ? { settings } : {});
    expect((await call()).status).toBe(200);
    server.clock.now += window - 1;
    expect((await call()).status).toBe(202);
    server.clock.now += 1;
    expect((await call()).status).toBe(200);
    expect(messages()).toBe(2);
  });

  test("creates another message if the first has failed for good, also under the same topic", async () => {
    const { server, call } = await sourceFor(github, { settings: { "Svc-Retries": "0" } });
    for (let times = 0; times < 20; times++) {
      expect((await call()).status).toBe(200);
      expect((await call()).status).toBe(202);
      await server.settle(server.delivery(), { status: 500 });
    }
    expect((await server.ask("GET", "/v2/dlq")).body.messages).toHaveLength(20);
  });

  test("to a URL group creates one message for each endpoint", async () => {
    const server = await createTestServer();
    const endpoints = [{ url: "https://a.example" }, { url: "https://b.example" }];
    await server.ask("POST", "/v2/topics/g/endpoints", { body: JSON.stringify({ endpoints }) });
    const { call, messages } = await sourceFor(github, { destination: "g" }, server);
    expect([(await call()).status, (await call({ "X-GitHub-Delivery": "b" })).status]).toEqual([200, 202]);
    expect(messages()).toBe(2);
  });

  test("creates a message each time if the source does not deduplicate", async () => {
    const { call, messages } = await sourceFor(github, { deduplicate: false });
    for (let times = 0; times < 20; times++)
      expect((await call({ "X-GitHub-Event": String(times) })).status).toBe(200);
    expect(messages()).toBe(20);
  });
});

describe("a signature of the scheme hmac", () => {
  test("does not identify an event, because two events may have equal bodies", async () => {
    const { call, messages } = await sourceFor(ours({}));
    expect([(await call()).status, (await call()).status, messages()]).toEqual([200, 200, 2]);
  });

  test("identifies an event if the source asks for it and the time is signed", async () => {
    const sender = ours({ deduplicateBy: "signature" });
    const { call, messages } = await sourceFor(sender);
    expect([(await call()).status, (await call()).status, messages()]).toEqual([200, 202, 1]);
    const later = { "X-Time": String(testTime + 1), "X-Signature": mac(`${testTime + 1}.event`, "hex") };
    expect([(await call(later)).status, messages()]).toEqual([200, 2]);
  });

  test.each([
    [
      { timestamp: undefined, signed: "{body}" },
      /^verification\.deduplicateBy: signature requires a signed timestamp/,
    ],
    [
      { eventIdHeader: "X-Id" },
      /^verification\.deduplicateBy: signature cannot be combined with eventIdHeader/,
    ],
  ])("is refused as the id of an event otherwise: %j", async (options, error) => {
    const { ask } = await createTestServer();
    const { scheme } = ours({ deduplicateBy: "signature", ...options });
    const body = JSON.stringify({ destination: "https://e.example/", verification: scheme });
    expect(await ask("POST", "/v2/sources", { body })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(error) },
    });
  });
});
