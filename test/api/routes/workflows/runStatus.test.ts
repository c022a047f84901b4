import { describe, expect, test } from "vitest";
import { bytes, callbackTo, makeInput } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import type { TestServer } from "../../testServer.ts";
import { workflowResponse, endpoint, modernFeatures, post, start, step } from "./workflow.ts";

const status = (server: TestServer, runId = "wfr_1") =>
  server.ask("GET", `/v2/workflows/runs/${runId}/status`);

async function waitingRun(more: Parameters<typeof start>[2] = {}): Promise<TestServer> {
  const server = await createTestServer();
  await start(server, "wfr_1", more);
  await server.settle(server.delivery(), workflowResponse);
  return server;
}

describe("the status of a run", () => {
  test("shows what the run waits for, and until when", async () => {
    const server = await waitingRun({
      labels: ["l"],
      flowControl: { key: "k", parallelism: 1, rate: null, period: null },
    });
    const head = { stepId: 1, stepName: "w", stepType: "Wait" };
    const body = JSON.stringify({ url: endpoint, timeout: "1h", step: head });
    await server.ask("POST", "/v2/wait/paid", { headers: { "upstash-workflow-runid": "wfr_1" }, body });
    await server.ask("POST", "/v2/notify/wfr_1/payed", { body: "typo" });
    const reply = await status(server);
    expect(reply.status).toBe(200);
    expect(reply.body).toEqual({
      workflowRunId: "wfr_1",
      workflowUrl: endpoint,
      workflowState: "RUN_STARTED",
      workflowRunCreatedAt: testTime,
      labels: ["l"],
      flowControlKey: "k",
      stepsDone: 0,
      kept: [{ eventId: "payed", kind: "event", count: 1 }],
      text: expect.stringMatching(
        /^running since .*, no step done; step 1 "w" waits for the event "paid" since/,
      ),
      waitingOn: [
        {
          reason: "event",
          eventId: "paid",
          stepId: 1,
          stepName: "w",
          since: testTime,
          until: testTime + 3_600_000,
          text: expect.stringContaining("until 2027-01-15T09:00:00.000Z"),
        },
      ],
    });
  });

  test("shows unfinished messages with their own wait reasons", async () => {
    const server = await waitingRun({ retries: 2 });
    const messageId = await step(server, "wfr_1", { stepId: 1, stepName: "pay" });
    await server.settle(server.delivery(), { status: 503 });
    // It does not follow step 1, so it does not settle the call that carries it.
    const head = { stepId: 3, stepName: "get", stepType: "Call", concurrent: 1 };
    const call = makeInput({
      url: "https://third.example/x",
      callback: callbackTo(endpoint),
      delay: 5_000,
      post: { kind: "call", runId: "wfr_1", head },
    });
    const callId = await post(server, call);
    const { body } = await status(server);
    expect(body).toMatchObject({
      stepsDone: 1,
      lastStep: { stepId: 1, stepName: "pay", stepType: "Run", time: testTime },
    });
    expect(body.waitingOn).toMatchObject([
      {
        reason: "endpoint",
        messageId,
        stepId: 1,
        url: endpoint,
        waitingOn: [{ reason: "retry", status: 503, used: 1, limit: 2 }],
      },
      {
        reason: "call",
        messageId: callId,
        stepId: 3,
        url: "https://third.example/x",
        waitingOn: [{ reason: "not-due", until: testTime + 5_000 }],
      },
    ]);
    expect(body.waitingOn[0].waitingOn).toEqual(
      (await server.ask("GET", `/v2/messages/${messageId}`)).body.waitingOn,
    );
  });

  test.each([
    [
      {},
      "retry 1 of 2 at 2027-01-15T08:00:12.000Z, after status 500: TypeError: cards.charge is not a function",
    ],
    [
      { redaction: { body: true, headers: false } },
      "retry 1 of 2 at 2027-01-15T08:00:12.000Z, after status 500",
    ],
  ])("shows why a retried step failed, with the status: %j", async (more, words) => {
    const server = await waitingRun({ retries: 2, retryDelay: "12000", ...more });
    await step(server, "wfr_1", { stepId: 1, stepName: "pay" });
    const body = bytes('{"error":"TypeError","message":"cards.charge is not a function"}');
    await server.settle(server.delivery(), { status: 500, body });
    expect((await status(server)).body.waitingOn).toMatchObject([
      { reason: "endpoint", text: expect.stringContaining(words) },
    ]);
    expect((await status(server)).body.text.endsWith(words)).toBe(true);
  });

  test("counts a sleep as done when it has ended", async () => {
    const server = await waitingRun();
    await step(server, "wfr_1", { stepId: 1, stepName: "pay" });
    await server.settle(server.delivery(), workflowResponse);
    await step(server, "wfr_1", {
      stepId: 2,
      stepName: "long",
      stepType: "SleepFor",
      message: { delay: 5_000 },
    });
    const sleeping = {
      text: expect.stringMatching(/, 1 step done; step 2 "long" sleeps until/),
      stepsDone: 1,
      lastStep: { stepId: 1 },
    };
    expect((await status(server)).body).toMatchObject(sleeping);
    server.clock.now += 5_000;
    expect((await status(server)).body).toMatchObject({ stepsDone: 2, lastStep: { stepId: 2 } });
    for (const [delay, stepsDone] of [
      [5_000, 0],
      [1_000, 1],
    ] as const) {
      const other = await waitingRun();
      await step(other, "wfr_1", { stepId: 1, stepName: "long", stepType: "SleepFor", message: { delay } });
      other.clock.now += 2_000;
      await other.ask("DELETE", "/v2/workflows/runs/wfr_1");
      expect((await status(other)).body).toMatchObject({ workflowState: "RUN_CANCELED", stepsDone });
    }
  });

  test("shows the run that it invoked, or that nothing is in flight", async () => {
    const server = await waitingRun();
    expect((await status(server)).body.waitingOn).toMatchObject([{ reason: "nothing", since: testTime }]);
    const invoker = {
      runId: "wfr_1",
      createdAt: testTime,
      url: endpoint,
      headers: [],
      step: { stepId: 1, stepName: "i", stepType: "Invoke", concurrent: 1 },
    };
    await start(server, "child", {
      url: "https://c.example/c",
      post: {
        kind: "start",
        runId: "child",
        url: "https://c.example/c",
        features: modernFeatures,
        origin: "sdk",
        invoker,
      },
    });
    expect((await status(server)).body.waitingOn).toMatchObject([
      { reason: "run", workflowRunId: "child", workflowUrl: "https://c.example/c", stepName: "i" },
    ]);
  });

  test("shows how the run ended, with its result cut between characters", async () => {
    const server = await waitingRun();
    await server.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false", { body: `"${"ü".repeat(10_000)}"` });
    const { body } = await status(server);
    expect(body).toMatchObject({
      workflowState: "RUN_SUCCESS",
      workflowRunCompletedAt: testTime,
      result: `"${"ü".repeat(8_191)}`,
      resultBytes: 20_002,
    });
    expect(body).not.toHaveProperty("waitingOn");
    const hidden = await waitingRun({ redaction: { body: true, headers: false } });
    await hidden.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false", { body: "secret" });
    expect(JSON.stringify((await status(hidden)).body)).not.toContain("secret");
    const binary = await waitingRun();
    await binary.ask("DELETE", "/v2/workflows/runs/wfr_1?cancel=false", { body: Buffer.from([0xff]) });
    expect((await status(binary)).body).toMatchObject({ resultBase64: "/w==" });
  });

  test("shows why the run failed, and the state of its failure callback", async () => {
    const server = await waitingRun({
      retries: 0,
      failureCallback: callbackTo("https://app.example/failed"),
    });
    const messageId = await step(server, "wfr_1", { stepId: 1, stepName: "pay" });
    await server.settle(server.delivery(), { status: 500, body: bytes("secret") });
    const { body } = await status(server);
    const [deadLetter] = (
      await server.store.read.deadLetters({
        account: "acc_1",
        filter: {},
        order: "latestFirst",
        cursor: null,
        count: 1,
      })
    ).entries;
    expect(body).toMatchObject({
      workflowState: "RUN_FAILED",
      text: expect.stringMatching(
        new RegExp(
          '^failed at .*step 1 "pay": the endpoint answered with status 500; ' +
            "its failure callback is in state CALLBACK_INPROGRESS$",
        ),
      ),
      failure: {
        messageId,
        afterStep: "pay",
        error: "the endpoint answered with status 500",
        dlqId: deadLetter?.deadLetter.id,
        responseStatus: 500,
        failureCallbackState: "CALLBACK_INPROGRESS",
      },
    });
    expect(body).not.toHaveProperty("waitingOn");
    for (const field of ["stepId", "stepName"]) expect(body.failure).not.toHaveProperty(field);
  });

  test.each([500, 489])(
    "shows the error that the endpoint reported, and the failed step, after status %i",
    async (responseStatus) => {
      const failing = {
        status: responseStatus,
        body: bytes('{"error":"Error","message":"always 17"}'),
        headers: [
          ["Upstash-Error-Step-Name", "boom"],
          ["Upstash-Nonretryable-Error", "true"],
        ] as const,
      };
      const server = await waitingRun({ retries: 0 });
      await step(server, "wfr_1", { stepId: 1, stepName: "before" });
      await server.settle(server.delivery(), failing);
      const { body } = await status(server);
      expect(body).toMatchObject({
        text: expect.stringMatching(/^failed at .*, 1 step done, at step "boom": always 17$/),
        failure: { error: "always 17", stepName: "boom", responseStatus },
      });
      for (const field of ["stepId", "afterStep"]) expect(body.failure).not.toHaveProperty(field);
      const [entry] = (await server.ask("GET", "/v2/workflows/dlq")).body.messages;
      const [group] = (await server.ask("GET", "/v2/workflows/dlq/groups")).body.groups;
      for (const one of [entry, group]) {
        expect(one).toMatchObject({ stepName: "boom" });
        expect(one).not.toHaveProperty("afterStep");
      }
      expect((await server.ask("GET", "/v2/workflows/events?state=RUN_FAILED")).body.events).toMatchObject([
        { error: "always 17" },
      ]);
    },
  );

  test("names the step that the endpoint was called to run", async () => {
    const server = await waitingRun({ retries: 0 });
    await step(server, "wfr_1", { stepId: 0, targetStep: 2, stepName: "pay", concurrent: 2 });
    await server.settle(server.delivery(), { status: 500 });
    expect((await status(server)).body.failure).toMatchObject({ stepId: 2, stepName: "pay" });
  });

  test("hides the error of the endpoint if bodies are hidden", async () => {
    const server = await waitingRun({ retries: 0, redaction: { body: true, headers: false } });
    await step(server, "wfr_1", { stepId: 1 });
    await server.settle(server.delivery(), { status: 500, body: bytes('{"message":"secret"}') });
    for (const path of ["runs/wfr_1/status", "dlq/groups", "events?state=RUN_FAILED"])
      expect(JSON.stringify((await server.ask("GET", `/v2/workflows/${path}`)).body)).toMatch(
        /answered with status (500|…)(?!.*secret)/,
      );
  });

  test("is that of the account's newest run with this id", async () => {
    const server = await waitingRun();
    await server.ask("DELETE", "/v2/workflows/runs/wfr_1");
    expect((await status(server)).body).toMatchObject({ workflowState: "RUN_CANCELED" });
    server.clock.now++;
    await start(server, "wfr_1");
    expect((await status(server)).body).toMatchObject({
      workflowState: "RUN_STARTED",
      workflowRunCreatedAt: testTime + 1,
    });
    expect((await server.ask("GET", "/v2/workflows/runs/wfr_1/status", { token: otherToken })).status).toBe(
      404,
    );
    expect(await status(server, "unknown")).toMatchObject({
      status: 404,
      body: { error: expect.stringContaining("unknown") },
    });
    expect((await status(server, "a%00")).status).toBe(400);
  });

  test("shows the first 50 of many waits", async () => {
    const server = await waitingRun();
    for (let stepId = 1; stepId <= 60; stepId++) {
      const body = JSON.stringify({ url: endpoint, step: { stepId, stepName: "w", stepType: "Wait" } });
      await server.ask("POST", "/v2/wait/paid", { headers: { "upstash-workflow-runid": "wfr_1" }, body });
    }
    const { body } = await status(server);
    expect(body).toMatchObject({ more: true, waitingOn: { length: 50 } });
  });
});
