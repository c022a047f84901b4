import { describe, expect, test } from "vitest";
import { bytes } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { workflowResponse, takeHistories, modernFeatures, endpoint, start, step } from "./workflow.ts";

const path = "/v2/workflows/runs";

describe("finishing a run", () => {
  test("keeps the body as the result and removes the waiters of the run", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    const reply = await server.ask("DELETE", `${path}/wfr_1?cancel=false`, {
      body: '{"ok":"ü"}',
      headers: { "content-type": "text/plain" },
    });
    expect(reply).toMatchObject({ status: 200, body: { finished: true } });
    const [run] = (await server.store.read.runs({ account: "acc_1", filter: {}, cursor: null, count: 10 }))
      .runs;
    expect(run).toMatchObject({ state: "RUN_SUCCESS", endedAt: testTime });
    expect(Buffer.from(run?.body ?? []).toString()).toBe('{"ok":"ü"}');
    expect((await server.ask("GET", `${path}/wfr_1`)).status).toBe(404);
  });

  test("is not an error if repeated or for an unknown run, and does not affect other accounts", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    expect(await server.ask("DELETE", `${path}/wfr_1?cancel=false`, { token: otherToken })).toMatchObject({
      status: 200,
      body: { finished: false },
    });
    expect(await server.ask("DELETE", `${path}/wfr_1?cancel=false`)).toMatchObject({
      status: 200,
      body: { finished: true },
    });
    expect(await server.ask("DELETE", `${path}/wfr_1?cancel=false`, { body: "again" })).toMatchObject({
      status: 200,
      body: { finished: false },
    });
    const [run] = (await server.store.read.runs({ account: "acc_1", filter: {}, cursor: null, count: 10 }))
      .runs;
    expect(run?.body).toHaveLength(0);
  });

  test("accepts results up to the size of a message", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    const body = Buffer.alloc(10 * 1024 * 1024 + 1, "a");
    expect(await server.ask("DELETE", `${path}/wfr_1?cancel=false`, { body })).toMatchObject({ status: 413 });
    expect(
      await server.ask("DELETE", `${path}/wfr_1?cancel=false`, { body: body.subarray(1) }),
    ).toMatchObject({
      status: 200,
      body: { finished: true },
    });
  });

  test("accepts run ids with any characters except control characters", async () => {
    const server = await createTestServer();
    for (const runId of ["a/b?c", "ünïcödé 🎉", "x".repeat(512), "a,b"]) {
      await start(server, runId);
      expect((await server.ask("GET", `${path}/${encodeURIComponent(runId)}`)).body).toHaveLength(1);
      expect(await server.ask("DELETE", `${path}/${encodeURIComponent(runId)}?cancel=false`)).toMatchObject({
        body: { finished: true },
      });
    }
    for (const runId of ["a%00b", "a%0ab", "x".repeat(513), "%7f"]) {
      const reply = await server.ask("DELETE", `${path}/${runId}?cancel=false`);
      expect(reply).toMatchObject({
        status: 400,
        body: { error: expect.stringMatching(/^workflowRunId: .*is not a valid name/) },
      });
    }
    expect((await server.ask("DELETE", `${path}/%ed%a0%80?cancel=false`)).status).toBe(400);
    expect(await server.ask("DELETE", `${path}/wfr_1?cancel=maybe`)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(/^cancel: /) },
    });
  });
});

describe("cancelling a run", () => {
  test.each(["", "?cancel=true"])("with %o drops its waiting messages", async (query) => {
    const server = await createTestServer();
    const messageId = await start(server, "wfr_1", { delay: 5_000 });
    expect(await server.ask("DELETE", `${path}/wfr_1${query}`)).toMatchObject({
      status: 200,
      body: { cancelled: 1 },
    });
    expect((await server.store.read.message("acc_1", messageId))?.state).toBeNull();
    const again = await server.ask("DELETE", `${path}/wfr_1${query}`);
    expect(again).toMatchObject({ status: 404, body: { error: expect.stringContaining("wfr_1") } });
  });

  test("is 404 for a run of another account", async () => {
    const server = await createTestServer();
    await start(server, "wfr_1");
    expect((await server.ask("DELETE", `${path}/wfr_1`, { token: otherToken })).status).toBe(404);
    expect((await server.ask("DELETE", `${path}/wfr_1`)).status).toBe(200);
  });
});

describe("the history of a run", () => {
  test("has all steps in order until the run ends", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    const second = await step(server, "wfr_1", { out: "1" });
    await server.settle(server.deliveries[0] ?? server.delivery(), workflowResponse);
    const reply = await server.ask("GET", `${path}/wfr_1`);
    expect(reply).toMatchObject({
      status: 200,
      headers: { "content-type": "application/json; charset=utf-8" },
    });
    expect(reply.body).toEqual([
      { messageId: first, body: btoa("payload"), callType: "step" },
      { messageId: second, body: expect.any(String), callType: "step" },
    ]);
    expect(reply.body.map(({ body }: { body: string }) => atob(body))).toEqual(takeHistories(server)[1]);
    expect((await server.ask("GET", `${path}/wfr_1`, { token: otherToken })).status).toBe(404);
    expect((await server.ask("GET", `${path}/unknown`)).status).toBe(404);
  });

  test("of 2,000 steps and 42 MiB is streamed", async () => {
    const read: number[] = [];
    const server = await createTestServer({
      wrap: (store) => ({
        ...store,
        read: {
          ...store.read,
          steps: async (account, ids) => {
            const steps = await store.read.steps(account, ids);
            read.push(steps.reduce((sum, { body }) => sum + body.byteLength, 0));
            return steps;
          },
        },
      }),
    });
    await start(server, "wfr_1", { body: new Uint8Array(7 * 1024 * 1024) });
    for (let stepId = 1; stepId < 2_000; stepId++) await step(server, "wfr_1", { stepId, out: "" });
    for (let stepId = 2_000; stepId < 2_005; stepId++)
      await step(server, "wfr_1", { stepId, message: { body: new Uint8Array(7 * 1024 * 1024) } });
    const { body } = await server.ask("GET", `${path}/wfr_1`);
    expect(body).toHaveLength(2_005);
    expect(body[0].body).toBe(Buffer.alloc(7 * 1024 * 1024).toString("base64"));
    expect(JSON.parse(atob(body[1_999].body))).toMatchObject({ stepId: 1_999 });
    expect(read.length).toBeLessThan(50);
    expect(Math.max(...read)).toBeLessThanOrEqual(42 * 1024 * 1024);
  });
});

describe("cancelling one run", () => {
  test.each(["", "?cancel=true"])("with %o and a body is refused and changes nothing", async (query) => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/trigger/https://w.example", { headers: { "svc-workflow-runid": "r" } });
    const url = `/v2/workflows/runs/r${query}`;
    for (const body of ['{"dryRun":true}', '{"cancel":"false"}', "done"])
      expect(await server.ask("DELETE", url, { body })).toMatchObject({
        status: 400,
        body: { error: expect.stringMatching(/^body: /) },
      });
    expect(await server.ask("DELETE", url, { body: "{}" })).toMatchObject({
      status: 200,
      body: { cancelled: 1 },
    });
  });
});

describe("cancelling many runs", () => {
  test("by ids counts the runs that were active", async () => {
    const server = await createTestServer();
    for (const runId of ["a", "b", "c", "a,b"]) await start(server, runId);
    await start(server, "c", { as: "acc_2" });
    await server.ask("DELETE", `${path}/b`);
    const reply = await server.ask(
      "DELETE",
      `${path}?workflowRunIds=a&workflowRunIds=b&workflowRunIds=unknown&workflowRunIds=a` +
        "&count=1&label=x&details=true",
    );
    expect(reply).toMatchObject({ status: 200 });
    const ended = (id: string) => ({ id, reason: "no active run has this id" });
    expect(reply.body).toEqual({ cancelled: 1, failed: [ended("b"), ended("unknown")] });
    expect((await server.ask("DELETE", `${path}?workflowRunIds=a%2Cb`)).body).toEqual({ cancelled: 1 });
    expect((await server.ask("DELETE", `${path}?workflowRunIds=a`)).body).toEqual({ cancelled: 0 });
    expect((await server.ask("DELETE", `${path}?workflowRunIds=a&details=true`)).body).toEqual({
      cancelled: 0,
      failed: [ended("a")],
    });
    expect((await server.ask("DELETE", path, { body: '{"workflowRunIds":["c"]}' })).body).toEqual({
      cancelled: 1,
    });
    expect((await server.ask("DELETE", `${path}/c`, { token: otherToken })).body).toEqual({ cancelled: 1 });
  });

  const variants: [query: string, cancelled: string[]][] = [
    ["", ["exact", "longer", "other", "key", "labelled"]],
    ["workflowUrl=https://app.example/order", ["exact", "longer"]],
    ["workflowUrl=https://app.example/order&workflowUrl=https://o", ["exact", "longer", "other"]],
    ["workflowUrl=https://app.example/order&workflowUrlExactMatch=true", ["exact"]],
    ["workflowUrl=https://app.example/order&workflowUrlExactMatch=false", ["exact", "longer"]],
    ["host=other.example", ["other"]],
    ["path=/order2&path=/x", ["longer", "other"]],
    ["label=l2&label=l3", ["labelled"]],
    ["flowControlKey=k", ["key"]],
    ["callerIp=1.2.3.4", ["labelled"]],
    ["callerIP=1.2.3.4", ["labelled"]],
    [`fromDate=${testTime + 2}&toDate=${testTime + 3}`, ["other", "key"]],
    ["count=2", ["key", "labelled"]],
    ["label=l1&callerIp=4.3.2.1", []],
  ];

  test.each(variants)("with %o", async (query, expected) => {
    const server = await createTestServer();
    const shapes: Record<string, Parameters<typeof start>[2]> = {
      exact: {},
      longer: { url: "https://app.example/order2" },
      other: { url: "https://other.example/x" },
      key: {
        url: "https://k.example/k",
        flowControl: { key: "k", parallelism: 1, rate: null, period: null },
      },
      labelled: { url: "https://l.example/l", labels: ["l1", "l2"], callerIp: "1.2.3.4" },
    };
    for (const [runId, more] of Object.entries(shapes)) {
      await start(server, runId, more);
      server.clock.now++;
    }
    const dry = await server.ask("DELETE", `${path}?${query}&dryRun=true`);
    expect(dry.body).toEqual({
      dryRun: true,
      count: expected.length,
      sample: expect.arrayContaining(expected),
    });
    expect((await server.ask("DELETE", `${path}?${query}`)).body).toEqual({ cancelled: expected.length });
    const { runs } = await server.store.read.runs({
      account: "acc_1",
      filter: { states: ["RUN_CANCELED"] },
      cursor: null,
      count: 10,
    });
    expect(runs.map(({ runId }) => runId).toSorted()).toEqual(expected.toSorted());
  });

  test("continues beyond a page; a dry run says when it stops counting", async () => {
    const server = await createTestServer();
    for (let n = 0; n < 130; n++) await start(server, `r${n}`, { delay: 1_000 });
    expect((await server.ask("DELETE", `${path}?dryRun=true&count=7`)).body).toMatchObject({
      count: 7,
      sample: { length: 7 },
    });
    expect((await server.ask("DELETE", `${path}?dryRun=true`)).body).toMatchObject({
      count: 130,
      sample: { length: 10 },
    });
    expect((await server.ask("DELETE", `${path}?count=100`)).body).toEqual({ cancelled: 130 });
  });

  test("notifies the run that invoked a cancelled one, and calls no failure callback", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    const invoker = {
      runId: "parent",
      createdAt: testTime,
      url: endpoint,
      headers: [],
      step: { stepId: 1, stepName: "i", stepType: "Invoke", concurrent: 1 },
    };
    await start(server, "child", {
      post: {
        kind: "start",
        runId: "child",
        url: endpoint,
        features: modernFeatures,
        origin: "sdk",
        invoker,
      },
      body: bytes(""),
    });
    server.deliveries.splice(0);
    expect((await server.ask("DELETE", `${path}?workflowRunIds=child`)).body).toEqual({ cancelled: 1 });
    expect(takeHistories(server)).toEqual([["payload", expect.stringContaining('\\"isCanceled\\":true')]]);
  });

  test.each([
    ["surprise=1", /^surprise: unknown parameter/],
    ["workflowRunId=a", /^workflowRunId: .*did you mean workflowRunIds/],
    ["workflowRunIds=", /^workflowRunIds: /],
    ["workflowRunIds=%00", /^workflowRunIds: .*is not a valid name/],
    ["workflowUrlExactMatch=true", /^workflowUrlExactMatch: requires workflowUrl/],
    ["workflowUrlExactMatch=yes&workflowUrl=https://x", /^workflowUrlExactMatch: must be one of/],
    ["fromDate=2&toDate=1", /^fromDate: is later/],
    ["count=0", /^count: /],
    ["dryRun=yes", /^dryRun: /],
    ["svc-retries=1", /^svc-retries: this request takes no settings/],
  ])("refuses %s", async (query, error) => {
    const server = await createTestServer();
    await start(server, "a");
    expect(await server.ask("DELETE", `${path}?${query}`)).toMatchObject({
      status: 400,
      body: { error: expect.stringMatching(error) },
    });
    expect((await server.ask("DELETE", `${path}/a`)).status).toBe(200);
  });
});

describe("a message of an active run", () => {
  test("cannot be cancelled by itself", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr ä/1");
    expect(await server.ask("DELETE", `/v2/messages/${first}`)).toMatchObject({
      status: 400,
      body: {
        error:
          `message: ${first} belongs to an active workflow run; ` +
          `cancel the run with DELETE ${path}/wfr%20%C3%A4%2F1`,
      },
    });
    expect((await server.ask("DELETE", "/v2/messages")).body).toEqual({ cancelled: 0 });
    expect(await server.ask("DELETE", `/v2/messages?messageIds=${first}&details=true`)).toMatchObject({
      status: 200,
      body: {
        cancelled: 0,
        failed: [{ id: first, reason: 'the message belongs to the run "wfr ä/1"; cancel the run instead' }],
      },
    });
    expect(await server.ask("DELETE", `/v2/messages/${first}`, { token: otherToken })).toMatchObject({
      status: 404,
    });
    expect(await server.ask("DELETE", `${path}/wfr%20%C3%A4%2F1`)).toMatchObject({ status: 200 });
    expect(await server.ask("DELETE", `/v2/messages/${first}`)).toMatchObject({
      status: 200,
      body: { cancelled: 0 },
    });
  });
});
