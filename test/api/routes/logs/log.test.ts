import { hash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

type Entry = Record<string, unknown> & { state: string; messageId: string };
const entries = async ({ ask }: TestServer, query: string): Promise<Entry[]> => {
  const { status, body } = await ask("GET", `/v2/events${query}`);
  expect(status).toBe(200);
  return body.events;
};
const statesOf = (all: readonly Entry[]): string => all.map(({ state }) => state).join(" ");

/**
 * Publishes three messages: the first fails, is retried and delivered, the second is cancelled, the third
 * fails for good.
 */
async function life() {
  const server = await createTestServer();
  const publish = async (url: string, headers: Record<string, string> = {}): Promise<string> =>
    String((await server.ask("POST", `/v2/publish/${url}`, { headers, body: "hi" })).body.messageId);
  const a = await publish("https://a.example/p", {
    "svc-label": "l,m",
    "svc-retry-delay": "1000",
    "svc-callback-forward-k": "v",
    "svc-callback": "https://c.example",
  });
  const first = server.delivery();
  const timing = { startedAt: server.clock.now, connect: 1, firstByte: 2, duration: 10 };
  server.clock.now += 10;
  await server.settle(first, { timing, status: 503, headers: [["X-A", "1"]], body: Buffer.from("busy") });
  server.deliveries.splice(0);
  server.clock.now += 10;
  const b = await publish("https://b.example/p", { "svc-delay": "1m" });
  server.clock.now += 10;
  await server.ask("DELETE", `/v2/messages/${b}`);
  const c = await publish("https://c.example/q", { "svc-retries": "0" });
  server.clock.now += 10;
  await server.settle(server.delivery(), { error: "connection refused" });
  return { server, a, b, c };
}

describe("the log", () => {
  test("has 1,000 entries on a page of /v2/events, and 100 on one of /v2/logs", async () => {
    const server = await createTestServer();
    const list = (count: number) =>
      JSON.stringify(Array.from({ length: count }, () => ({ destination: "https://a.example" })));
    await server.ask("POST", "/v2/batch", { body: list(60) });
    const lengthOf = async (path: string): Promise<[number, boolean]> => {
      const { body } = await server.ask("GET", path);
      return [body.events.length, body.cursor !== undefined];
    };
    expect([await lengthOf("/v2/events"), await lengthOf("/v2/logs")]).toEqual([
      [120, false],
      [100, true],
    ]);
    await server.ask("POST", "/v2/batch", { body: list(450) });
    expect(await lengthOf("/v2/events")).toEqual([1_000, true]);
  });

  test("has every state of a message, in either order", async () => {
    const { server, a, b, c } = await life();
    expect(statesOf(await entries(server, `?messageId=${a}&order=earliestFirst`))).toBe(
      "CREATED ACTIVE ERROR RETRY",
    );
    expect(statesOf(await entries(server, `?messageIds=${b}&order=earliestFirst`))).toBe(
      "CREATED CANCEL_REQUESTED CANCELLED",
    );
    expect(statesOf(await entries(server, `?messageId=${c}`))).toBe("FAILED ERROR ACTIVE CREATED");
  });

  test("has all fields of an entry, and those of the response only in the state ERROR", async () => {
    const { server, a } = await life();
    const [created, active, error, retry] = await entries(server, `?messageId=${a}&order=earliestFirst`);
    const common = {
      messageId: a,
      url: "https://a.example/p",
      method: "POST",
      header: {},
      body: "aGk=",
      timeout: 900_000,
      maxRetries: 3,
      callerIP: "127.0.0.1",
      retryDelayExpression: "1000",
      retryDelayExpr: "1000",
      callback: "https://c.example",
      callbackHeaders: { K: ["v"] },
      label: "l",
      labels: ["l", "m"],
    };
    const start = 1_800_000_000_000;
    expect(created).toEqual({ ...common, time: start, state: "CREATED" });
    expect(active).toEqual({ ...common, time: start, state: "ACTIVE" });
    const answer = { responseStatus: 503, responseHeaders: { "X-A": ["1"] }, responseBody: "YnVzeQ==" };
    const nextDeliveryTime = start + 10 + 1_000;
    expect(error).toEqual({
      ...common,
      time: start + 10,
      state: "ERROR",
      error: "the destination answered with status 503",
      explanation: expect.stringMatching(/cannot reach the application/),
      nextDeliveryTime,
      attempt: { startedAt: start, connect: 1, firstByte: 2, duration: 10, node: "nod_1" },
      ...answer,
    });
    expect(retry).toEqual({ ...common, time: start + 10, state: "RETRY", nextDeliveryTime });
  });

  test("shows when a delayed message is due, and why there was no response", async () => {
    const { server, b, c } = await life();
    expect((await entries(server, `?messageId=${b}&state=CREATED`))[0]).toMatchObject({
      nextDeliveryTime: 1_800_000_000_020 + 60_000,
    });
    for (const entry of await entries(server, `?messageId=${c}&state=ERROR,FAILED`)) {
      expect(entry).toMatchObject({ error: "connection refused" });
      expect(entry).not.toHaveProperty("responseStatus");
    }
  });

  test.each([
    ["?state=IN_PROGRESS&url=https://a.example/p", "RETRY ERROR ACTIVE"],
    ["?state=CANCELED", "CANCELLED"],
    ["?state=CANCELLED&state=CANCEL_REQUESTED", "CANCELLED CANCEL_REQUESTED"],
    ["?label=m&state=CREATED", "CREATED"],
    ["?host=b.example&path=/p", "CANCELLED CANCEL_REQUESTED CREATED"],
    ["?path=/q&state=FAILED", "FAILED"],
    ["?callerIp=1.1.1.1", ""],
    ["?queueName=q", ""],
    ["?topicName=q", ""],
    ["?flowControlKey=q", ""],
    ["?scheduleId=q", ""],
    ["?messageId=unknown", ""],
    ["?messageIds=%00", ""],
    ["?count=1&order=earliestFirst", "CREATED"],
    ["?fromDate=1800000000010&toDate=1800000000010&url=https://a.example/p", "RETRY ERROR"],
  ])("with %s returns %s", async (query, expected) => {
    const { server } = await life();
    expect(statesOf(await entries(server, query))).toBe(expected);
  });

  test("has pages under either name, and no cursor on the last page", async () => {
    const { server } = await life();
    const all = await entries(server, "?count=1000");
    const seen: Entry[] = [];
    let cursor = "";
    for (let pages = 0; pages < 100; pages++) {
      const { body } = await server.ask(
        "GET",
        `/v2/logs?count=2${cursor && `&cursor=${encodeURIComponent(cursor)}`}`,
      );
      expect(body.logs).toEqual(body.events);
      seen.push(...body.logs);
      if (!("cursor" in body)) break;
      cursor = body.cursor;
    }
    expect(seen).toEqual(all);
    expect((await server.ask("GET", "/v2/events")).body).not.toHaveProperty("logs");
    expect(await server.ask("GET", "/v2/events", { token: otherToken })).toMatchObject({
      body: { events: [] },
    });
  });

  test("cuts bodies to 16 KiB", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/publish/https://e.example", { body: "x".repeat(20_000) });
    const [entry] = await entries(server, "");
    expect(Buffer.from(String(entry?.body), "base64").length).toBe(16_384);
    expect(entry).toMatchObject({ truncated: true });
  });

  test("marks a response that was cut, and hides it with the hash of the whole", async () => {
    const server = await createTestServer();
    const whole = Buffer.from("a".repeat(20_000));
    const digest = hash("sha256", whole, "hex");
    for (const headers of [{}, { "svc-redact-fields": "body" }]) {
      await server.ask("POST", "/v2/publish/https://e.example", {
        headers: { ...headers, "svc-retries": "0" },
        body: "b",
      });
      await server.settle(server.delivery(), { status: 500, body: whole, digest });
    }
    const [hidden, open] = await entries(server, "?state=ERROR");
    expect(open).toMatchObject({
      truncated: true,
      responseBody: Buffer.from(whole.subarray(0, 16_384)).toString("base64"),
    });
    expect(hidden).toMatchObject({ responseBody: `REDACTED:${digest}` });
    const { body } = await server.ask("GET", "/v2/dlq");
    expect(body.messages.map((one: { responseBody: string }) => one.responseBody)).toContain(
      `REDACTED:${digest}`,
    );
  });

  test.each([
    ["?state=GONE", /^state: must be one of CREATED/],
    ["?cursor=x", "cursor: unknown; use the cursor of the previous page"],
    ["?labeel=x", "labeel: unknown parameter; did you mean label?"],
    ["?responseStatus=500", /^responseStatus: unknown parameter/],
  ])("with %s is refused", async (query, error) => {
    const { ask } = await createTestServer();
    const matching = typeof error === "string" ? error : expect.stringMatching(error);
    expect(await ask("GET", `/v2/events${query}`)).toMatchObject({ status: 400, body: { error: matching } });
  });
});

describe("signing keys", () => {
  test.each(["POST", "GET"])("are rotated by %s, and next becomes current", async (method) => {
    const { ask } = await createTestServer();
    expect((await ask("GET", "/v2/keys")).body).toEqual({ current: "sig_1", next: "sig_2" });
    const { status, body } = await ask(method, "/v2/keys/rotate");
    expect({ status, body }).toEqual({
      status: 200,
      body: { current: "sig_2", next: expect.stringMatching(/^sig_\w{28}$/) },
    });
    expect((await ask("GET", "/v2/keys")).body).toEqual(body);
  });

  test.each(["POST", "GET"])(
    "are rotated by %s at most once a day, unless forced, so that receivers can follow",
    async (method) => {
      const { ask, clock } = await createTestServer();
      await ask(method, "/v2/keys/rotate");
      const { body: keys } = await ask("GET", "/v2/keys");
      clock.now += 3_600_000;
      for (const query of ["", "?force=false"])
        expect(await ask(method, `/v2/keys/rotate${query}`)).toMatchObject({
          status: 409,
          body: {
            error: expect.stringMatching(
              new RegExp(
                "^keys: already rotated at 2027-01-15T08:00:00.000Z; " +
                  ".*at 2027-01-16T08:00:00.000Z or later;.*force=true",
              ),
            ),
          },
        });
      expect((await ask("GET", "/v2/keys")).body).toEqual(keys);
      expect(await ask(method, "/v2/keys/rotate?force=true")).toMatchObject({
        status: 200,
        body: { current: keys.next },
      });
      expect(await ask(method, "/v2/keys/rotate?force=yes")).toMatchObject({
        status: 400,
        body: { error: expect.stringMatching(/^force: /) },
      });
    },
  );
});
