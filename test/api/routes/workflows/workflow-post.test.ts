import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../../src/core/model/message.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { endpoint, takeHistories } from "./workflow.ts";
import type { Headers, Item } from "./workflowPosts.ts";
import { features, startHeaders, stepHeaders, callHeaders, sendBatch, step, start, readHistory, toHeaders } from "./workflowPosts.ts";

describe("a start", () => {
  test("makes a run, and delivers its payload with what was given for it", async () => {
    const home = await createTestServer();
    const reply = await start(home, "wfr_1", {
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
    const [delivery] = home.deliveries;
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
    expect(takeHistories(home)).toEqual([["payload"]]);
    const active = await home.store.read.activeRun("acc_1", "wfr_1");
    expect(active?.run).toMatchObject({
      url: endpoint,
      state: "RUN_STARTED",
      labels: ["L"],
      features: { lazyFetch: true, initialBody: true, detect: true, captured: true },
      settings: { failureCallback: { url: endpoint, retries: 1, headers: [["Upstash-Workflow-Is-Failure", "true"]] } },
    });
  });

  test("is not repeated while its run goes on", async () => {
    const home = await createTestServer();
    const { body: first } = await start(home, "wfr_1");
    expect((await start(home, "wfr_1")).body).toEqual([{ ...first[0], deduplicated: true }]);
    const asPublish = await home.ask("POST", `/v2/publish/${endpoint}`, { headers: startHeaders("wfr_1"), body: "x" });
    expect(asPublish.body).toEqual({ ...first[0], deduplicated: true });
    expect(home.deliveries).toHaveLength(1);
    await home.store.execute("finishRun", { account: "acc_1", runId: "wfr_1", body: Buffer.from("") });
    expect((await start(home, "wfr_1")).body).toEqual([{ messageId: expect.not.stringMatching(first[0].messageId) }]);
  });

  test("is delivered later where it asks for that, and exists at once", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1", { "upstash-delay": "10s" });
    expect(home.deliveries).toEqual([]);
    expect(await readHistory(home, "wfr_1")).toMatchObject([{ position: 0 }]);
  });

  test("without features is one of an older client, and settings may stand in the query", async () => {
    const home = await createTestServer();
    const query = "svc-workflow-runid=old&svc-workflow-init=true";
    expect((await home.ask("POST", `/v2/publish/${endpoint}?${query}`, { body: "x" })).status).toBe(200);
    const active = await home.store.read.activeRun("acc_1", "old");
    expect(active?.run).toMatchObject({
      brand: "svc",
      url: endpoint,
      features: { lazyFetch: false, initialBody: false, detect: false, captured: false },
    });
    expect(home.delivery().message.run).not.toHaveProperty("first");
  });

  test("by the endpoint itself goes on with the run, under other headers", async () => {
    const home = await createTestServer();
    const { body: first } = await start(home, "wfr_1", { "upstash-forward-upstash-workflow-unknown-sdk": "true", "upstash-retries": "7" });
    expect(toHeaders(home.delivery())).toMatchObject({ "Upstash-Workflow-Unknown-Sdk": "true" });
    const again = await start(home, "wfr_1", { "upstash-workflow-trigger-by-sdk": "true", "upstash-forward-x": "1" });
    expect(again.body).toEqual([{ messageId: expect.not.stringMatching(first[0].messageId) }]);
    expect(home.deliveries[0]?.message).toMatchObject({ retries: 7, run: { runId: "wfr_1" } });
    expect(toHeaders(home.delivery())).toEqual({ "Content-Type": "application/json", "Upstash-Workflow-Sdk-Version": "1", X: "1" });
    expect(await readHistory(home, "wfr_1")).toMatchObject([{ messageId: again.body[0].messageId }]);
  });
});

describe("a step", () => {
  test("goes on the history, and carries it with the headers of the run", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1", { "upstash-forward-my-header": "v", "upstash-retries": "2" });
    takeHistories(home);
    const one = await sendBatch(home, [{ headers: stepHeaders("wfr_1"), body: step() }]);
    expect(one.body).toEqual([{ messageId: expect.stringMatching(/^msg_/) }]);
    expect(home.deliveries[0]?.message).toMatchObject({ id: one.body[0].messageId, retries: 2, run: { stepKey: "r1", position: 1 } });
    expect(toHeaders(home.deliveries[0] as Delivery)).toEqual({
      "My-Header": "v",
      "Content-Type": "application/json",
      "Upstash-Workflow-Sdk-Version": "1",
    });
    expect(takeHistories(home)).toEqual([["payload", step()]]);
    expect((await readHistory(home, "wfr_1"))[1]?.head).toEqual({ stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 });
    expect((await sendBatch(home, [{ headers: stepHeaders("wfr_1"), body: step() }])).body).toEqual(one.body);
    expect(home.deliveries).toEqual([]);
  });

  test("may be planned with others, each with its own delay", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    takeHistories(home);
    const plan = (targetStep: number): string => step({ stepId: 0, targetStep, concurrent: 2, out: undefined });
    const { body } = await sendBatch(home, [
      { headers: stepHeaders("wfr_1"), body: plan(1) },
      { headers: stepHeaders("wfr_1", { "upstash-delay": "5s" }), body: plan(2) },
    ]);
    expect(body).toHaveLength(2);
    expect(takeHistories(home)).toEqual([["payload", plan(1)]]);
    expect((await readHistory(home, "wfr_1")).map(({ head }) => head?.targetStep)).toEqual([undefined, 1, 2]);
    home.clock.now += 5_000;
    await home.store.execute("claim", { limit: 10 });
    expect(takeHistories(home)).toEqual([["payload", plan(1), plan(2)]]);
  });

  test.each([
    ["no JSON", "{"],
    ["no object", "[1]"],
    ["nothing", ""],
    ["a step with a name that is none", step({ stepName: 1 })],
    ["a step beyond all numbers", step({ stepId: 1e300 })],
    ["a step below zero", step({ stepId: -1 })],
    ["JSON that is too deep", `${"[".repeat(5_000)}${"]".repeat(5_000)}`],
  ])("of %s is kept as it is, for the endpoint to look at", async (_, body) => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    takeHistories(home);
    expect((await sendBatch(home, [{ headers: stepHeaders("wfr_1"), body }])).status).toBe(200);
    expect(takeHistories(home)).toEqual([["payload", body]]);
    expect((await readHistory(home, "wfr_1"))[1]).toMatchObject({ head: null, id: expect.stringMatching(/\/x1$/) });
  });

  test("with hostile names and numbers is kept, and changes nothing else", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    const body = `{"__proto__":{"stepId":9},"constructor":1,"stepId":${Number.MAX_SAFE_INTEGER},"stepName":"${"n".repeat(100_000)}","stepType":"__proto__"}`;
    expect((await sendBatch(home, [{ headers: stepHeaders("wfr_1"), body }])).status).toBe(200);
    expect((await readHistory(home, "wfr_1"))[1]?.head).toEqual({
      stepId: Number.MAX_SAFE_INTEGER,
      stepName: `${"n".repeat(511)}…`,
      stepType: "__proto__",
      concurrent: 1,
    });
  });

  test("of a run that has ended refuses the whole request, and nothing of it is stored", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    await start(home, "wfr_2");
    home.deliveries.splice(0);
    await home.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_1"] });
    const items = [
      { headers: {}, destination: "https://e.example" },
      { headers: stepHeaders("wfr_2"), body: step() },
      { headers: stepHeaders("wfr_1"), body: step() },
    ];
    expect(await sendBatch(home, items)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/workflow-runid: there is no run "wfr_1" that has not ended/) },
    });
    expect(home.deliveries).toEqual([]);
    expect(await readHistory(home, "wfr_2")).toHaveLength(1);
  });

  test("of a run of another account is refused like that of one that does not exist", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    const foreign = await sendBatch(home, [{ headers: stepHeaders("wfr_1"), body: step() }], otherToken);
    const unknown = await sendBatch(home, [{ headers: stepHeaders("wfr_0"), body: step() }], otherToken);
    expect(foreign.status).toBe(400);
    expect(foreign.body.error.replace("wfr_1", "wfr_0")).toBe(unknown.body.error);
    expect(await readHistory(home, "wfr_1")).toHaveLength(1);
  });
});

describe("a list with messages of a run", () => {
  const good = { headers: {}, destination: "https://e.example" };
  test.each([
    ["a limit of a run", { headers: stepHeaders("wfr_1", { "upstash-retries": "1001" }), body: step() }, 412, /^message 3 of 3: retries: /],
    [
      "a malformed setting of a run",
      { headers: stepHeaders("wfr_1", { "upstash-workflow-init": "yes" }) },
      412,
      /^message 3 of 3: upstash-/,
    ],
  ])("is refused as a whole for %s", async (_, bad: Item, status, error) => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    home.deliveries.splice(0);
    expect(await sendBatch(home, [good, { headers: stepHeaders("wfr_1"), body: step() }, bad])).toMatchObject({
      status,
      body: { error: expect.stringMatching(error) },
    });
    expect(home.deliveries).toEqual([]);
    expect(await readHistory(home, "wfr_1")).toHaveLength(1);
  });

  test.each([
    ["a setting", { ...good, headers: { "upstash-retries": "many" } }, /^upstash-retries: /],
    ["a limit", { ...good, headers: { "upstash-retries": "1001" } }, /^retries: /],
    ["a group that is not there", { ...good, destination: "group" }, /^destination: /],
  ])("is taken but for a plain message that is refused: %s", async (_, bad: Item, error) => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    home.deliveries.splice(0);
    const { status, body } = await sendBatch(home, [good, bad, { headers: stepHeaders("wfr_1"), body: step() }]);
    const taken = { messageId: expect.any(String) };
    expect([status, body]).toMatchObject([200, [taken, { error: expect.stringMatching(error) }, taken]]);
    expect(home.deliveries).toHaveLength(2);
    expect(await readHistory(home, "wfr_1")).toHaveLength(2);
  });

  test("is stopped by an item for a run that cannot be read, and by no plain one", async () => {
    const home = await createTestServer();
    const plain = await sendBatch(home, [good, { ...good, headers: { "upstash-retries": "many" } }]);
    expect(plain).toMatchObject({ status: 200, body: [{ messageId: expect.any(String) }, { error: expect.any(String) }] });
    const { status } = await sendBatch(home, [good, { headers: { "Upstash-Workflow-RunId": "wfr_1" } }]);
    expect(status).toBe(400);
    expect(home.deliveries).toHaveLength(1);
  });

  test("may have as many steps as a history, and not one more", { tags: "long" }, async () => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    const plans = (count: number): Item[] =>
      Array.from({ length: count }, (_, index) => ({
        headers: stepHeaders("wfr_1", { "upstash-delay": "1h" }),
        body: step({ stepId: 0, targetStep: index + 1, concurrent: count }),
      }));
    expect(await sendBatch(home, plans(10_000))).toMatchObject({
      status: 412,
      body: { error: expect.stringMatching(/the limit is 10000/) },
    });
    expect(await readHistory(home, "wfr_1")).toHaveLength(1);
    const { status, body } = await sendBatch(home, plans(9_999));
    expect([status, body.length, new Set(body.map(({ messageId }: { messageId: string }) => messageId)).size]).toEqual([200, 9_999, 9_999]);
  });
});

describe("a request to a third party", () => {
  test("has the headers of its post alone, and its answer comes with those that were forwarded for it", async () => {
    const home = await createTestServer();
    await start(home, "wfr_1", { "upstash-forward-my-header": "v" });
    home.deliveries.splice(0);
    const orphan = { "upstash-failure-callback-forward-x": "1", "upstash-forward-ask": "a" };
    const reply = await sendBatch(home, [{ destination: "https://third.example/x", headers: callHeaders("wfr_1", orphan), body: "ask" }]);
    expect(reply.body).toEqual([{ messageId: expect.stringMatching(/^msg_/) }]);
    const call = home.delivery();
    expect(call.message).toMatchObject({ method: "GET", retries: 0, headers: [["Ask", "a"]], run: { kind: "call", stepKey: "c1" } });
    await home.settle(call, { status: 401, body: Buffer.from("99") });
    const result = home.delivery();
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
    expect((await readHistory(home, "wfr_1")).map(({ callType, head }) => [callType, head?.stepName])).toEqual([
      ["step", undefined],
      ["toCallback", "get"],
      ["fromCallback", "get"],
    ]);
  });

  test.each(["-1", "1.5", "x", "99999999", ""])("with the step id %j is taken, as a step that cannot be read", async (id) => {
    const home = await createTestServer();
    await start(home, "wfr_1");
    const headers = callHeaders("wfr_1", { "upstash-callback-forward-upstash-workflow-stepid": id });
    expect((await sendBatch(home, [{ headers }])).status).toBe(200);
    expect((await readHistory(home, "wfr_1"))[1]?.head).toBeNull();
  });
});

describe("what cannot be said of a run is refused", () => {
  const lone = "\ud800";
  test.each<[what: string, item: Item, error: RegExp]>([
    ["an empty id", { headers: startHeaders("") }, /upstash-workflow-runid: "" is empty/],
    ["an id with a control character", { headers: startHeaders("a\u0007") }, /upstash-workflow-runid: .* control characters/],
    ["an id with half a character", { headers: startHeaders(lone) }, /upstash-workflow-runid: /],
    ["an id that is too long", { headers: startHeaders("a".repeat(513)) }, /upstash-workflow-runid: 513 characters, the limit is 512/],
    ["two ids", { headers: startHeaders("a", { "Upstash-Workflow-RunId": "b" }) }, /with different values/],
    ["no Init", { headers: { "upstash-workflow-runid": "a" } }, /no Workflow-Init beside it/],
    ["an Init that is none", { headers: startHeaders("a", { "upstash-workflow-init": "1" }) }, /upstash-workflow-init: "1" is neither/],
    ["a URL that is none", { headers: startHeaders("a", { "upstash-workflow-url": "app" }) }, /upstash-workflow-url: "app"/],
    ["an unknown type", { headers: startHeaders("a", { "upstash-workflow-calltype": "x" }) }, /upstash-workflow-calltype: "x" is none of/],
    ["a version that is none", { headers: startHeaders("a", { "upstash-workflow-sdk-version": "" }) }, /upstash-workflow-sdk-version: /],
    ["features without end", { headers: startHeaders("a", { "upstash-feature-set": "x".repeat(1_025) }) }, /upstash-feature-set: /],
    ["a queue", { headers: startHeaders("a"), queue: "q" }, /queue: a workflow run goes through no queue/],
    ["a callback", { headers: startHeaders("a", { "upstash-callback": endpoint }) }, /callback: .* has none/],
    ["a callback of a step", { headers: stepHeaders("a", { "upstash-callback": endpoint }) }, /callback: a step/],
    ["a deduplication id", { headers: startHeaders("a", { "upstash-deduplication-id": "x" }) }, /upstash-deduplication-id: .* by its id/],
    [
      "deduplication by content",
      { headers: startHeaders("a", { "upstash-content-based-deduplication": "true" }) },
      /upstash-content-based-deduplication: /,
    ],
    ["a call that starts", { headers: startHeaders("a", { "upstash-workflow-calltype": "toCallback" }) }, /starts no run/],
    ["a call that nobody is told of", { headers: stepHeaders("a", { "upstash-workflow-calltype": "toCallback" }) }, /callback: missing/],
    ["a step that invokes", { headers: stepHeaders("a", { "upstash-workflow-invoke": "true" }) }, /upstash-workflow-invoke: /],
    ["a step that starts again", { headers: stepHeaders("a", { "upstash-workflow-trigger-by-sdk": "true" }) }, /trigger-by-sdk: /],
    ["an unknown client", { headers: startHeaders("a", { "upstash-workflow-unknown-sdk": "true" }) }, /belongs to POST \/v2\/trigger/],
    ["another run in the callback", { headers: callHeaders("a", { "upstash-callback-workflow-runid": "b" }) }, /is another run/],
    ["an invocation by a callback", { headers: callHeaders("a", { "upstash-callback-workflow-invoke": "true" }) }, /not of callbacks/],
    ["a schedule", { headers: startHeaders("a", { "upstash-cron": "* * * * *" }) }, /belongs to a schedule/],
    ["a header that is no text", { headers: startHeaders("a", { "upstash-forward-x": "a\u0000" }) }, /upstash-forward-x: /],
  ])("%s", async (_, item, error) => {
    const home = await createTestServer();
    // 400 would tell the client of a run that goes on that it has ended.
    const status = item.headers?.["upstash-workflow-init"] === "false" ? 412 : 400;
    expect(await sendBatch(home, [item])).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
    expect(home.deliveries).toEqual([]);
  });

  test.each<[what: string, path: string, more: Headers]>([
    ["a queue", `/v2/enqueue/q/${endpoint}`, {}],
    ["a schedule", `/v2/schedules/${endpoint}`, { "upstash-cron": "* * * * *" }],
  ])("%s takes none", async (_, path, more) => {
    const home = await createTestServer();
    const reply = await home.ask("POST", path, { headers: startHeaders("a", more), body: "x" });
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringMatching(/run/) } });
    expect(home.deliveries).toEqual([]);
  });

  test("nor does a group, nor what is set up for later messages", async () => {
    const home = await createTestServer();
    const body = JSON.stringify({ endpoints: [{ url: "https://e.example" }] });
    await home.ask("POST", "/v2/topics/g/endpoints", { body });
    expect(await sendBatch(home, [{ destination: "g", headers: startHeaders("a") }])).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/destination: a workflow run goes to a URL, and to no URL group/) },
    });
    const settings = JSON.stringify({ headers: { "Svc-Workflow-RunId": "a", "Svc-Workflow-Init": "true" } });
    expect(await home.ask("PATCH", "/v2/topics/g", { body: settings })).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/belongs to a message of a workflow run/) },
    });
    const source = { name: "s", destination: endpoint, headers: { "Svc-Workflow-RunId": "a", "Svc-Workflow-Init": "true" } };
    expect((await home.ask("POST", "/v2/sources", { body: JSON.stringify(source) })).status).toBe(400);
  });
});

test("a plain publish to a workflow, and a schedule of one, are messages like any other", async () => {
  const home = await createTestServer();
  expect((await home.ask("POST", `/v2/publish/${endpoint}`, { body: "x" })).body).toEqual({ messageId: expect.any(String), url: endpoint });
  const plain = home.delivery();
  expect(plain.message.run).toBeUndefined();
  await home.settle(plain, { status: 200 });
  expect((await home.ask("POST", `/v2/schedules/${endpoint}`, { headers: { "svc-cron": "* * * * *" }, body: "x" })).status).toBe(200);
  home.clock.now += 60_000;
  await home.store.execute("claim", { limit: 10 });
  expect(home.delivery().message).toMatchObject({ url: endpoint, headers: [] });
});
