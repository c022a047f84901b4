import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer, Reply } from "../../testServer.ts";
import { endpoint, takeHistories, modernFeatures } from "./workflow.ts";

type Headers = Record<string, string>;
const trigger = (
  { ask }: TestServer,
  headers: Headers = {},
  { body = "payload", path = `/v2/trigger/${endpoint}` } = {},
): Promise<Reply> => ask("POST", path, { headers, body });
const batch = ({ ask }: TestServer, items: unknown): Promise<Reply> =>
  ask("POST", "/v2/batch/trigger", { body: JSON.stringify(items) });
const headersOf = ({ message }: Delivery): Headers => Object.fromEntries(message.headers);
const runOf = async (server: TestServer, runId: string) =>
  (await server.store.read.activeRun("acc_1", runId))?.run;

describe("a trigger", () => {
  test("starts a run as the workflow client would", async () => {
    const server = await createTestServer();
    const reply = await trigger(server, {
      "content-type": "text/plain",
      "svc-forward-my-header": "v",
      "svc-label": "a, b",
    });
    expect(reply).toMatchObject({
      status: 200,
      body: { workflowRunId: expect.stringMatching(/^wfr_\w{20,}$/), workflowCreatedAt: testTime },
    });
    expect(Object.keys(reply.body)).toEqual(["workflowRunId", "workflowCreatedAt"]);
    const [delivery] = server.deliveries;
    expect(delivery?.message).toMatchObject({
      url: endpoint,
      method: "POST",
      brand: "svc",
      labels: ["a", "b"],
      run: { runId: reply.body.workflowRunId, createdAt: testTime, first: "rest" },
    });
    expect(delivery && headersOf(delivery)).toEqual({
      "Content-Type": "text/plain",
      "My-Header": "v",
      "Svc-Workflow-Sdk-Version": "1",
      "Svc-Label": "a,b",
    });
    expect(takeHistories(server)).toEqual([["payload"]]);
    expect(await runOf(server, reply.body.workflowRunId)).toMatchObject({
      url: endpoint,
      features: modernFeatures,
      state: "RUN_STARTED",
    });
  });

  test("reports a failure to the workflow itself, with the same retry and key settings", async () => {
    const server = await createTestServer();
    const policy = { "upstash-retries": "0", "upstash-retry-delay": "7", "upstash-flow-control-key": "k" };
    const { body } = await trigger(server, {
      ...policy,
      "upstash-flow-control-value": "rate=1",
      "upstash-forward-my-header": "v",
      "upstash-label": "L",
      "upstash-failure-callback": "",
      "upstash-failure-callback-forward-mine": "f",
    });
    const first = server.delivery();
    const run = await runOf(server, body.workflowRunId);
    expect(run?.settings.failureCallback).toMatchObject({
      url: endpoint,
      retryDelay: "7",
      flowControl: { key: "k", rate: 1 },
    });
    server.clock.now += 1_000;
    await server.settle(first, { status: 500 });
    const callback = server.delivery();
    expect(callback.message).toMatchObject({
      url: endpoint,
      retries: 0,
      run: { kind: "failure", runId: body.workflowRunId },
    });
    expect(headersOf(callback)).toEqual({
      "Content-Type": "application/json",
      "My-Header": "v",
      Mine: "f",
      "Upstash-Workflow-Is-Failure": "true",
      "Upstash-Workflow-Failure-Callback": "true",
      "Upstash-Label": "L",
    });
  });

  test("keeps a given failure callback, with the same headers and its own settings", async () => {
    const server = await createTestServer();
    const { body } = await trigger(server, {
      "svc-failure-callback": "https://else.example",
      "svc-failure-callback-retry-delay": "9",
      "svc-retry-delay": "7",
      "svc-forward-my-header": "v",
      "svc-failure-callback-forward-my-header": "w",
    });
    expect((await runOf(server, body.workflowRunId))?.settings.failureCallback).toMatchObject({
      url: "https://else.example",
      retryDelay: "9",
      headers: [
        ["My-Header", "w"],
        ["Svc-Workflow-Is-Failure", "true"],
        ["Svc-Workflow-Failure-Callback", "true"],
      ],
    });
  });

  test("without prefixed headers uses Upstash- names and the content type application/json", async () => {
    const server = await createTestServer();
    await trigger(server);
    expect(server.deliveries[0]?.message.brand).toBe("upstash");
    expect(headersOf(server.delivery())).toEqual({
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
    });
  });

  test("with Unknown-Sdk asks the endpoint to start the run itself", async () => {
    const server = await createTestServer();
    const { body } = await trigger(server, {
      "upstash-workflow-unknown-sdk": "true",
      "upstash-workflow-runid": "mine",
    });
    expect(body).toEqual({ workflowRunId: "mine", workflowCreatedAt: testTime });
    expect(headersOf(server.delivery())).toMatchObject({
      "Upstash-Workflow-Sdk-Version": "1",
      "Upstash-Workflow-Unknown-Sdk": "true",
    });
  });

  test("with the id of an active run starts none", async () => {
    const server = await createTestServer();
    const first = await trigger(
      server,
      {},
      {
        body: "x",
        path: `/v2/trigger/${endpoint}?svc-workflow-runid=mine`,
      },
    );
    server.clock.now += 5;
    const again = await trigger(server, { "svc-workflow-runid": "mine" });
    expect(again).toMatchObject({ status: 200, body: { ...first.body, deduplicated: true } });
    expect(server.deliveries).toHaveLength(1);
    const foreign = await server.ask("POST", `/v2/trigger/${endpoint}`, {
      headers: { "svc-workflow-runid": "mine" },
      token: otherToken,
    });
    expect(foreign.body).toEqual({ workflowRunId: "mine", workflowCreatedAt: testTime + 5 });
  });

  test("goes to the URL in its path, byte for byte, and may be delayed", async () => {
    const server = await createTestServer();
    const url = "https://app.example/a%2fb?x=1&y=%20";
    await trigger(server, {}, { body: "", path: `/v2/trigger/${url}&svc-delay=10s` });
    expect(server.deliveries).toEqual([]);
    server.clock.now += 10_000;
    await server.store.execute("claim", { limit: 10 });
    expect(server.deliveries[0]?.message.url).toBe(url);
    expect(takeHistories(server)).toEqual([[""]]);
    expect(server.lines).toMatchObject([{ path: "/v2/trigger/https://app.example" }]);
  });

  test.for<[what: string, path: string, headers: Headers, status: number, error: RegExp]>([
    ["no URL", "/v2/trigger/group", {}, 400, /^destination: "group" is not an http:\/\/ or https:\/\/ URL/],
    ["no destination", "/v2/trigger/", {}, 400, /^destination: /],
    [
      "an invalid id",
      `/v2/trigger/${endpoint}`,
      { "svc-workflow-runid": "a".repeat(513) },
      400,
      /^svc-workflow-runid: /,
    ],
    [
      "Workflow-Init",
      `/v2/trigger/${endpoint}`,
      { "svc-workflow-init": "true" },
      400,
      /^svc-workflow-init: set by the trigger itself; remove it$/,
    ],
    [
      "Workflow-CallType",
      `/v2/trigger/${endpoint}`,
      { "svc-workflow-calltype": "step" },
      400,
      /^svc-workflow-calltype: set by the trigger itself; remove it$/,
    ],
    [
      "a run id for the failure callback",
      `/v2/trigger/${endpoint}`,
      { "svc-failure-callback-workflow-runid": "x" },
      400,
      /^svc-failure-callback-workflow-runid: /,
    ],
    ["a callback", `/v2/trigger/${endpoint}`, { "svc-callback": "https://e.example" }, 400, /^callback: /],
    [
      "a deduplication id",
      `/v2/trigger/${endpoint}`,
      { "svc-deduplication-id": "x" },
      400,
      /^svc-deduplication-id: /,
    ],
    ["too many retries", `/v2/trigger/${endpoint}`, { "svc-retries": "1001" }, 412, /^retries: /],
    [
      "an invalid failure callback",
      `/v2/trigger/${endpoint}`,
      { "svc-failure-callback": "x" },
      400,
      /^svc-failure-callback: /,
    ],
    [
      "Cron",
      `/v2/trigger/${endpoint}`,
      { "svc-cron": "* * * * *" },
      400,
      /^svc-cron: only valid for schedules; use /,
    ],
  ])("with %s is refused", async ([, path, headers, status, error]) => {
    const server = await createTestServer();
    expect(await trigger(server, headers, { body: "x", path })).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
  });
});

describe("a batch of triggers", () => {
  test("starts a run for each item, in order", async () => {
    const server = await createTestServer();
    const items = [
      { destination: endpoint, body: "1" },
      {
        destination: "https://app.example/else",
        body: "2",
        headers: { "Svc-Workflow-RunId": "mine", "svc-label": "é日" },
      },
      { destination: endpoint, headers: { "svc-workflow-runid": "mine" } },
    ];
    const reply = await batch(server, items);
    expect(reply).toMatchObject({
      status: 201,
      body: [
        { workflowRunId: expect.stringMatching(/^wfr_/), workflowCreatedAt: testTime },
        { workflowRunId: "mine", workflowCreatedAt: testTime },
        { workflowRunId: "mine", workflowCreatedAt: testTime, deduplicated: true },
      ],
    });
    expect(server.deliveries.map(({ message: { brand, url } }) => [brand, url])).toEqual([
      ["upstash", endpoint],
      ["svc", "https://app.example/else"],
    ]);
    expect(headersOf(server.deliveries[1] as Delivery)["Svc-Label"]).toBe(
      Buffer.from("é日").toString("latin1"),
    );
    expect(takeHistories(server)).toEqual([["1"], ["2"]]);
    expect((await batch(server, [])).body).toEqual([]);
  });

  test.for<[what: string, item: unknown, status: number, error: RegExp]>([
    ["is not an object", 1, 400, /^message 2 of 2: /],
    ["has no URL", { destination: "group" }, 400, /^message 2 of 2: destination: /],
    ["has a queue", { destination: endpoint, queue: "q" }, 400, /^message 2 of 2: queue: /],
    [
      "has a body that is neither text nor JSON",
      { destination: endpoint, body: 1 },
      400,
      /^message 2 of 2: body: /,
    ],
    [
      "breaks a limit",
      { destination: endpoint, headers: { "svc-delay": "9999d" } },
      412,
      /^message 2 of 2: delay: /,
    ],
    [
      "has a label that a header cannot carry",
      { destination: endpoint, headers: { "svc-label": "a\u0001b" } },
      400,
      /label: /,
    ],
  ])("starts no run if an item %s", async ([, item, status, error]) => {
    const server = await createTestServer();
    expect(await batch(server, [{ destination: endpoint }, item])).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
  });

  test("is limited to the number of items of a batch", async () => {
    const server = await createTestServer();
    expect(
      (
        await batch(
          server,
          Array.from({ length: 10_001 }, () => ({ destination: endpoint })),
        )
      ).status,
    ).toBe(400);
  });
});
