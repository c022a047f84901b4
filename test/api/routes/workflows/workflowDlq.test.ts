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

const runIds = async ({ ask }: TestServer, query = "", path = "/v2/workflows/dlq"): Promise<string[]> => {
  const { status, body } = await ask("GET", `${path}${query}`);
  expect(status).toBe(200);
  return body.messages.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId);
};

describe("an entry", () => {
  test("is the message with its answer, its run, and what became of the failure callback", async () => {
    const home = await createTestServer();
    const failureCallback = { ...callbackTo("https://app.example/failed"), headers: [["X-F", "1"]] as const };
    const flowControl = { key: "k", parallelism: 2, rate: null, period: null };
    const dlqId = await failRunAndRead(home, "wfr_1", { failureCallback, labels: ["a", "b"], callerIp: "192.0.2.7", flowControl });
    const created = home.clock.now;
    const [callback] = home.deliveries.splice(0);
    if (callback) await home.settle(callback, { status: 202, headers: [["X-B", "1"]], body: bytes("seen") });
    const entry = {
      ...{ dlqId, messageId: expect.stringMatching(/^msg_/), url: endpoint, method: "POST", maxRetries: 0 },
      ...{ header: { "Upstash-Workflow-Sdk-Version": ["1"] }, createdAt: created, notBefore: created, callerIP: "192.0.2.7" },
      ...{ label: "a", labels: ["a", "b"], flowControlKey: "k", parallelism: 2, period: 1 },
      ...{ workflowRunId: "wfr_1", workflowCreatedAt: created, workflowUrl: endpoint },
      ...{ body: "payload", responseStatus: 500, responseHeader: {}, responseBody: '{"error":"Error","message":"boom"}', error: "boom" },
      ...{ failureCallback: "https://app.example/failed", failureCallbackHeader: { "X-F": ["1"] } },
      failureFunctionState: "CALLBACK_SUCCESS",
      failureCallbackInfo: { state: "CALLBACK_SUCCESS", responseStatus: 202, responseBody: "seen", responseHeaders: { "X-B": ["1"] } },
    };
    for (const url of [`/v2/workflows/dlq/${dlqId}`, `/v2/dlq/${dlqId}`]) {
      expect(await home.ask("GET", url)).toMatchObject({ status: 200, body: entry });
      expect((await home.ask("GET", url)).body).toEqual(entry);
    }
    for (const url of ["/v2/workflows/dlq", "/v2/dlq?source=workflow"])
      expect((await home.ask("GET", url)).body).toEqual({ messages: [entry] });
    expect((await home.ask("GET", "/v2/dlq")).body).toEqual({ messages: [] });
  });

  test.each([
    ["no answer", { status: null, body: bytes(""), error: "connection refused" }, "connection refused"],
    ["an answer that says nothing", { body: bytes("<html>") }, "the endpoint answered with status 500"],
    ["a stranger's answer", { status: 200, body: bytes("ok") }, expect.stringMatching(/^detected a non-workflow destination/)],
    [
      "an error with a name",
      { body: bytes('{"error":"TypeError","message":"x is not a function","stack":"s"}') },
      "TypeError: x is not a function",
    ],
    ["an error that is none", { body: bytes('{"message":7}') }, "the endpoint answered with status 500"],
  ])("after %s says why the run failed", async (_, outcome, error) => {
    const home = await createTestServer();
    await failRunAndRead(home, "wfr_1", { outcome });
    expect((await home.ask("GET", "/v2/workflows/dlq")).body.messages).toMatchObject([{ error }]);
  });

  test("names the step that failed, or the one before it", async () => {
    const home = await createTestServer();
    const first = await start(home, "wfr_1");
    await home.settle(takeDelivery(home, first), workflowAnswer);
    const plan = await step(home, "wfr_1", { stepId: 0, targetStep: 1, stepName: "charge card" });
    await home.settle(takeDelivery(home, plan), { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
    home.clock.now += 1;
    await home.settle(takeDelivery(home, await start(home, "wfr_2")), workflowAnswer);
    const result = await step(home, "wfr_2", { stepName: "reserve" });
    await home.settle(takeDelivery(home, result), { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
    const { messages } = (await home.ask("GET", "/v2/workflows/dlq")).body;
    expect(messages.map(({ stepName = null, afterStep = null }) => [stepName, afterStep])).toEqual([
      ["charge card", null],
      [null, "reserve"],
    ]);
  });

  test("hides what is to be hidden, in the headers of its failure callback as well", async () => {
    const home = await createTestServer();
    const secret = [["X-Key", "secret"]] as const;
    await failRunAndRead(home, "wfr_1", {
      ...{ headers: secret, body: bytes("secret"), failureCallback: { ...callbackTo("https://f.example"), headers: secret } },
      redaction: { body: true, headers: true },
      outcome: { headers: secret, body: bytes('{"message":"secret"}') },
    });
    const { body } = await home.ask("GET", "/v2/workflows/dlq");
    expect(body.messages).toHaveLength(1);
    expect(JSON.stringify(body)).not.toContain("secret");
  });
});

/** Four runs, a second apart, and a message. */
async function four() {
  const home = await createTestServer();
  const told = { failureCallback: callbackTo("https://app.example/failed") };
  const flowControl = { key: "k%", parallelism: null, rate: 5, period: null };
  const a = await failRunAndRead(home, "order-1", { ...told, labels: ["x"], callerIp: "192.0.2.1" });
  const [callback] = home.deliveries.splice(0);
  if (callback) await home.settle(callback, { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
  const b = await failRunAndRead(home, "order-10", { labels: ["x", "y"], flowControl });
  const c = await failRunAndRead(home, "order_%1", { url: "https://other.example/flow", outcome: { status: 404 } });
  const d = await failRunAndRead(home, "ORDER-1", { ...told });
  const started = testTime + 1_000;
  await home.store.execute("publish", { account: "acc_1", inputs: [] });
  const { body } = await home.ask("POST", "/v2/publish/https://m.example", { headers: { "svc-retries": "0", "svc-label": "x" } });
  await home.settle(takeDelivery(home, body.messageId), { status: 500 });
  return { home, a, b, c, d, started };
}

describe("the body of an entry", () => {
  const all = async (home: TestServer, dlqId: string): Promise<unknown[]> => [
    (await home.ask("GET", `/v2/workflows/dlq/${dlqId}`)).body,
    (await home.ask("GET", `/v2/dlq/${dlqId}`)).body,
    (await home.ask("GET", "/v2/workflows/dlq")).body.messages[0],
    (await home.ask("GET", "/v2/dlq?source=workflow")).body.messages[0],
  ];

  test("is the initial payload of the run, whichever step failed", async () => {
    const home = await createTestServer();
    const first = takeDelivery(home, await start(home, "wfr_1", { body: bytes('{"order":1}') }));
    await home.settle(first, workflowAnswer);
    await home.settle(takeDelivery(home, await step(home, "wfr_1", {})), { status: 500, body: bytes("boom") });
    const [{ dlqId }] = (await home.ask("GET", "/v2/workflows/dlq")).body.messages;
    for (const entry of await all(home, dlqId)) expect(entry).toMatchObject({ dlqId, body: '{"order":1}', responseBody: "boom" });
  });

  test("is in base64 when it is not UTF-8, and is hidden when the run hides its bodies", async () => {
    const home = await createTestServer();
    const binary = await failRunAndRead(home, "wfr_1", { body: Buffer.from([0xff]) });
    for (const entry of await all(home, binary)) {
      expect(entry).toMatchObject({ bodyBase64: "/w==" });
      expect(entry).not.toHaveProperty("body");
    }
    await home.ask("DELETE", "/v2/workflows/dlq");
    const redaction = { body: true, headers: false } as const;
    const hidden = await failRunAndRead(home, "wfr_2", { body: bytes("secret"), redaction });
    for (const entry of await all(home, hidden)) {
      expect(entry).toMatchObject({ body: expect.stringMatching(/^REDACTED:[0-9a-f]{64}$/) });
      expect(JSON.stringify(entry)).not.toContain("secret");
    }
  });

  test("counts towards what a page may hold", async () => {
    const home = await createTestServer();
    for (const id of "abcdef") await failRunAndRead(home, id, { body: Buffer.alloc(8 * 1024 * 1024, "x") });
    const first = (await home.ask("GET", "/v2/workflows/dlq")).body;
    const second = (await home.ask("GET", `/v2/workflows/dlq?cursor=${first.cursor}`)).body;
    expect([first.messages.length, second.messages.length, second.cursor]).toEqual([3, 3, undefined]);
  });
});

describe("the list", () => {
  test.each([
    ["", "order-1 order-10 order_%1 ORDER-1"],
    ["?order=latestFirst", "ORDER-1 order_%1 order-10 order-1"],
    ["?workflowRunId=order-10", "order-10"],
    ["?workflowRunId=order-1", "order-1"],
    ["?workflowRunId=order", ""],
    ["?workflowRunId=order_%251", "order_%1"],
    ["?workflowRunId=%25", ""],
    ["?workflowRunId=order-1&workflowRunId=ORDER-1", "order-1 ORDER-1"],
    ["?workflowRunId=rder", ""],
    ["?workflowRunId=order-1%20", ""],
    ["?workflowUrl=https://other.example/flow", "order_%1"],
    ["?workflowUrl=https://other.example/", ""],
    ["?url=https://other.example/flow", "order_%1"],
    [`?workflowCreatedAt=${testTime + 2_000}`, "order-10"],
    [`?workflowCreatedAt=${testTime + 1_000}&workflowRunId=order-1`, "order-1"],
    [`?fromDate=${testTime + 2_000}&toDate=${testTime + 3_000}`, "order-10 order_%1"],
    ["?label=x", "order-1 order-10"],
    ["?label=x&label=y&workflowRunId=order-10", "order-10"],
    ["?label=z", ""],
    ["?failureFunctionState=CALLBACK_FAIL", "order-1"],
    ["?failureCallbackState=CALLBACK_INPROGRESS", "ORDER-1"],
    ["?failureCallbackState=CALLBACK_INPROGRESS,CALLBACK_FAIL", "order-1 ORDER-1"],
    ["?callerIp=192.0.2.1", "order-1"],
    ["?callerIP=192.0.2.1", "order-1"],
    ["?flowControlKey=k%25", "order-10"],
    ["?responseStatus=404", "order_%1"],
    ["?responseStatus=404&responseStatus=500&label=y", "order-10"],
    ["?messageId=msg_unknown", ""],
  ])("of what passes %s", async (query, expected) => {
    const { home } = await four();
    const words = expected === "" ? [] : expected.split(" ");
    expect(await runIds(home, query)).toEqual(words);
    expect(await runIds(home, `${query === "" ? "?" : `${query}&`}source=workflow`, "/v2/dlq")).toEqual(words);
  });

  test("of ids has runs only, and no other filter counts", async () => {
    const { home, a, c } = await four();
    const { body } = await home.ask("GET", "/v2/dlq");
    expect(body.messages).toMatchObject([{ url: "https://m.example" }]);
    expect(await runIds(home, `?dlqIds=${c}&dlqIds=${a}&dlqIds=${body.messages[0].dlqId}&dlqIds=1-1&label=z`)).toEqual([
      "order-1",
      "order_%1",
    ]);
  });

  test("goes on page by page", async () => {
    const { home } = await four();
    const first = (await home.ask("GET", "/v2/workflows/dlq?count=3")).body;
    expect(first.messages).toHaveLength(3);
    expect(await runIds(home, `?count=3&cursor=${first.cursor}`)).toEqual(["ORDER-1"]);
    expect((await home.ask("GET", `/v2/workflows/dlq?count=3&cursor=${first.cursor}`)).body).not.toHaveProperty("cursor");
  });

  test("of another account is empty", async () => {
    const { home, a } = await four();
    expect((await home.ask("GET", "/v2/workflows/dlq", { token: otherToken })).body).toEqual({ messages: [] });
    expect((await home.ask("GET", `/v2/workflows/dlq?dlqIds=${a}`, { token: otherToken })).body).toEqual({ messages: [] });
    for (const [method, path] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "resume/"],
      ["POST", "restart/"],
      ["POST", "callback/"],
      ["DELETE", "callback/"],
    ] as const) {
      expect(await home.ask(method, `/v2/workflows/dlq/${path}${a}`, { token: otherToken })).toMatchObject({ status: 404 });
    }
    expect((await home.ask("DELETE", `/v2/workflows/dlq?dlqIds=${a}`, { token: otherToken })).body).toEqual({
      ...{ deleted: 0, failed: [{ id: a, reason: expect.stringMatching(/there is no failed run/) }] },
    });
    expect((await home.ask("POST", `/v2/workflows/dlq/resume?dlqIds=${a}`, { token: otherToken })).body).toEqual({
      ...{ workflowRuns: [], cursor: "" },
      failed: [{ id: a, reason: expect.stringMatching(/there is no failed run/) }],
    });
    expect(await runIds(home)).toHaveLength(4);
  });

  test("of ids that are not there names each of them once, on the page that has looked for it", async () => {
    const { home, a, b, c } = await four();
    const [before, between, behind] = ["1000000000000-1", `${b}9`, "9999999999999-1"];
    const named = [before, a, between, behind, c].map((id) => `dlqIds=${id}`).join("&");
    const failedOf = async (cursor: string): Promise<[number, string[]]> => {
      const { body } = await home.ask("DELETE", `/v2/workflows/dlq?${named}${cursor}`);
      return [body.deleted, (body.failed ?? []).map(({ id }: { id: string }) => id)];
    };
    expect(await failedOf(`&cursor=${c}`)).toEqual([0, [behind]]);
    expect(await failedOf("")).toEqual([2, [before, between, behind]]);
  });

  test.each([
    ["labeel=a", "labeel: there is no such parameter"],
    ["count=0", "count: must be at least 1"],
    ["cursor=x", "cursor: not one that this list has given out"],
    ["fromDate=2&toDate=1", "fromDate: is later than toDate"],
    ["failureFunctionState=FAIL", "failureFunctionState: is none of CALLBACK_INPROGRESS"],
    ["workflowRunId=", "workflowRunId: is empty"],
    [`workflowRunId=${"x".repeat(513)}`, "workflowRunId: is longer than 512 characters"],
    ["workflowCreatedAt=yesterday", "workflowCreatedAt: is not a whole number"],
    ["queueName=q", "queueName: there is no such parameter"],
    ["svc-retries=1", "svc-retries: this request takes no settings"],
  ])("refuses ?%s", async (query, error) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", `/v2/workflows/dlq?${query}`)).toMatchObject({ status: 400, body: { error: expect.stringContaining(error) } });
  });
});

describe("deleting", () => {
  test("one, and then it is not there any more", async () => {
    const { home, a } = await four();
    expect(await home.ask("DELETE", `/v2/workflows/dlq/${a}`)).toMatchObject({ status: 200, body: { deleted: 1 } });
    expect(await home.ask("DELETE", `/v2/workflows/dlq/${a}`)).toMatchObject({ status: 404 });
    expect(await runIds(home)).toEqual(["order-10", "order_%1", "ORDER-1"]);
  });

  test("many: by ids, by filters, a portion at a time; never a message", async () => {
    const { home, b } = await four();
    const [{ dlqId: message }] = (await home.ask("GET", "/v2/dlq")).body.messages;
    const missing = (id: string) => ({ id, reason: `dlqId: there is no failed run "${id}"` });
    expect((await home.ask("DELETE", "/v2/workflows/dlq", { body: JSON.stringify({ dlqIds: ["1-1"] }) })).body).toEqual({
      deleted: 0,
      failed: [missing("1-1")],
    });
    expect((await home.ask("DELETE", `/v2/workflows/dlq?dlqIds=${b},${message},1-1,${message}`)).body).toEqual({
      deleted: 1,
      failed: [missing(message), missing("1-1")],
    });
    expect((await home.ask("DELETE", "/v2/workflows/dlq?label=x")).body).toEqual({ deleted: 1 });
    const { cursor, ...first } = (await home.ask("DELETE", "/v2/workflows/dlq?count=1")).body;
    expect(first).toEqual({ deleted: 1 });
    expect((await home.ask("DELETE", `/v2/workflows/dlq?count=1&cursor=${cursor}`)).body).toEqual({ deleted: 1 });
    expect((await home.ask("GET", "/v2/dlq")).body.messages).toHaveLength(1);
  });

  test("by the id of a run leaves those alone whose ids begin so", async () => {
    const { home } = await four();
    expect((await home.ask("DELETE", "/v2/workflows/dlq?workflowRunId=order-1")).body).toEqual({ deleted: 1 });
    expect(await runIds(home)).toEqual(["order-10", "order_%1", "ORDER-1"]);
  });

  test("of messages leaves runs alone, unless one is named", async () => {
    const { home, a } = await four();
    expect((await home.ask("DELETE", "/v2/dlq")).body).toEqual({ deleted: 1 });
    expect(await runIds(home)).toHaveLength(4);
    expect((await home.ask("DELETE", `/v2/dlq/${a}`)).body).toEqual({ deleted: 1 });
    expect(await runIds(home)).toHaveLength(3);
  });
});

describe("retrying a run as a message", () => {
  test("is refused with the way that it goes on", async () => {
    const { home, a } = await four();
    const reply = await home.ask("POST", `/v2/dlq/retry/${a}`);
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(`/v2/workflows/dlq/resume/${a}`) } });
    expect((await home.ask("POST", `/v2/dlq/retry?dlqIds=${a}`)).body).toEqual({
      ...{ cursor: "", responses: [] },
      failed: [{ id: a, reason: expect.stringContaining(`/v2/workflows/dlq/resume/${a}`) }],
    });
    expect(await runIds(home)).toHaveLength(4);
  });
});

describe("dry runs", () => {
  test("tell how many there are, and do nothing", async () => {
    const { home, a, b, c, d } = await four();
    const wanted: [method: string, url: string, count: number, sample?: string[]][] = [
      ["POST", "/v2/workflows/dlq/resume", 4, [a, b, c, d]],
      ["POST", "/v2/workflows/dlq/restart?label=x", 2, [a, b]],
      ["POST", "/v2/workflows/dlq/resume?count=3", 3, [a, b, c]],
      ["POST", "/v2/workflows/dlq/resume?workflowRunId=order-1", 2, [a, b]],
      ["POST", "/v2/workflows/dlq/restart?workflowRunId=order", 3, [a, b, c]],
      ["DELETE", "/v2/workflows/dlq?workflowRunId=order-1", 1, [a]],
      ["POST", `/v2/workflows/dlq/resume?dlqIds=${a}&dlqIds=1800000000000-1`, 1, [a]],
      ["POST", `/v2/workflows/dlq/resume/${a}`, 1, [a]],
      ["POST", `/v2/workflows/dlq/restart/${a}`, 1, [a]],
      ["DELETE", "/v2/workflows/dlq", 4, [a, b, c, d]],
      ["DELETE", `/v2/workflows/dlq/${d}`, 1, [d]],
      ["DELETE", `/v2/workflows/dlq?cursor=${b}`, 2, [c, d]],
      ["DELETE", "/v2/dlq", 1],
      ["DELETE", `/v2/dlq?dlqIds=${a}`, 1, [a]],
      ["POST", `/v2/dlq/retry?dlqIds=${a}`, 0, []],
      ["POST", "/v2/dlq/retry", 1],
      ["DELETE", "/v2/messages", 1],
    ];
    for (const [method, url, count, sample] of wanted) {
      const { status, body } = await home.ask(method, `${url}${url.includes("?") ? "&" : "?"}dryRun=true`);
      expect([url, status < 300, body]).toEqual([url, true, { dryRun: true, count, sample: sample ?? [expect.any(String)] }]);
      for (const given of ["true", true]) {
        const reply = await home.ask(method, url, { body: JSON.stringify({ dryRun: given }) });
        expect([url, reply.status, reply.body]).toEqual([url, status, body]);
      }
    }
    expect(await runIds(home)).toHaveLength(4);
    expect((await home.ask("GET", "/v2/dlq")).body.messages).toHaveLength(1);
    expect((await home.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 1 });
  });

  test("of an entry that is not there are 404", async () => {
    const { ask } = await createTestServer();
    for (const path of ["resume/", "restart/"])
      expect(await ask("POST", `/v2/workflows/dlq/${path}1800000000000-1?dryRun=true`)).toMatchObject({ status: 404 });
    expect(await ask("DELETE", "/v2/workflows/dlq/1800000000000-1?dryRun=true")).toMatchObject({ status: 404 });
    expect(await ask("DELETE", "/v2/workflows/dlq?dryRun=maybe")).toMatchObject({ status: 400 });
  });
});

describe("grouping", () => {
  test("puts together what failed at the same place with the same error", async () => {
    const home = await createTestServer();
    const says = (message: string) => ({ outcome: { body: bytes(JSON.stringify({ error: "Error", message })) } });
    await failRunAndRead(home, "a", says("order 1 of user 'ann' is gone"));
    const last = await failRunAndRead(home, "b", says("order 22 of user 'bob' is gone"));
    const other = await failRunAndRead(home, "c", { url: "https://other.example", ...says("order 3 of user 'x' is gone") });
    expect((await home.ask("GET", "/v2/workflows/dlq/groups")).body).toEqual({
      entries: 3,
      groups: [
        {
          ...{ workflowUrl: endpoint, error: "order … of user … is gone", count: 2, dlqId: last },
          ...{ firstFailedAt: testTime + 1_000, lastFailedAt: testTime + 2_000 },
        },
        {
          ...{ workflowUrl: "https://other.example", error: "order … of user … is gone", count: 1, dlqId: other },
          ...{ firstFailedAt: testTime + 3_000, lastFailedAt: testTime + 3_000 },
        },
      ],
    });
    expect((await home.ask("GET", "/v2/workflows/dlq/groups?workflowRunId=c")).body).toMatchObject({ entries: 1, groups: [{ count: 1 }] });
    expect((await home.ask("GET", "/v2/workflows/dlq/groups", { token: otherToken })).body).toEqual({ entries: 0, groups: [] });
  });

  test("of very many looks at the latest thousand, and goes on behind them", async () => {
    const home = await createTestServer();
    for (let n = 0; n < 1_050; n++) await failRun(home, `run-${n}`);
    const { cursor, ...first } = (await home.ask("GET", "/v2/workflows/dlq/groups")).body;
    expect(first).toMatchObject({ entries: 1_000, more: true, groups: [{ count: 1_000, lastFailedAt: home.clock.now }] });
    const { body } = await home.ask("GET", `/v2/workflows/dlq/groups?cursor=${cursor}`);
    expect(body).toMatchObject({ entries: 50, groups: [{ count: 50, firstFailedAt: testTime + 1_000 }] });
    expect(body).not.toHaveProperty("cursor");
  });
});
