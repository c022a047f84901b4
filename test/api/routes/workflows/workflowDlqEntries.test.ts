import { describe, expect, test } from "vitest";
import {
  bytes,
  callbackTo,
  takeDelivery,
  endpoint,
  failRun,
  failRunAndRead,
  start,
  step,
  workflowAnswer,
} from "../lists/failedRunLists.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

describe("an entry of a failed run", () => {
  test("shows the message, its response, its run and the state of the failure callback", async () => {
    const server = await createTestServer();
    const failureCallback = { ...callbackTo("https://app.example/failed"), headers: [["X-F", "1"]] as const };
    const flowControl = { key: "k", parallelism: 2, rate: null, period: null };
    const dlqId = await failRunAndRead(server, "wfr_1", {
      failureCallback,
      labels: ["a", "b"],
      callerIp: "192.0.2.7",
      flowControl,
    });
    const created = server.clock.now;
    const [callback] = server.deliveries.splice(0);
    if (callback)
      await server.settle(callback, { status: 202, headers: [["X-B", "1"]], body: bytes("seen") });
    const entry = {
      dlqId,
      messageId: expect.stringMatching(/^msg_/),
      url: endpoint,
      method: "POST",
      maxRetries: 0,
      header: { "Upstash-Workflow-Sdk-Version": ["1"] },
      createdAt: created,
      notBefore: created,
      callerIP: "192.0.2.7",
      label: "a",
      labels: ["a", "b"],
      flowControlKey: "k",
      parallelism: 2,
      period: 1,
      workflowRunId: "wfr_1",
      workflowCreatedAt: created,
      workflowUrl: endpoint,
      body: "payload",
      responseStatus: 500,
      responseHeader: {},
      responseBody: '{"error":"Error","message":"boom"}',
      error: "boom",
      failureCallback: "https://app.example/failed",
      failureCallbackHeader: { "X-F": ["1"] },
      failureFunctionState: "CALLBACK_SUCCESS",
      failureCallbackInfo: {
        state: "CALLBACK_SUCCESS",
        responseStatus: 202,
        responseBody: "seen",
        responseHeaders: { "X-B": ["1"] },
      },
    };
    for (const url of [`/v2/workflows/dlq/${dlqId}`, `/v2/dlq/${dlqId}`]) {
      expect(await server.ask("GET", url)).toMatchObject({ status: 200, body: entry });
      expect((await server.ask("GET", url)).body).toEqual(entry);
    }
    for (const url of ["/v2/workflows/dlq", "/v2/dlq?source=workflow"])
      expect((await server.ask("GET", url)).body).toEqual({ messages: [entry] });
    expect((await server.ask("GET", "/v2/dlq")).body).toEqual({ messages: [] });
  });

  test.each([
    ["no response", { status: null, body: bytes(""), error: "connection refused" }, "connection refused"],
    ["a response without an error", { body: bytes("<html>") }, "the endpoint answered with status 500"],
    [
      "a response that is not from a workflow",
      { status: 200, body: bytes("ok") },
      expect.stringMatching(/^detected a non-workflow destination/),
    ],
    [
      "a named error",
      { body: bytes('{"error":"TypeError","message":"x is not a function","stack":"s"}') },
      "TypeError: x is not a function",
    ],
    ["an invalid error", { body: bytes('{"message":7}') }, "the endpoint answered with status 500"],
  ])("after %s shows why the run failed", async (_, outcome, error) => {
    const server = await createTestServer();
    await failRunAndRead(server, "wfr_1", { outcome });
    expect((await server.ask("GET", "/v2/workflows/dlq")).body.messages).toMatchObject([{ error }]);
  });

  test("names the failed step, or the step before it", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    await server.settle(takeDelivery(server, first), workflowAnswer);
    const plan = await step(server, "wfr_1", { stepId: 0, targetStep: 1, stepName: "charge card" });
    await server.settle(takeDelivery(server, plan), {
      status: 489,
      headers: [["Upstash-Nonretryable-Error", "true"]],
    });
    server.clock.now += 1;
    await server.settle(takeDelivery(server, await start(server, "wfr_2")), workflowAnswer);
    const result = await step(server, "wfr_2", { stepName: "reserve" });
    await server.settle(takeDelivery(server, result), {
      status: 489,
      headers: [["Upstash-Nonretryable-Error", "true"]],
    });
    const { messages } = (await server.ask("GET", "/v2/workflows/dlq")).body;
    expect(messages.map(({ stepName = null, afterStep = null }) => [stepName, afterStep])).toEqual([
      ["charge card", null],
      [null, "reserve"],
    ]);
  });

  test("hides redacted content, also in the headers of its failure callback", async () => {
    const server = await createTestServer();
    const secret = [["X-Key", "secret"]] as const;
    await failRunAndRead(server, "wfr_1", {
      headers: secret,
      body: bytes("secret"),
      failureCallback: { ...callbackTo("https://f.example"), headers: secret },
      redaction: { body: true, headers: true },
      outcome: { headers: secret, body: bytes('{"message":"secret"}') },
    });
    const { body } = await server.ask("GET", "/v2/workflows/dlq");
    expect(body.messages).toHaveLength(1);
    expect(JSON.stringify(body)).not.toContain("secret");
  });
});

describe("the body of an entry", () => {
  const all = async (server: TestServer, dlqId: string): Promise<unknown[]> => [
    (await server.ask("GET", `/v2/workflows/dlq/${dlqId}`)).body,
    (await server.ask("GET", `/v2/dlq/${dlqId}`)).body,
    (await server.ask("GET", "/v2/workflows/dlq")).body.messages[0],
    (await server.ask("GET", "/v2/dlq?source=workflow")).body.messages[0],
  ];

  test("is the initial payload of the run, regardless of the failed step", async () => {
    const server = await createTestServer();
    const first = takeDelivery(server, await start(server, "wfr_1", { body: bytes('{"order":1}') }));
    await server.settle(first, workflowAnswer);
    await server.settle(takeDelivery(server, await step(server, "wfr_1", {})), {
      status: 500,
      body: bytes("boom"),
    });
    const [{ dlqId }] = (await server.ask("GET", "/v2/workflows/dlq")).body.messages;
    for (const entry of await all(server, dlqId))
      expect(entry).toMatchObject({ dlqId, body: '{"order":1}', responseBody: "boom" });
  });

  test("is in base64 if it is not UTF-8, and hidden if the run hides its bodies", async () => {
    const server = await createTestServer();
    const binary = await failRunAndRead(server, "wfr_1", { body: Buffer.from([0xff]) });
    for (const entry of await all(server, binary)) {
      expect(entry).toMatchObject({ bodyBase64: "/w==" });
      expect(entry).not.toHaveProperty("body");
    }
    await server.ask("DELETE", "/v2/workflows/dlq");
    const redaction = { body: true, headers: false } as const;
    const hidden = await failRunAndRead(server, "wfr_2", { body: bytes("secret"), redaction });
    for (const entry of await all(server, hidden)) {
      expect(entry).toMatchObject({ body: expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/) });
      expect(JSON.stringify(entry)).not.toContain("secret");
    }
  });

  test("counts towards the size of a page", async () => {
    const server = await createTestServer();
    for (const id of "abcdef") await failRunAndRead(server, id, { body: Buffer.alloc(8 * 1024 * 1024, "x") });
    const first = (await server.ask("GET", "/v2/workflows/dlq")).body;
    const second = (await server.ask("GET", `/v2/workflows/dlq?cursor=${first.cursor}`)).body;
    expect([first.messages.length, second.messages.length, second.cursor]).toEqual([3, 3, undefined]);
  });
});

describe("grouping failed runs", () => {
  test("groups runs that failed at the same step with the same error", async () => {
    const server = await createTestServer();
    const failWith = (message: string) => ({
      outcome: { body: bytes(JSON.stringify({ error: "Error", message })) },
    });
    await failRunAndRead(server, "a", failWith("order 1 of user 'ann' is gone"));
    const last = await failRunAndRead(server, "b", failWith("order 22 of user 'bob' is gone"));
    const other = await failRunAndRead(server, "c", {
      url: "https://other.example",
      ...failWith("order 3 of user 'x' is gone"),
    });
    expect((await server.ask("GET", "/v2/workflows/dlq/groups")).body).toEqual({
      entries: 3,
      causes: 2,
      groups: [
        {
          cause: expect.stringMatching(/^[\da-z]{11}$/),
          workflowUrl: endpoint,
          error: "order … of user … is gone",
          count: 2,
          dlqId: last,
          firstFailedAt: testTime + 1_000,
          lastFailedAt: testTime + 2_000,
          trend: expect.any(Array),
        },
        {
          cause: expect.stringMatching(/^[\da-z]{11}$/),
          workflowUrl: "https://other.example",
          error: "order … of user … is gone",
          count: 1,
          dlqId: other,
          firstFailedAt: testTime + 3_000,
          lastFailedAt: testTime + 3_000,
          trend: expect.any(Array),
        },
      ],
    });
    expect((await server.ask("GET", "/v2/workflows/dlq/groups?workflowRunId=c")).body).toMatchObject({
      entries: 1,
      groups: [{ count: 1 }],
    });
    expect((await server.ask("GET", "/v2/workflows/dlq/groups", { token: otherToken })).body).toEqual({
      entries: 0,
      causes: 0,
      groups: [],
    });
  });

  test("groups all runs, and with other filters the latest 1,000 and then older ones", async () => {
    const server = await createTestServer();
    for (let n = 0; n < 1_050; n++) await failRun(server, `run-${n}`);
    const read = async (query: string) => (await server.ask("GET", `/v2/workflows/dlq/groups${query}`)).body;
    const { groups, ...all } = await read("");
    expect(all).toEqual({ entries: 1_050, causes: 1 });
    expect(groups).toMatchObject([
      { count: 1_050, firstFailedAt: testTime + 1_000, lastFailedAt: server.clock.now },
    ]);
    expect(await read(`?cause=${groups[0].cause}`)).toEqual({ ...all, groups });
    expect(await read("?cause=00000000000")).toEqual({ entries: 0, causes: 0, groups: [] });
    const filter = `?workflowUrl=${encodeURIComponent(endpoint)}`;
    const { cursor, ...first } = await read(filter);
    expect(first).toMatchObject({ entries: 1_000, more: true, groups: [{ count: 1_000 }] });
    const rest = await read(`${filter}&cursor=${cursor}`);
    expect(rest).toMatchObject({ entries: 50, groups: [{ count: 50, firstFailedAt: testTime + 1_000 }] });
    expect(rest).not.toHaveProperty("cursor");
    const body = JSON.stringify({ action: "runs.resume", filter: { cause: groups[0].cause }, dryRun: true });
    expect((await server.ask("POST", "/v2/jobs", { body })).body).toMatchObject({ count: 1_050 });
  });
});
