import { describe, expect, test } from "vitest";
import { bytes } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer } from "../../testServer.ts";
import {
  settleStep,
  claimDue,
  finish,
  makeInitialGroup,
  startInvoked,
  readRunLog,
  makeSingleGroup,
  readSteps,
  settings,
  versioned,
} from "./runLogFixtures.ts";
import { endpoint, start, step } from "./workflow.ts";

describe("a run", () => {
  test("that finished shows its steps and its result", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { labels: ["red", "blue"], callerIp: "192.0.2.1" });
    server.clock.now = testTime + 5;
    const second = await step(server, "wfr_1", { out: "1" });
    await settleStep(server, first);
    server.clock.now = testTime + 9;
    await finish(server, "wfr_1");
    await settleStep(server, second);
    expect((await server.ask("GET", "/v2/workflows/logs")).body).toEqual({
      runs: [
        {
          workflowRunId: "wfr_1",
          workflowUrl: endpoint,
          workflowState: "RUN_SUCCESS",
          workflowRunCreatedAt: testTime,
          workflowRunCompletedAt: testTime + 9,
          workflowRunCallerIp: "192.0.2.1",
          workflowRunResponse: '"done"',
          label: "red",
          labels: ["red", "blue"],
          steps: [
            makeInitialGroup(first),
            makeSingleGroup({
              stepId: 1,
              stepName: "s",
              stepType: "Run",
              messageId: second,
              out: "1",
              createdAt: testTime + 5,
            }),
          ],
        },
      ],
    });
  });

  test("without a payload has an initial step without output", async () => {
    const server = await createTestServer();
    await server.ask("POST", "/v2/trigger/https://e.example/without");
    await server.ask("POST", "/v2/trigger/https://e.example/with", { body: "payload" });
    const { body } = await server.ask("GET", "/v2/workflows/logs");
    const shown = body.runs.map(
      ({ workflowUrl, steps }: { workflowUrl: string; steps: { steps: object[] }[] }) => {
        const [initialStep = {}] = steps[0]?.steps ?? [];
        return [workflowUrl, "out" in initialStep ? initialStep.out : "absent"];
      },
    );
    expect(Object.fromEntries(shown)).toEqual({
      "https://e.example/without": "absent",
      "https://e.example/with": "payload",
    });
  });

  test("that is active shows the calls to its endpoint, with retries and errors", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { retryDelay: "60000" });
    const next = { messageId: first, retries: 3, retryDelay: "60000" };
    const nextOf = async () => (await readSteps(server)).slice(1);
    expect(await nextOf()).toEqual([{ type: "next", steps: [{ ...next, state: "STEP_PROGRESS" }] }]);
    const headers = [["Upstash-Error-Step-Name", "pay"]] as const;
    await settleStep(server, first, { status: 500, body: bytes("oh"), headers });
    const error = {
      error: "the destination answered with status 500",
      body: "oh",
      status: 500,
      time: testTime,
    };
    const errors = [{ ...error, headers: { "Upstash-Error-Step-Name": ["pay"] } }];
    const retried = { ...next, stepName: "pay", errors };
    expect(await nextOf()).toEqual([
      { type: "next", steps: [{ ...retried, state: "STEP_RETRY", nextDeliveryTime: testTime + 60_000 }] },
    ]);
    server.clock.now = testTime + 60_000;
    await claimDue(server);
    expect(await nextOf()).toEqual([{ type: "next", steps: [{ ...retried, state: "STEP_PROGRESS" }] }]);
    // When the result of the step arrives, the errors belong to the step.
    const second = await step(server, "wfr_1", { out: "1" });
    await settleStep(server, first);
    expect(await nextOf()).toEqual([
      makeSingleGroup({
        stepId: 1,
        stepName: "s",
        stepType: "Run",
        messageId: second,
        out: "1",
        createdAt: testTime + 60_000,
        retryDelay: "60000",
        errors,
      }),
      {
        type: "next",
        steps: [{ messageId: second, retries: 3, retryDelay: "60000", state: "STEP_PROGRESS" }],
      },
    ]);
    await settleStep(server, second, {
      status: 489,
      headers: [["Upstash-Nonretryable-Error", "true"]],
      body: bytes("never"),
    });
    const failed = { messageId: second, retries: 3, retryDelay: "60000", state: "STEP_FAILED" };
    expect((await nextOf())[1]).toMatchObject({
      type: "next",
      steps: [{ ...failed, errors: [{ status: 489, body: "never" }] }],
    });
    expect(await readRunLog(server)).toMatchObject([
      { workflowState: "RUN_FAILED", dlqId: expect.any(String) },
    ]);
  });

  test("whose endpoint is not a workflow has two groups and one error", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    await settleStep(server, first, { status: 200, body: bytes("hello") });
    const error = {
      error: expect.stringMatching(/^detected a non-workflow destination for trigger\/invoke\. make sure/),
      explanation: expect.stringMatching(/^The URL responded, but not as a workflow/),
      body: "hello",
      headers: {},
      status: 200,
      time: testTime,
    };
    expect(await readSteps(server)).toEqual([
      makeInitialGroup(first),
      { type: "next", steps: [{ messageId: first, retries: 3, state: "STEP_FAILED", errors: [error] }] },
    ]);
  });

  test("that was cancelled shows its steps so far", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    await server.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_1"] });
    expect(await readRunLog(server)).toMatchObject([
      {
        workflowState: "RUN_CANCELED",
        workflowRunCompletedAt: testTime,
        steps: [{}, { type: "next", steps: [{ messageId: first, state: "STEP_CANCELED" }] }],
      },
    ]);
    const other = await start(server, "wfr_2");
    const nap = await step(server, "wfr_2", { stepType: "SleepFor", sleepFor: 5, message: { delay: 5_000 } });
    await settleStep(server, other);
    const sleeping = { stepId: 1, stepName: "s", stepType: "SleepFor", messageId: nap, sleepFor: 5 };
    expect(await readSteps(server)).toEqual([
      makeInitialGroup(other),
      makeSingleGroup({ ...sleeping, state: "STEP_PROGRESS" }),
    ]);
    await server.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_2"] });
    expect(await readSteps(server)).toEqual([
      makeInitialGroup(other),
      makeSingleGroup({ ...sleeping, state: "STEP_CANCELED", endedAt: testTime }),
    ]);
  });

  test("sleeps until the due time, then calls its endpoint for the next step", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { delay: 1_000 });
    const { endedAt: _none, ...init } = makeInitialGroup(first).steps[0] ?? {};
    expect(await readSteps(server)).toEqual([
      { type: "sequential", steps: [{ ...init, state: "STEP_PROGRESS" }] },
    ]);
    server.clock.now = testTime + 1_000;
    await claimDue(server);
    expect(await readSteps(server)).toMatchObject([
      { steps: [{ state: "STEP_SUCCESS", createdAt: testTime, endedAt: testTime + 1_000 }] },
      { type: "next", steps: [{ state: "STEP_PROGRESS" }] },
    ]);
    const until = await step(server, "wfr_1", {
      stepType: "SleepUntil",
      sleepUntil: 1_800_000_100,
      message: { notBefore: testTime + 100_000 },
    });
    await settleStep(server, first);
    expect((await readSteps(server))[1]).toMatchObject({
      steps: [{ messageId: until, state: "STEP_PROGRESS", sleepUntil: 1_800_000_100 }],
    });
    server.clock.now = testTime + 100_000;
    await claimDue(server);
    expect(await readSteps(server)).toMatchObject([
      {},
      { steps: [{ state: "STEP_SUCCESS", createdAt: testTime + 1_000, endedAt: testTime + 100_000 }] },
      { type: "next", steps: [{ messageId: until }] },
    ]);
  });
});

describe("parallel steps", () => {
  const plan = (targetStep: number, more: Record<string, unknown> = {}) => ({
    stepId: 0,
    targetStep,
    concurrent: 2,
    stepName: `b${targetStep}`,
    ...more,
  });

  test("are one group: with a result, without a result, and failed", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { retries: 1, retryDelay: "1000" });
    const one = await step(server, "wfr_1", plan(1));
    const two = await step(server, "wfr_1", plan(2));
    await settleStep(server, first);
    const branch = (stepId: number, fields: object) => ({
      stepId,
      stepName: `b${stepId}`,
      stepType: "Run",
      callType: "step",
      concurrent: 2,
      createdAt: testTime,
      retryDelay: "1000",
      ...settings,
      retries: 1,
      ...fields,
    });
    const open = { state: "STEP_PROGRESS" };
    const groupOf = async () => (await readSteps(server)).slice(1);
    expect(await groupOf()).toEqual([
      {
        type: "parallel",
        steps: [branch(1, { ...open, messageId: one }), branch(2, { ...open, messageId: two })],
      },
    ]);
    const result = await step(server, "wfr_1", { ...plan(1), stepId: 1, targetStep: undefined, out: "x" });
    await settleStep(server, one);
    await settleStep(server, result);
    const done = branch(1, { state: "STEP_SUCCESS", messageId: result, out: "x", endedAt: testTime });
    await settleStep(server, two, { status: 500, body: bytes("no") });
    const error = { error: "the destination answered with status 500", body: "no", headers: {}, status: 500 };
    const retry = {
      messageId: two,
      state: "STEP_RETRY",
      nextDeliveryTime: testTime + 1_000,
      errors: [{ ...error, time: testTime }],
    };
    expect(await groupOf()).toEqual([{ type: "parallel", steps: [done, branch(2, retry)] }]);
    server.clock.now = testTime + 1_000;
    await claimDue(server);
    await settleStep(server, two, { status: 500, body: bytes("no") });
    const failed = {
      messageId: two,
      state: "STEP_FAILED",
      endedAt: testTime + 1_000,
      errors: [
        { ...error, time: testTime },
        { ...error, time: testTime + 1_000 },
      ],
    };
    expect(await groupOf()).toEqual([{ type: "parallel", steps: [done, branch(2, failed)] }]);
  });

  test("can wait and invoke; events after the failure of the run are also listed", async () => {
    const server = await createTestServer();
    const first = await start(server, "parent", { retries: 0 });
    const one = await step(server, "parent", plan(1));
    const two = await step(server, "parent", plan(2, { stepType: "Invoke" }));
    await settleStep(server, first);
    const invoker = { stepId: 2, stepName: "b2", stepType: "Invoke", concurrent: 2 };
    await startInvoked(server, "child", { step: invoker });
    await settleStep(server, two);
    const child = {
      invokedWorkflowRunId: "child",
      invokedWorkflowUrl: `${endpoint}/child`,
      invokedWorkflowCreatedAt: testTime,
    };
    const given = {
      ...child,
      invokedWorkflowRunBody: "payload",
      invokedWorkflowRunHeaders: { ...versioned, "X-Child": ["c"] },
    };
    expect((await readSteps(server, "?workflowRunId=parent"))[1]).toMatchObject({
      type: "parallel",
      steps: [
        { messageId: one, state: "STEP_PROGRESS" },
        { messageId: two, state: "STEP_PROGRESS", stepType: "Invoke", ...given },
      ],
    });
    await settleStep(server, one, { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
    expect((await readSteps(server, "?workflowRunId=parent"))[1].steps).toMatchObject([
      { state: "STEP_FAILED", errors: [{ status: 489 }] },
      { state: "STEP_CANCELED" },
    ]);
    await finish(server, "child", '"c"');
    const parent = await readSteps(server, "?workflowRunId=parent");
    expect(parent).toHaveLength(2);
    expect(parent[1].steps).toMatchObject([
      { state: "STEP_FAILED" },
      {
        state: "STEP_SUCCESS",
        stepId: 2,
        concurrent: 2,
        out: '{"body":"\\"c\\"","isCanceled":false,"isFailed":false}',
        ...given,
      },
    ]);
    expect((await readRunLog(server, "?workflowRunId=child"))[0].invoker).toEqual({
      workflowRunId: "parent",
      workflowUrl: endpoint,
      workflowRunCreatedAt: testTime,
    });
  });
});
