import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { endpoint, takeHistories } from "./workflow.ts";
import type { Headers } from "./workflowPosts.ts";
import { startHeaders, start, toHeaders } from "./workflowPosts.ts";

describe("an invocation", () => {
  const child = "https://app.example/child";
  const aStep = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
  const invoking = (more: Record<string, unknown> = {}): string =>
    JSON.stringify({
      body: "x",
      headers: {
        "Upstash-Workflow-Init": ["false"],
        "Upstash-Workflow-RunId": ["parent"],
        "Upstash-Workflow-Runid": ["parent"],
        "Upstash-Forward-Upstash-Workflow-Sdk-Version": ["1"],
        "Upstash-Forward-X": ["1"],
        "upstash-forward-x": ["1"],
        "content-type": ["application/json"],
      },
      workflowRunId: "parent",
      workflowRunCreatedAt: testTime,
      workflowUrl: endpoint,
      step: aStep,
      ...more,
    });
  const invoke = (
    server: TestServer,
    body: string,
    { headers = {}, token }: { headers?: Headers; token?: string } = {},
  ): Promise<Reply> =>
    server.ask("POST", `/v2/publish/${child}`, {
      headers: startHeaders("child", {
        "upstash-workflow-url": child,
        "upstash-workflow-invoke": "true",
        "upstash-forward-upstash-workflow-invoke-count": "1",
        ...headers,
      }),
      body,
      ...(token === undefined ? {} : { token }),
    });

  test("of client 0.2.9, which names the invoked run, reports to the run of its headers", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    const body = invoking({ workflowRunId: "child", workflowRunCreatedAt: undefined });
    expect(await invoke(server, body)).toMatchObject({ status: 200 });
    takeHistories(server);
    await server.store.execute("finishRun", { account: "acc_1", runId: "child", body: Buffer.from('"r"') });
    expect(server.deliveries[0]?.message).toMatchObject({ url: endpoint, run: { runId: "parent" } });
  });

  test("starts a run with the payload, whose end is a step of the invoking run", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    takeHistories(server);
    expect(await invoke(server, invoking())).toMatchObject({
      status: 200,
      body: { messageId: expect.any(String) },
    });
    expect(toHeaders(server.deliveries[0] as Delivery)).toMatchObject({
      "Upstash-Workflow-Invoke-Count": "1",
    });
    expect(takeHistories(server)).toEqual([["x"]]);
    await server.store.execute("finishRun", { account: "acc_1", runId: "child", body: Buffer.from('"r"') });
    expect(server.deliveries[0]?.message).toMatchObject({ url: endpoint, run: { runId: "parent" } });
    expect(toHeaders(server.deliveries[0] as Delivery)).toEqual({
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
      X: "1",
    });
    const [[, result] = []] = takeHistories(server);
    expect(JSON.parse(result ?? "")).toEqual({
      stepId: 1,
      stepName: "inv",
      stepType: "Invoke",
      concurrent: 1,
      out: '{"body":"\\"r\\"","isCanceled":false,"isFailed":false}',
    });
  });

  test("without a payload starts a run with an empty one", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    takeHistories(server);
    expect((await invoke(server, invoking({ body: undefined }))).status).toBe(200);
    expect(takeHistories(server)).toEqual([[""]]);
  });

  test.for<[what: string, body: string, headers: Headers, status: number, error: RegExp]>([
    ["invalid JSON", "{", {}, 412, /^body: not valid JSON/],
    ["a JSON array", "[]", {}, 412, /^body: is not a JSON object/],
    ["no waiting run", invoking({ workflowRunId: undefined }), {}, 412, /^workflowRunId: is missing/],
    ["an invalid run id", invoking({ workflowRunId: "a\u0000" }), {}, 412, /^body.workflowRunId: /],
    ["an unknown run", invoking({ workflowRunId: "else" }), {}, 400, /^workflow-runid: no active run "else"/],
    [
      "no URL",
      invoking({ workflowUrl: "app" }),
      {},
      412,
      /^body.workflowUrl: "app" is not an http:\/\/ or https:\/\/ URL/,
    ],
    ["no step", invoking({ step: undefined }), {}, 412, /^step: is missing/],
    [
      "an invalid step",
      invoking({ step: { stepId: 0, stepName: "a", stepType: "b" } }),
      {},
      412,
      /^step: requires stepId/,
    ],
    [
      "a step whose id is not a number",
      invoking({ step: { ...aStep, stepId: { toString: 1, valueOf: 1 } } }),
      {},
      412,
      /^step: requires stepId/,
    ],
    [
      "a step that is too long",
      invoking({ step: { stepId: 1, stepName: "n".repeat(20_000) } }),
      {},
      412,
      /^body.step: longer than 16384/,
    ],
    [
      "headers that HTTP cannot carry",
      invoking({ headers: { "upstash-forward-x": ["a\nb"] } }),
      {},
      412,
      /^body.headers: /,
    ],
    [
      "an invalid invoke count",
      invoking(),
      { "upstash-forward-upstash-workflow-invoke-count": "x" },
      412,
      /^workflow-invoke-count: /,
    ],
    [
      "too many levels of invocations",
      invoking(),
      { "upstash-forward-upstash-workflow-invoke-count": "100" },
      412,
      /the limit is 100/,
    ],
  ])("with %s is refused and starts nothing", async ([, body, headers, status, error]) => {
    const server = await createTestServer();
    await start(server, "parent");
    server.deliveries.splice(0);
    expect(await invoke(server, body, { headers })).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
    expect(await server.store.read.activeRun("acc_1", "child")).toBeNull();
  });

  test("for a run of another account is refused", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    expect((await invoke(server, invoking(), { token: otherToken })).status).toBe(400);
    expect(await server.store.read.activeRun("acc_2", "child")).toBeNull();
  });

  test("may be 99 levels deep", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    expect(
      (
        await invoke(server, invoking(), {
          headers: { "upstash-forward-upstash-workflow-invoke-count": "99" },
        })
      ).status,
    ).toBe(200);
  });
});
