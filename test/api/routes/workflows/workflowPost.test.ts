import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { endpoint, takeHistories } from "./workflow.ts";
import type { Item } from "./workflowPosts.ts";
import {
  features,
  startHeaders,
  stepHeaders,
  callHeaders,
  sendBatch,
  step,
  start,
  readHistory,
  toHeaders,
} from "./workflowPosts.ts";

describe("a start", () => {
  test("creates a run and delivers its payload with the given headers and settings", async () => {
    const server = await createTestServer();
    const reply = await start(server, "wfr_1", {
      "upstash-forward-my-header": "v",
      "upstash-label": "L",
      "upstash-forward-upstash-label": "L",
      "upstash-retries": "2",
      "upstash-retry-delay": "1000",
      "upstash-flow-control-key": "k",
      "upstash-flow-control-value": "parallelism=3",
      "upstash-failure-callback": endpoint,
      "upstash-failure-callback-feature-set": features,
      "upstash-failure-callback-forward-upstash-workflow-is-failure": "true",
      "upstash-failure-callback-workflow-runid": "wfr_1",
      "upstash-failure-callback-workflow-init": "false",
      "upstash-failure-callback-workflow-url": endpoint,
      "upstash-failure-callback-workflow-calltype": "failureCall",
      "upstash-failure-callback-retries": "1",
    });
    expect(reply).toMatchObject({ status: 200, body: [{ messageId: expect.stringMatching(/^msg_/) }] });
    expect(Object.keys(reply.body[0])).toEqual(["messageId"]);
    const [delivery] = server.deliveries;
    expect(delivery?.message).toMatchObject({
      brand: "upstash",
      url: endpoint,
      retries: 2,
      retryDelay: "1000",
      labels: ["L"],
      flowControl: { key: "k", parallelism: 3 },
      run: { runId: "wfr_1", createdAt: testTime, kind: "step", first: "detect" },
    });
    expect(delivery && toHeaders(delivery)).toEqual({
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
      "My-Header": "v",
      "Upstash-Label": "L",
    });
    expect(takeHistories(server)).toEqual([["payload"]]);
    const active = await server.store.read.activeRun("acc_1", "wfr_1");
    expect(active?.run).toMatchObject({
      url: endpoint,
      state: "RUN_STARTED",
      labels: ["L"],
      features: { lazyFetch: true, initialBody: true, detect: true, captured: true },
      settings: {
        failureCallback: { url: endpoint, retries: 1, headers: [["Upstash-Workflow-Is-Failure", "true"]] },
      },
    });
  });

  test("is deduplicated while its run is active", async () => {
    const server = await createTestServer();
    const { body: first } = await start(server, "wfr_1");
    expect((await start(server, "wfr_1")).body).toEqual([{ ...first[0], deduplicated: true }]);
    const asPublish = await server.ask("POST", `/v2/publish/${endpoint}`, {
      headers: startHeaders("wfr_1"),
      body: "x",
    });
    expect(asPublish.body).toEqual({ ...first[0], deduplicated: true });
    expect(server.deliveries).toHaveLength(1);
    await server.store.execute("finishRun", { account: "acc_1", runId: "wfr_1", body: Buffer.from("") });
    expect((await start(server, "wfr_1")).body).toEqual([
      { messageId: expect.not.stringMatching(first[0].messageId) },
    ]);
  });

  test("with a delay creates the run at once and is delivered later", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1", { "upstash-delay": "10s" });
    expect(server.deliveries).toEqual([]);
    expect(await readHistory(server, "wfr_1")).toMatchObject([{ position: 0 }]);
  });

  test("without a feature set is that of an older client; settings may be in the query", async () => {
    const server = await createTestServer();
    const query = "svc-workflow-runid=old&svc-workflow-init=true";
    expect((await server.ask("POST", `/v2/publish/${endpoint}?${query}`, { body: "x" })).status).toBe(200);
    const active = await server.store.read.activeRun("acc_1", "old");
    expect(active?.run).toMatchObject({
      brand: "svc",
      url: endpoint,
      features: { lazyFetch: false, initialBody: false, detect: false, captured: false },
    });
    expect(server.delivery().message.run).not.toHaveProperty("first");
  });

  test("by the endpoint itself continues the run with other headers", async () => {
    const server = await createTestServer();
    const { body: first } = await start(server, "wfr_1", {
      "upstash-forward-upstash-workflow-unknown-sdk": "true",
      "upstash-retries": "7",
    });
    expect(toHeaders(server.delivery())).toMatchObject({ "Upstash-Workflow-Unknown-Sdk": "true" });
    const again = await start(server, "wfr_1", {
      "upstash-workflow-trigger-by-sdk": "true",
      "upstash-forward-x": "1",
    });
    expect(again.body).toEqual([{ messageId: expect.not.stringMatching(first[0].messageId) }]);
    expect(server.deliveries[0]?.message).toMatchObject({ retries: 7, run: { runId: "wfr_1" } });
    expect(toHeaders(server.delivery())).toEqual({
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
      X: "1",
    });
    expect(await readHistory(server, "wfr_1")).toMatchObject([{ messageId: again.body[0].messageId }]);
  });
});

describe("a step", () => {
  test("extends the history, and its message has the history and the headers of the run", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1", { "upstash-forward-my-header": "v", "upstash-retries": "2" });
    takeHistories(server);
    const one = await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body: step() }]);
    expect(one.body).toEqual([{ messageId: expect.stringMatching(/^msg_/) }]);
    expect(server.deliveries[0]?.message).toMatchObject({
      id: one.body[0].messageId,
      retries: 2,
      run: { stepKey: "r1", position: 1 },
    });
    expect(toHeaders(server.deliveries[0] as Delivery)).toEqual({
      "My-Header": "v",
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
    });
    expect(takeHistories(server)).toEqual([["payload", step()]]);
    expect((await readHistory(server, "wfr_1"))[1]?.head).toEqual({
      stepId: 1,
      stepName: "s",
      stepType: "Run",
      concurrent: 1,
    });
    expect((await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body: step() }])).body).toEqual(
      one.body,
    );
    expect(server.deliveries).toEqual([]);
  });

  test("may be planned in parallel with others, each with its own delay", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    takeHistories(server);
    const plan = (targetStep: number): string =>
      step({ stepId: 0, targetStep, concurrent: 2, out: undefined });
    const { body } = await sendBatch(server, [
      { headers: stepHeaders("wfr_1"), body: plan(1) },
      { headers: stepHeaders("wfr_1", { "upstash-delay": "5s" }), body: plan(2) },
    ]);
    expect(body).toHaveLength(2);
    expect(takeHistories(server)).toEqual([["payload", plan(1)]]);
    expect((await readHistory(server, "wfr_1")).map(({ head }) => head?.targetStep)).toEqual([
      undefined,
      1,
      2,
    ]);
    server.clock.now += 5_000;
    await server.store.execute("claim", { limit: 10 });
    expect(takeHistories(server)).toEqual([["payload", plan(1), plan(2)]]);
  });

  test.each([
    ["invalid JSON", "{"],
    ["a JSON array", "[1]"],
    ["nothing", ""],
    ["a step with an invalid name", step({ stepName: 1 })],
    ["a step with an id that is too large", step({ stepId: 1e300 })],
    ["a step with a negative id", step({ stepId: -1 })],
    ["JSON that is too deep", `${"[".repeat(5_000)}${"]".repeat(5_000)}`],
  ])("of %s is kept unchanged for the endpoint", async (_, body) => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    takeHistories(server);
    expect((await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body }])).status).toBe(200);
    expect(takeHistories(server)).toEqual([["payload", body]]);
    expect((await readHistory(server, "wfr_1"))[1]).toMatchObject({
      head: null,
      id: expect.stringMatching(/\/x1$/),
    });
  });

  test("with hostile names and numbers is kept and affects nothing else", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    const body =
      `{"__proto__":{"stepId":9},"constructor":1,"stepId":${Number.MAX_SAFE_INTEGER},` +
      `"stepName":"${"n".repeat(100_000)}","stepType":"__proto__"}`;
    expect((await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body }])).status).toBe(200);
    expect((await readHistory(server, "wfr_1"))[1]?.head).toEqual({
      stepId: Number.MAX_SAFE_INTEGER,
      stepName: `${"n".repeat(511)}…`,
      stepType: "__proto__",
      concurrent: 1,
    });
  });

  test("of a run that has ended makes the whole request fail without storing anything", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    await start(server, "wfr_2");
    server.deliveries.splice(0);
    await server.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_1"] });
    const items = [
      { headers: {}, destination: "https://e.example" },
      { headers: stepHeaders("wfr_2"), body: step() },
      { headers: stepHeaders("wfr_1"), body: step() },
    ];
    expect(await sendBatch(server, items)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/workflow-runid: no active run "wfr_1"/) },
    });
    expect(server.deliveries).toEqual([]);
    expect(await readHistory(server, "wfr_2")).toHaveLength(1);
  });

  test("of another account's run is refused like a step of an unknown run", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    const foreign = await sendBatch(server, [{ headers: stepHeaders("wfr_1"), body: step() }], otherToken);
    const unknown = await sendBatch(server, [{ headers: stepHeaders("wfr_0"), body: step() }], otherToken);
    expect(foreign.status).toBe(400);
    expect(foreign.body.error.replace("wfr_1", "wfr_0")).toBe(unknown.body.error);
    expect(await readHistory(server, "wfr_1")).toHaveLength(1);
  });
});

describe("a batch with messages of a run", () => {
  const good = { headers: {}, destination: "https://e.example" };
  test.for<[what: string, bad: Item, status: number, error: RegExp]>([
    [
      "a run's message beyond a limit",
      { headers: stepHeaders("wfr_1", { "upstash-retries": "1001" }), body: step() },
      412,
      /^message 3 of 3: retries: /,
    ],
    [
      "an invalid setting of a run",
      { headers: stepHeaders("wfr_1", { "upstash-workflow-init": "yes" }) },
      412,
      /^message 3 of 3: upstash-/,
    ],
  ])("is refused as a whole for %s", async ([, bad, status, error]) => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    server.deliveries.splice(0);
    expect(
      await sendBatch(server, [good, { headers: stepHeaders("wfr_1"), body: step() }, bad]),
    ).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(server.deliveries).toEqual([]);
    expect(await readHistory(server, "wfr_1")).toHaveLength(1);
  });

  test.each([
    ["an invalid setting", { ...good, headers: { "upstash-retries": "many" } }, /^upstash-retries: /],
    ["a value beyond a limit", { ...good, headers: { "upstash-retries": "1001" } }, /^retries: /],
    ["an unknown URL group", { ...good, destination: "group" }, /^destination: /],
  ])("is accepted except for a plain message with %s", async (_, bad: Item, error) => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    server.deliveries.splice(0);
    const { status, body } = await sendBatch(server, [
      good,
      bad,
      { headers: stepHeaders("wfr_1"), body: step() },
    ]);
    const taken = { messageId: expect.any(String) };
    expect([status, body]).toMatchObject([200, [taken, { error: expect.stringMatching(error) }, taken]]);
    expect(server.deliveries).toHaveLength(2);
    expect(await readHistory(server, "wfr_1")).toHaveLength(2);
  });

  test("fails on an invalid message of a run, but not on an invalid plain message", async () => {
    const server = await createTestServer();
    const plain = await sendBatch(server, [good, { ...good, headers: { "upstash-retries": "many" } }]);
    expect(plain).toMatchObject({
      status: 200,
      body: [{ messageId: expect.any(String) }, { error: expect.any(String) }],
    });
    const { status } = await sendBatch(server, [good, { headers: { "Upstash-Workflow-RunId": "wfr_1" } }]);
    expect(status).toBe(400);
    expect(server.deliveries).toHaveLength(1);
  });

  test("may have at most as many steps as a history", { tags: "long" }, async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    const plans = (count: number): Item[] =>
      Array.from({ length: count }, (_, index) => ({
        headers: stepHeaders("wfr_1", { "upstash-delay": "1h" }),
        body: step({ stepId: 0, targetStep: index + 1, concurrent: count }),
      }));
    expect(await sendBatch(server, plans(10_000))).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/the limit is 10000/) },
    });
    expect(await readHistory(server, "wfr_1")).toHaveLength(1);
    const { status, body } = await sendBatch(server, plans(9_999));
    expect([
      status,
      body.length,
      new Set(body.map(({ messageId }: { messageId: string }) => messageId)).size,
    ]).toEqual([200, 9_999, 9_999]);
  });
});

describe("a request to a third party", () => {
  test("has only the headers of its post; its response arrives with the forwarded headers", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1", { "upstash-forward-my-header": "v" });
    server.deliveries.splice(0);
    const orphan = { "upstash-failure-callback-forward-x": "1", "upstash-forward-ask": "a" };
    const reply = await sendBatch(server, [
      { destination: "https://third.example/x", headers: callHeaders("wfr_1", orphan), body: "ask" },
    ]);
    expect(reply.body).toEqual([{ messageId: expect.stringMatching(/^msg_/) }]);
    const call = server.delivery();
    expect(call.message).toMatchObject({
      method: "GET",
      retries: 0,
      headers: [["Ask", "a"]],
      run: { kind: "call", stepKey: "c1" },
    });
    await server.settle(call, { status: 401, body: Buffer.from("99") });
    const result = server.delivery();
    expect(result.message).toMatchObject({ url: endpoint, run: { kind: "result", stepKey: "f1" } });
    expect(toHeaders(result)).toEqual({
      "Content-Type": "application/json",
      "My-Header": "v",
      "Upstash-Workflow-Callback": "true",
      "Upstash-Workflow-Stepid": "1",
      "Upstash-Workflow-Stepname": "get",
      "Upstash-Workflow-Steptype": "Call",
      "Upstash-Workflow-Concurrent": "1",
    });
    expect(
      (await readHistory(server, "wfr_1")).map(({ callType, head }) => [callType, head?.stepName]),
    ).toEqual([
      ["step", undefined],
      ["toCallback", "get"],
      ["fromCallback", "get"],
    ]);
  });

  test.each(["-1", "1.5", "x", "99999999", ""])(
    "with the invalid step id %j is accepted as an unreadable step",
    async (id) => {
      const server = await createTestServer();
      await start(server, "wfr_1");
      const headers = callHeaders("wfr_1", { "upstash-callback-forward-upstash-workflow-stepid": id });
      expect((await sendBatch(server, [{ headers }])).status).toBe(200);
      expect((await readHistory(server, "wfr_1"))[1]?.head).toBeNull();
    },
  );
});

test("a plain publish or a schedule to a workflow's URL is an ordinary message", async () => {
  const server = await createTestServer();
  expect((await server.ask("POST", `/v2/publish/${endpoint}`, { body: "x" })).body).toEqual({
    messageId: expect.any(String),
    url: endpoint,
  });
  const plain = server.delivery();
  expect(plain.message.run).toBeUndefined();
  await server.settle(plain, { status: 200 });
  expect(
    (
      await server.ask("POST", `/v2/schedules/${endpoint}`, {
        headers: { "svc-cron": "* * * * *" },
        body: "x",
      })
    ).status,
  ).toBe(200);
  server.clock.now += 60_000;
  await server.store.execute("claim", { limit: 10 });
  expect(server.delivery().message).toMatchObject({ url: endpoint, headers: [] });
});
