import { describe, expect, test } from "vitest";
import type { Outcome } from "../../src/core/message.ts";
import type { Store } from "../../src/store/store.ts";
import { house, otherToken } from "./house.ts";
import type { House, Reply } from "./house.ts";

async function fail(
  home: House,
  url: string,
  {
    headers = {},
    body = "b",
    outcome = { status: 500 },
  }: { headers?: Record<string, string>; body?: string; outcome?: Partial<Outcome> } = {},
) {
  home.clock.now += 1_000;
  const { body: reply } = await home.ask("POST", `/v2/publish/${url}`, {
    headers: { ...("upstash-retries" in headers ? {} : { "svc-retries": "0" }), ...headers },
    body,
  });
  await home.settle(home.delivery(), outcome);
  return String(reply.messageId);
}

const listed = async ({ ask }: House, query = "") => {
  const { status, body } = await ask("GET", `/v2/dlq${query}`);
  expect(status).toBe(200);
  return body as { messages: { messageId: string; dlqId: string; url: string }[]; cursor?: string };
};

/** Three dead letters: a and b to one URL, c to another. */
async function three() {
  const home = await house();
  const a = await fail(home, "https://one.example", { headers: { "svc-label": "x" } });
  const b = await fail(home, "https://one.example", { outcome: { status: 404 } });
  const c = await fail(home, "https://two.example", { headers: { "svc-label": "x,y" }, outcome: { error: "connection refused" } });
  const names = new Map([
    [a, "a"],
    [b, "b"],
    [c, "c"],
  ]);
  const { messages } = await listed(home);
  return { home, ids: messages.map(({ dlqId }) => dlqId), messageIds: { a, b, c }, nameOf: (id: string) => names.get(id) ?? "?" };
}

describe("a dead letter", () => {
  test("is the message with the last response and what became of its failure callback", async () => {
    const home = await house();
    const headers = { "svc-failure-callback": "https://f.example", "content-type": "text/plain" };
    home.clock.now += 1_000;
    const { body: published } = await home.ask("POST", "/v2/publish/https://e.example", {
      headers: { ...headers, "svc-retries": "0" },
      body: "b",
    });
    await home.settle(home.delivery(), {
      status: 500,
      headers: [
        ["X-A", "1"],
        ["X-A", "2"],
      ],
      body: Buffer.from([0xff]),
    });
    const [entry] = (await listed(home)).messages;
    expect(entry).toEqual({
      ...{
        messageId: published.messageId,
        dlqId: expect.stringMatching(/^\d{13}-\d+$/),
        url: "https://e.example",
        method: "POST",
        body: "b",
        maxRetries: 0,
      },
      ...{
        header: { "Content-Type": ["text/plain"] },
        createdAt: home.clock.now,
        notBefore: home.clock.now,
        callerIP: "127.0.0.1",
        failureCallback: "https://f.example",
      },
      ...{
        responseStatus: 500,
        responseHeader: { "X-A": ["1", "2"] },
        responseBodyBase64: "/w==",
        failureCallbackInfo: { state: "CALLBACK_INPROGRESS" },
      },
    });
    await home.settle(home.delivery(), { status: 200, headers: [["X-B", "1"]], body: Buffer.from("ok") });
    const { body } = await home.ask("GET", `/v2/dlq/${entry?.dlqId}`);
    expect(body.failureCallbackInfo).toEqual({
      state: "CALLBACK_SUCCESS",
      responseStatus: 200,
      responseBody: "ok",
      responseHeaders: { "X-B": ["1"] },
    });
  });

  test("without a response has no status, and says why", async () => {
    const home = await house();
    await fail(home, "https://e.example", { outcome: { error: "connection refused" } });
    const [entry] = (await listed(home)).messages;
    expect(entry).toMatchObject({ error: "connection refused" });
    for (const name of ["responseStatus", "responseHeader", "responseBody"]) expect(entry).not.toHaveProperty(name);
  });

  test("hides what is to be hidden, also in its callback's headers, and in what was answered", async () => {
    const home = await house();
    const headers = {
      ...{ "svc-redact-fields": "body,headers", "svc-forward-x": "secret", "svc-retries": "0" },
      "svc-failure-callback": "https://f.example",
    };
    const secret = { status: 500, headers: [["X", "secret"]] as const, body: Buffer.from("secret") };
    await home.ask("POST", "/v2/publish/https://e.example", { headers, body: "secret" });
    await home.settle(home.delivery(), secret);
    await home.settle(home.delivery(), { ...secret, status: 200 });
    const hidden = expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/);
    const answered = { responseBody: hidden, responseStatus: 500 };
    const { messages } = await listed(home);
    const info = { responseBody: hidden, responseHeaders: { X: [hidden] } };
    expect(messages).toMatchObject([{ ...answered, responseHeader: { X: [hidden] }, failureCallbackInfo: info }]);
    const { events } = (await home.ask("GET", "/v2/events?state=ERROR")).body;
    expect(events).toMatchObject([{ ...answered, responseHeaders: { X: [hidden] } }]);
    expect(JSON.stringify([messages, events])).not.toMatch(/secret|c2VjcmV0/);
  });

  test.each(["1800000000000-0", "%00", "x", "' or 1=1"])("is 404 by the id %s, for whatever is asked", async (id) => {
    const { ask } = await house();
    for (const [method, url] of [
      ["GET", `/v2/dlq/${id}`],
      ["DELETE", `/v2/dlq/${id}`],
      ["POST", `/v2/dlq/retry/${id}`],
    ] as const) {
      expect(await ask(method, url)).toMatchObject({
        status: 404,
        body: { error: expect.stringMatching(/^dlqId: there is no dead letter/) },
      });
    }
  });
});

describe("the list of dead letters", () => {
  test.each([
    ["", "abc"],
    ["?order=latestFirst", "cba"],
    ["?order=earliestFirst&count=100", "abc"],
    ["?url=https://one.example", "ab"],
    ["?responseStatus=500,404", "ab"],
    ["?responseStatus=404&responseStatus=999", "b"],
    ["?label=x", "ac"],
    ["?label=x&url=https://two.example", "c"],
    ["?callerIp=127.0.0.1&callerIP=1.1.1.1", "abc"],
    ["?fromDate=1800000002000&toDate=1800000002000", "b"],
    ["?messageId=msg_x", ""],
    ["?topicName=t", ""],
    ["?scheduleId=t", ""],
    ["?queueName=t", ""],
    ["?flowControlKey=t", ""],
    ["?source=workflow", ""],
    ["?source=workflow&workflowUrl=https://e.example&failureCallbackState=CALLBACK_FAIL&count=5", ""],
  ])("with %s is %s", async (query, expected) => {
    const { home, nameOf } = await three();
    const { messages, ...rest } = await listed(home, query);
    expect(messages.map(({ messageId }) => nameOf(messageId)).join("")).toBe(expected);
    expect(rest).toEqual({});
  });

  test("goes by ids before all else, and belongs to one account", async () => {
    const { home, ids, messageIds } = await three();
    expect((await listed(home, `?dlqIds=${ids[0]},x&dlqIds=${ids[2]}&url=none`)).messages.map(({ dlqId }) => dlqId)).toEqual([
      ids[0],
      ids[2],
    ]);
    expect((await listed(home, `?messageId=${messageIds.b}`)).messages.map(({ dlqId }) => dlqId)).toEqual([ids[1]]);
    expect((await home.ask("GET", "/v2/dlq", { token: otherToken })).body).toEqual({ messages: [] });
    expect((await home.ask("GET", `/v2/dlq/${ids[0]}`, { token: otherToken })).status).toBe(404);
  });

  test("comes page by page, from either end, and tells the end by no cursor", async () => {
    for (const [order, expected] of [
      ["earliestFirst", "abc"],
      ["latestFirst", "cba"],
    ] as const) {
      const { home, nameOf } = await three();
      let [seen, cursor] = ["", ""];
      for (let pages = 0; pages < 4; pages++) {
        const page = await listed(home, `?count=2&order=${order}${cursor && `&cursor=${cursor}`}`);
        seen += page.messages.map(({ messageId }) => nameOf(messageId)).join("");
        if (page.cursor === undefined) break;
        cursor = page.cursor;
      }
      expect(seen).toBe(expected);
    }
  });

  test("ends a page early rather than let it grow beyond measure", async () => {
    const home = await house();
    for (let n = 0; n < 6; n++) await fail(home, "https://e.example", { body: "x".repeat(7 * 1024 * 1024) });
    const page = await listed(home);
    expect(page.messages.length).toBe(4);
    const rest = await listed(home, `?cursor=${page.cursor}`);
    expect(rest.messages.length).toBe(2);
    expect(rest).not.toHaveProperty("cursor");
  });

  test.each([
    ["?labeel=x", "labeel: there is no such parameter; did you mean label?"],
    ["?host=x", /^host: there is no such parameter/],
    ["?path=x", /^path: there is no such parameter/],
    ["?count=101", "count: must be at most 100"],
    ["?order=random", "order: is none of earliestFirst, latestFirst"],
    ["?cursor=x", "cursor: not one that this list has given out"],
    ["?cursor=1800000000000-0%00", "cursor: not one that this list has given out"],
    ["?source=queue", "source: is none of workflow"],
    ["?workflowRunId=x", "workflowRunId: there is no such parameter, except with source=workflow"],
    ["?responseStatus=abc", "responseStatus: is not a whole number"],
    ["?dlqIds=", "dlqIds: is empty"],
    [`?label=${Array.from({ length: 1_001 }, (_, n) => n).join(",")}`, "label: has more than 1000 values"],
  ])("with %s is refused", async (query, error) => {
    const { ask } = await house();
    const matching = typeof error === "string" ? error : expect.stringMatching(error);
    expect(await ask("GET", `/v2/dlq${query}`)).toMatchObject({ status: 400, body: { error: matching } });
  });
});

describe("deleting dead letters", () => {
  test("takes one once", async () => {
    const { home, ids } = await three();
    expect((await home.ask("DELETE", `/v2/dlq/${ids[0]}`, { token: otherToken })).status).toBe(404);
    expect(await home.ask("DELETE", `/v2/dlq/${ids[0]}`)).toMatchObject({ status: 200, body: { deleted: 1 } });
    expect((await home.ask("DELETE", `/v2/dlq/${ids[0]}`)).status).toBe(404);
  });

  test("takes many by id, skipping what is gone, or by filter, portion by portion", async () => {
    const { home, ids } = await three();
    expect((await home.ask("DELETE", `/v2/dlq?dlqIds=${ids[1]},${ids[1]},gone`)).body).toEqual({ deleted: 1 });
    expect((await home.ask("DELETE", "/v2/dlq?label=none")).body).toEqual({ deleted: 0 });
    const first = await home.ask("DELETE", "/v2/dlq?count=1");
    expect(first.body).toEqual({ deleted: 1, cursor: expect.any(String) });
    expect((await home.ask("DELETE", `/v2/dlq?count=1&cursor=${first.body.cursor}`)).body).toEqual({ deleted: 1 });
    expect(await listed(home)).toEqual({ messages: [] });
  });

  test.each(["?labeel=x", "?dlqIds=", "?order=latestFirst", "?host=x", "?svc-retries=1"])(
    "with %s is refused and takes nothing",
    async (query) => {
      const { home } = await three();
      expect((await home.ask("DELETE", `/v2/dlq${query}`)).status).toBe(400);
      expect((await listed(home)).messages.length).toBe(3);
    },
  );
});

describe("sending dead letters again", () => {
  test("makes a new message of the old one, and takes the entry out", async () => {
    const home = await house();
    const headers = {
      "upstash-retries": "0",
      "upstash-method": "PUT",
      "content-type": "text/plain",
      "upstash-forward-x-a": "1",
      "upstash-forward-x-b": "2",
      "upstash-label": "l",
    };
    const old = await fail(home, "https://e.example", { headers });
    const [entry] = (await listed(home)).messages;
    const { status, body } = await home.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`, { headers: { "content-type": "application/json" } });
    expect({ status, body }).toEqual({ status: 201, body: { messageId: expect.stringMatching(/^msg_/) } });
    const { message } = home.delivery();
    expect(message).toMatchObject({
      id: body.messageId,
      brand: "upstash",
      method: "PUT",
      retries: 0,
      labels: ["l"],
      url: "https://e.example",
    });
    expect(message.headers).toEqual([
      ["Content-Type", "text/plain"],
      ["X-A", "1"],
      ["X-B", "2"],
    ]);
    expect(body.messageId).not.toBe(old);
    expect((await home.ask("POST", `/v2/dlq/retry/${entry?.dlqId}`)).status).toBe(404);
    expect((await home.ask("DELETE", `/v2/dlq/${entry?.dlqId}`)).status).toBe(404);
  });

  test("takes settings of the request, headers by name", async () => {
    const home = await house();
    await fail(home, "https://e.example", { headers: { "svc-forward-x-a": "1", "svc-forward-x-b": "2", "svc-timeout": "9s" } });
    const [entry] = (await listed(home)).messages;
    const settings = { "upstash-retries": "7", "svc-forward-x-a": "3", "svc-callback": "https://c.example", "svc-callback-retries": "1" };
    const ofKey = { "svc-flow-control-key": "shop", "svc-flow-control-value": "rate=5" };
    await home.ask("POST", `/v2/dlq/retry/${entry?.dlqId}?svc-method=GET&svc-retry-delay=1000`, { headers: { ...settings, ...ofKey } });
    const { message } = home.delivery();
    expect(message).toMatchObject({
      method: "GET",
      retries: 7,
      timeout: 9_000,
      retryDelay: "1000",
      flowControl: { key: "shop", rate: 5 },
      callback: { url: "https://c.example", retries: 1 },
    });
    expect(message.headers).toEqual([
      ["X-B", "2"],
      ["X-A", "3"],
    ]);
  });

  test.each([
    [{ "svc-label": "x" }, 400, "svc-label: cannot be changed when a message is retried"],
    [{ "svc-header-forward": "true" }, 400, "svc-header-forward: cannot be changed when a message is retried"],
    [{ "svc-retries": "x" }, 400, 'svc-retries: "x" is not a whole number of 0 or more'],
    [{ "svc-flow-control-key": "k" }, 400, /^svc-flow-control-key: has no Flow-Control-Value beside it/],
    [{ "svc-retries": "1001" }, 412, "retries: 1001 asked for, the limit is 1000"],
    [{ "svc-delay": "367d" }, 412, /^delay: /],
  ])("with %o is refused, and leaves the entries", async (headers, status, error) => {
    const { home, ids } = await three();
    const body = { error: typeof error === "string" ? error : expect.stringMatching(error) };
    expect(await home.ask("POST", `/v2/dlq/retry/${ids[0]}`, { headers })).toMatchObject({ status, body });
    expect(await home.ask("POST", "/v2/dlq/retry", { headers })).toMatchObject({ status, body });
    expect((await listed(home)).messages.length).toBe(3);
    expect(home.deliveries).toEqual([]);
  });

  test("takes many by id or by filter, portion by portion; the cursor is empty at the end", async () => {
    const { home, ids } = await three();
    const one = { messageId: expect.stringMatching(/^msg_/) };
    expect(await home.ask("POST", `/v2/dlq/retry?dlqIds=${ids[1]}&dlqIds=gone`)).toMatchObject({
      status: 201,
      body: { cursor: "", responses: [one] },
    });
    expect((await home.ask("POST", "/v2/dlq/retry?label=none")).body).toEqual({ cursor: "", responses: [] });
    const { body } = await home.ask("POST", "/v2/dlq/retry?count=1");
    expect(body).toEqual({ cursor: expect.stringMatching(/./), responses: [one] });
    expect((await home.ask("POST", `/v2/dlq/retry?cursor=${body.cursor}`)).body).toEqual({ cursor: "", responses: [one] });
    expect(home.deliveries.length).toBe(3);
    expect(await listed(home)).toEqual({ messages: [] });
  });

  test("takes at most four at a time, since each can be large", async () => {
    const sizes: number[] = [];
    const counted = (store: Store): Store => ({
      ...store,
      execute: (name, input) => {
        if (name === "retryDeadLetters") sizes.push((input as unknown as { dlqIds: string[] }).dlqIds.length);
        return store.execute(name, input);
      },
    });
    const home = await house({ wrap: counted });
    const old: string[] = [];
    for (let number = 0; number < 9; number++) old.push(await fail(home, "https://e.example", { body: String(number) }));
    const { body } = await home.ask("POST", "/v2/dlq/retry");
    expect(sizes).toEqual([4, 4, 1]);
    expect(home.deliveries.map(({ message }) => Buffer.from(message.body).toString())).toEqual([..."012345678"]);
    expect(body).toEqual({ cursor: "", responses: home.deliveries.map(({ message }) => ({ messageId: message.id })) });
  });

  test.each(["by filter", "by id"])("tells what was sent again before one that cannot be: %s", async (how) => {
    const home = await house();
    for (let number = 0; number < 6; number++) {
      await fail(home, "https://e.example", { headers: { "svc-retry-delay": "0", "svc-retries": "0", "svc-timeout": `${number}1s` } });
    }
    const ids = (await listed(home)).messages.map(({ dlqId }) => dlqId);
    await home.store.execute("changeAccount", { account: "acc_1", change: { limits: { timeout: 40_000 } } });
    const query = how === "by id" ? `?dlqIds=${ids.join(",")}` : "?";
    const { status, body } = await home.ask("POST", `/v2/dlq/retry${query}`);
    const sent = home.deliveries.map(({ message }) => ({ messageId: message.id }));
    const cursor = how === "by id" ? ids[3] : `${ids[3]}_${ids[5]}`;
    expect({ status, body }).toEqual({ status: 201, body: { cursor, responses: sent } });
    expect(sent).toHaveLength(4);
    expect(await home.ask("POST", `/v2/dlq/retry${query}&cursor=${body.cursor}`)).toMatchObject({
      status: 412,
      body: { error: /^timeout: / },
    });
    expect((await listed(home)).messages).toHaveLength(2);
    expect(home.deliveries).toHaveLength(4);
  });

  test.each([
    ["POST", "/v2/dlq/retry"],
    ["DELETE", "/v2/dlq"],
  ])("%s %s takes its filters from a body, too, and never all in place of them", async (method, path) => {
    const { home, ids } = await three();
    const asked = (body: string): Promise<Reply> => home.ask(method, path, { body });
    for (const body of ['{"ids":["a"]}', '{"dlqIds":[]}', "[]", "x"]) expect((await asked(body)).status).toBe(400);
    expect((await asked(JSON.stringify({ dlqIds: ["1800000000000-1", ids[1]] }))).status).toBeLessThan(300);
    expect((await listed(home)).messages.map(({ dlqId }) => dlqId)).toEqual([ids[0], ids[2]]);
  });

  test.each(["?labeel=x", "?dlqIds=", "?svc-retrys=1"])("with %s is refused", async (query) => {
    const { home } = await three();
    expect((await home.ask("POST", `/v2/dlq/retry${query}`)).status).toBe(400);
    expect(home.deliveries).toEqual([]);
  });
});
