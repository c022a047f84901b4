import { describe, expect, test } from "vitest";
import { createTestServer, otherToken } from "../../testServer.ts";
import { failMessage, listDeadLetters, failThree } from "./deadLetters.ts";

describe("a dead letter", () => {
  test("has the message, the last response and the state of its failure callback", async () => {
    const server = await createTestServer();
    const headers = { "svc-failure-callback": "https://f.example", "content-type": "text/plain" };
    server.clock.now += 1_000;
    const { body: published } = await server.ask("POST", "/v2/publish/https://e.example", {
      headers: { ...headers, "svc-retries": "0" },
      body: "b",
    });
    await server.settle(server.delivery(), {
      status: 500,
      headers: [
        ["X-A", "1"],
        ["X-A", "2"],
      ],
      body: Buffer.from([0xff]),
    });
    const [entry] = (await listDeadLetters(server)).messages;
    expect(entry).toEqual({
      messageId: published.messageId,
      dlqId: expect.stringMatching(/^\d{13}-\d+$/),
      url: "https://e.example",
      method: "POST",
      body: "b",
      maxRetries: 0,
      header: { "Content-Type": ["text/plain"] },
      createdAt: server.clock.now,
      notBefore: server.clock.now,
      callerIP: "127.0.0.1",
      failureCallback: "https://f.example",
      error: null,
      responseStatus: 500,
      responseHeader: { "X-A": ["1", "2"] },
      responseBodyBase64: "/w==",
      failureCallbackInfo: { state: "CALLBACK_INPROGRESS" },
    });
    await server.settle(server.delivery(), { status: 200, headers: [["X-B", "1"]], body: Buffer.from("ok") });
    const { body } = await server.ask("GET", `/v2/dlq/${entry?.dlqId}`);
    expect(body.failureCallbackInfo).toEqual({
      state: "CALLBACK_SUCCESS",
      responseStatus: 200,
      responseBody: "ok",
      responseHeaders: { "X-B": ["1"] },
    });
  });

  test("without a response has the error instead of a status", async () => {
    const server = await createTestServer();
    await failMessage(server, "https://e.example", { outcome: { error: "connection refused" } });
    const [entry] = (await listDeadLetters(server)).messages;
    expect(entry).toMatchObject({ error: "connection refused" });
    for (const name of ["responseStatus", "responseHeader", "responseBody"])
      expect(entry).not.toHaveProperty(name);
  });

  test("hides redacted parts, also in responses and in the headers of its callback", async () => {
    const server = await createTestServer();
    const headers = {
      "svc-redact-fields": "body,headers",
      "svc-forward-x": "secret",
      "svc-retries": "0",
      "svc-failure-callback": "https://f.example",
    };
    const secret = { status: 500, headers: [["X", "secret"]] as const, body: Buffer.from("secret") };
    await server.ask("POST", "/v2/publish/https://e.example", { headers, body: "secret" });
    await server.settle(server.delivery(), secret);
    await server.settle(server.delivery(), { ...secret, status: 200 });
    const hidden = expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/);
    const answered = { responseBody: hidden, responseStatus: 500 };
    const { messages } = await listDeadLetters(server);
    const info = { responseBody: hidden, responseHeaders: { X: [hidden] } };
    expect(messages).toMatchObject([
      { ...answered, responseHeader: { X: [hidden] }, failureCallbackInfo: info },
    ]);
    const { events } = (await server.ask("GET", "/v2/events?state=ERROR")).body;
    expect(events).toMatchObject([{ ...answered, responseHeaders: { X: [hidden] } }]);
    expect(JSON.stringify([messages, events])).not.toMatch(/secret|c2VjcmV0/);
  });

  test.each(["1800000000000-0", "%00", "x", "' or 1=1"])(
    "has status 404 for the id %s in every request",
    async (id) => {
      const { ask } = await createTestServer();
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
    },
  );
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
  ])("with %s returns %s", async (query, expected) => {
    const { server, nameOf } = await failThree();
    const { messages, ...rest } = await listDeadLetters(server, query);
    expect(messages.map(({ messageId }) => nameOf(messageId)).join("")).toBe(expected);
    expect(rest).toEqual({});
  });

  test("with ids ignores other filters, and belongs to one account", async () => {
    const { server, ids, messageIds } = await failThree();
    expect(
      (await listDeadLetters(server, `?dlqIds=${ids[0]},x&dlqIds=${ids[2]}&url=none`)).messages.map(
        ({ dlqId }) => dlqId,
      ),
    ).toEqual([ids[0], ids[2]]);
    expect(
      (await listDeadLetters(server, `?messageId=${messageIds.b}`)).messages.map(({ dlqId }) => dlqId),
    ).toEqual([ids[1]]);
    expect((await server.ask("GET", "/v2/dlq", { token: otherToken })).body).toEqual({ messages: [] });
    expect((await server.ask("GET", `/v2/dlq/${ids[0]}`, { token: otherToken })).status).toBe(404);
  });

  test("has at most 100 entries on a page, even if the request asks for more", async () => {
    const server = await createTestServer();
    for (let number = 0; number < 101; number++) await failMessage(server, "https://e.example");
    const page = await listDeadLetters(server, "?count=200");
    expect([page.messages.length, typeof page.cursor]).toEqual([100, "string"]);
    expect((await server.ask("GET", "/v2/events?count=5000")).body.events).toHaveLength(404);
  });

  test("has pages from either end, and no cursor on the last page", async () => {
    for (const [order, expected] of [
      ["earliestFirst", "abc"],
      ["latestFirst", "cba"],
    ] as const) {
      const { server, nameOf } = await failThree();
      let seen = "";
      let cursor = "";
      for (let pages = 0; pages < 4; pages++) {
        const page = await listDeadLetters(server, `?count=2&order=${order}${cursor && `&cursor=${cursor}`}`);
        seen += page.messages.map(({ messageId }) => nameOf(messageId)).join("");
        if (page.cursor === undefined) break;
        cursor = page.cursor;
      }
      expect(seen).toBe(expected);
    }
  });

  test("has fewer entries on a page if their bodies are large", async () => {
    const server = await createTestServer();
    for (let n = 0; n < 6; n++)
      await failMessage(server, "https://e.example", { body: "x".repeat(7 * 1024 * 1024) });
    const page = await listDeadLetters(server);
    expect(page.messages.length).toBe(4);
    const rest = await listDeadLetters(server, `?cursor=${page.cursor}`);
    expect(rest.messages.length).toBe(2);
    expect(rest).not.toHaveProperty("cursor");
  });

  test.each([
    ["?labeel=x", "labeel: unknown parameter; did you mean label?"],
    ["?host=x", /^host: unknown parameter/],
    ["?path=x", /^path: unknown parameter/],
    ["?order=random", "order: must be one of earliestFirst, latestFirst"],
    ["?cursor=x", "cursor: unknown; use the cursor of the previous page"],
    ["?cursor=1800000000000-0%00", "cursor: unknown; use the cursor of the previous page"],
    ["?source=queue", "source: must be one of workflow"],
    ["?workflowRunId=x", "workflowRunId: only valid with source=workflow"],
    ["?responseStatus=abc", "responseStatus: is not a whole number"],
    ["?dlqIds=", "dlqIds: is empty"],
    [`?label=${Array.from({ length: 1_001 }, (_, n) => n).join(",")}`, "label: has more than 1000 values"],
  ])("with %s is refused", async (query, error) => {
    const { ask } = await createTestServer();
    const matching = typeof error === "string" ? error : expect.stringMatching(error);
    expect(await ask("GET", `/v2/dlq${query}`)).toMatchObject({ status: 400, body: { error: matching } });
  });
});

describe("deleting dead letters", () => {
  test("deletes one dead letter once", async () => {
    const { server, ids } = await failThree();
    expect((await server.ask("DELETE", `/v2/dlq/${ids[0]}`, { token: otherToken })).status).toBe(404);
    expect(await server.ask("DELETE", `/v2/dlq/${ids[0]}`)).toMatchObject({
      status: 200,
      body: { deleted: 1 },
    });
    expect((await server.ask("DELETE", `/v2/dlq/${ids[0]}`)).status).toBe(404);
  });

  test("deletes many by id, skipping unknown ones, or by filter in portions", async () => {
    const { server, ids } = await failThree();
    expect((await server.ask("DELETE", `/v2/dlq?dlqIds=${ids[1]},${ids[1]},gone&dlqIds=%00`)).body).toEqual({
      deleted: 1,
      failed: [
        { id: "gone", reason: "the dead letter does not exist" },
        { id: "\0", reason: 'dlqId: there is no dead letter "\\u0000"' },
      ],
    });
    expect((await server.ask("DELETE", "/v2/dlq?label=none")).body).toEqual({ deleted: 0 });
    const first = await server.ask("DELETE", "/v2/dlq?count=1");
    expect(first.body).toEqual({ deleted: 1, cursor: expect.any(String) });
    expect((await server.ask("DELETE", `/v2/dlq?count=1&cursor=${first.body.cursor}`)).body).toEqual({
      deleted: 1,
    });
    expect(await listDeadLetters(server)).toEqual({ messages: [] });
  });

  test.each(["?labeel=x", "?dlqIds=", "?order=latestFirst", "?host=x", "?svc-retries=1"])(
    "with %s is refused and deletes nothing",
    async (query) => {
      const { server } = await failThree();
      expect((await server.ask("DELETE", `/v2/dlq${query}`)).status).toBe(400);
      expect((await listDeadLetters(server)).messages.length).toBe(3);
    },
  );
});
