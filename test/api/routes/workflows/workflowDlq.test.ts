import { describe, expect, test } from "vitest";
import { callbackTo, takeDelivery, failRunAndRead } from "../lists/failedRunLists.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";

const runIds = async ({ ask }: TestServer, query = "", path = "/v2/workflows/dlq"): Promise<string[]> => {
  const { status, body } = await ask("GET", `${path}${query}`);
  expect(status).toBe(200);
  return body.messages.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId);
};

/** Creates four failed runs, one second apart, and a dead letter of a message. */
async function failFour() {
  const server = await createTestServer();
  const withCallback = { failureCallback: callbackTo("https://app.example/failed") };
  const flowControl = { key: "k%", parallelism: null, rate: 5, period: null };
  const a = await failRunAndRead(server, "order-1", {
    ...withCallback,
    labels: ["x"],
    callerIp: "192.0.2.1",
  });
  const [callback] = server.deliveries.splice(0);
  if (callback)
    await server.settle(callback, { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
  const b = await failRunAndRead(server, "order-10", { labels: ["x", "y"], flowControl });
  const c = await failRunAndRead(server, "order_%1", {
    url: "https://other.example/flow",
    outcome: { status: 404 },
  });
  const d = await failRunAndRead(server, "ORDER-1", withCallback);
  const started = testTime + 1_000;
  await server.store.execute("publish", { account: "acc_1", inputs: [] });
  const { body } = await server.ask("POST", "/v2/publish/https://m.example", {
    headers: { "svc-retries": "0", "svc-label": "x" },
  });
  await server.settle(takeDelivery(server, body.messageId), { status: 500 });
  return { server, a, b, c, d, started };
}

describe("the list of failed runs", () => {
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
  ])("filtered by %s", async (query, expected) => {
    const { server } = await failFour();
    const words = expected === "" ? [] : expected.split(" ");
    expect(await runIds(server, query)).toEqual(words);
    expect(await runIds(server, `${query === "" ? "?" : `${query}&`}source=workflow`, "/v2/dlq")).toEqual(
      words,
    );
  });

  test("by ids has only runs and ignores other filters", async () => {
    const { server, a, c } = await failFour();
    const { body } = await server.ask("GET", "/v2/dlq");
    expect(body.messages).toMatchObject([{ url: "https://m.example" }]);
    expect(
      await runIds(server, `?dlqIds=${c}&dlqIds=${a}&dlqIds=${body.messages[0].dlqId}&dlqIds=1-1&label=z`),
    ).toEqual(["order-1", "order_%1"]);
  });

  test("is paged", async () => {
    const { server } = await failFour();
    const first = (await server.ask("GET", "/v2/workflows/dlq?count=3")).body;
    expect(first.messages).toHaveLength(3);
    expect(await runIds(server, `?count=3&cursor=${first.cursor}`)).toEqual(["ORDER-1"]);
    expect(
      (await server.ask("GET", `/v2/workflows/dlq?count=3&cursor=${first.cursor}`)).body,
    ).not.toHaveProperty("cursor");
  });

  test("of another account is empty, and its actions find nothing", async () => {
    const { server, a } = await failFour();
    expect((await server.ask("GET", "/v2/workflows/dlq", { token: otherToken })).body).toEqual({
      messages: [],
    });
    expect((await server.ask("GET", `/v2/workflows/dlq?dlqIds=${a}`, { token: otherToken })).body).toEqual({
      messages: [],
    });
    for (const [method, path] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "resume/"],
      ["POST", "restart/"],
      ["POST", "callback/"],
      ["DELETE", "callback/"],
    ] as const) {
      expect(await server.ask(method, `/v2/workflows/dlq/${path}${a}`, { token: otherToken })).toMatchObject({
        status: 404,
      });
    }
    expect((await server.ask("DELETE", `/v2/workflows/dlq?dlqIds=${a}`, { token: otherToken })).body).toEqual(
      {
        deleted: 0,
        failed: [{ id: a, reason: expect.stringMatching(/no failed run/) }],
      },
    );
    expect(
      (await server.ask("POST", `/v2/workflows/dlq/resume?dlqIds=${a}`, { token: otherToken })).body,
    ).toEqual({
      workflowRuns: [],
      cursor: "",
      failed: [{ id: a, reason: expect.stringMatching(/no failed run/) }],
    });
    expect(await runIds(server)).toHaveLength(4);
  });

  test("reports each unknown id once, on the page that covers it", async () => {
    const { server, a, b, c } = await failFour();
    const before = "1000000000000-1";
    const between = `${b}9`;
    const behind = "9999999999999-1";
    const named = [before, a, between, behind, c].map((id) => `dlqIds=${id}`).join("&");
    const failedOf = async (cursor: string): Promise<[number, string[]]> => {
      const { body } = await server.ask("DELETE", `/v2/workflows/dlq?${named}${cursor}`);
      return [body.deleted, (body.failed ?? []).map(({ id }: { id: string }) => id)];
    };
    expect(await failedOf(`&cursor=${c}`)).toEqual([0, [behind]]);
    expect(await failedOf("")).toEqual([2, [before, between, behind]]);
  });

  test.each([
    ["labeel=a", "labeel: unknown parameter"],
    ["count=0", "count: must be at least 1"],
    ["cursor=x", "cursor: unknown; use the cursor of the previous page"],
    ["fromDate=2&toDate=1", "fromDate: is later than toDate"],
    ["failureFunctionState=FAIL", "failureFunctionState: must be one of CALLBACK_INPROGRESS"],
    ["workflowRunId=", "workflowRunId: is empty"],
    [`workflowRunId=${"x".repeat(513)}`, "workflowRunId: is longer than 512 characters"],
    ["workflowCreatedAt=yesterday", "workflowCreatedAt: is not a whole number"],
    ["queueName=q", "queueName: unknown parameter"],
    ["svc-retries=1", "svc-retries: this request takes no settings"],
  ])("refuses ?%s", async (query, error) => {
    const { ask } = await createTestServer();
    expect(await ask("GET", `/v2/workflows/dlq?${query}`)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining(error) },
    });
  });
});

describe("deleting failed runs", () => {
  test("deletes one run", async () => {
    const { server, a } = await failFour();
    expect(await server.ask("DELETE", `/v2/workflows/dlq/${a}`)).toMatchObject({
      status: 200,
      body: { deleted: 1 },
    });
    expect(await server.ask("DELETE", `/v2/workflows/dlq/${a}`)).toMatchObject({ status: 404 });
    expect(await runIds(server)).toEqual(["order-10", "order_%1", "ORDER-1"]);
  });

  test("deletes many runs by ids or filters, page by page, but never a message", async () => {
    const { server, b } = await failFour();
    const [{ dlqId: message }] = (await server.ask("GET", "/v2/dlq")).body.messages;
    const missing = (id: string) => ({ id, reason: `dlqId: no failed run "${id}"` });
    expect(
      (await server.ask("DELETE", "/v2/workflows/dlq", { body: JSON.stringify({ dlqIds: ["1-1"] }) })).body,
    ).toEqual({
      deleted: 0,
      failed: [missing("1-1")],
    });
    expect(
      (await server.ask("DELETE", `/v2/workflows/dlq?dlqIds=${b},${message},1-1,${message}`)).body,
    ).toEqual({
      deleted: 1,
      failed: [missing(message), missing("1-1")],
    });
    expect((await server.ask("DELETE", "/v2/workflows/dlq?label=x")).body).toEqual({ deleted: 1 });
    const { cursor, ...first } = (await server.ask("DELETE", "/v2/workflows/dlq?count=1")).body;
    expect(first).toEqual({ deleted: 1 });
    expect((await server.ask("DELETE", `/v2/workflows/dlq?count=1&cursor=${cursor}`)).body).toEqual({
      deleted: 1,
    });
    expect((await server.ask("GET", "/v2/dlq")).body.messages).toHaveLength(1);
  });

  test("by a run id does not delete runs that only begin with it", async () => {
    const { server } = await failFour();
    expect((await server.ask("DELETE", "/v2/workflows/dlq?workflowRunId=order-1")).body).toEqual({
      deleted: 1,
    });
    expect(await runIds(server)).toEqual(["order-10", "order_%1", "ORDER-1"]);
  });

  test("through the routes for messages deletes a run only if its id is given", async () => {
    const { server, a } = await failFour();
    expect((await server.ask("DELETE", "/v2/dlq")).body).toEqual({ deleted: 1 });
    expect(await runIds(server)).toHaveLength(4);
    expect((await server.ask("DELETE", `/v2/dlq/${a}`)).body).toEqual({ deleted: 1 });
    expect(await runIds(server)).toHaveLength(3);
  });
});

describe("retrying a run as a message", () => {
  test("is refused with the path that resumes it", async () => {
    const { server, a } = await failFour();
    const reply = await server.ask("POST", `/v2/dlq/retry/${a}`);
    expect(reply).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining(`/v2/workflows/dlq/resume/${a}`) },
    });
    expect((await server.ask("POST", `/v2/dlq/retry?dlqIds=${a}`)).body).toEqual({
      cursor: "",
      responses: [],
      failed: [{ id: a, reason: expect.stringContaining(`/v2/workflows/dlq/resume/${a}`) }],
    });
    expect(await runIds(server)).toHaveLength(4);
  });
});

describe("dry runs", () => {
  test("return the number of entries and change nothing", async () => {
    const { server, a, b, c, d } = await failFour();
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
      const { status, body } = await server.ask(method, `${url}${url.includes("?") ? "&" : "?"}dryRun=true`);
      expect([url, status < 300, body]).toEqual([
        url,
        true,
        { dryRun: true, count, sample: sample ?? [expect.any(String)] },
      ]);
      for (const given of ["true", true]) {
        const reply = await server.ask(method, url, { body: JSON.stringify({ dryRun: given }) });
        expect([url, reply.status, reply.body]).toEqual([url, status, body]);
      }
    }
    expect(await runIds(server)).toHaveLength(4);
    expect((await server.ask("GET", "/v2/dlq")).body.messages).toHaveLength(1);
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 1 });
  });

  test("of an unknown entry are 404", async () => {
    const { ask } = await createTestServer();
    for (const path of ["resume/", "restart/"])
      expect(await ask("POST", `/v2/workflows/dlq/${path}1800000000000-1?dryRun=true`)).toMatchObject({
        status: 404,
      });
    expect(await ask("DELETE", "/v2/workflows/dlq/1800000000000-1?dryRun=true")).toMatchObject({
      status: 404,
    });
    expect(await ask("DELETE", "/v2/workflows/dlq?dryRun=maybe")).toMatchObject({ status: 400 });
  });
});
