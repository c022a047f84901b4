import { describe, expect, test } from "vitest";
import { bytes, callbackTo, letterOf } from "../../../core/broker.ts";
import { at, house } from "../../house.ts";
import { answer, due, finish, initial, invoke, logs, settings, single, stepsOf, versioned, waitFor } from "./runLogHouse.ts";
import { endpoint, post, start, step } from "./workflow.ts";

describe("a run", () => {
  test("that has come through is its steps, and what it returned", async () => {
    const home = await house();
    const first = await start(home, "wfr_1", { labels: ["red", "blue"], callerIp: "192.0.2.1" });
    home.clock.now = at + 5;
    const second = await step(home, "wfr_1", { out: "1" });
    await answer(home, first);
    home.clock.now = at + 9;
    await finish(home, "wfr_1");
    await answer(home, second);
    expect((await home.ask("GET", "/v2/workflows/logs")).body).toEqual({
      runs: [
        {
          ...{ workflowRunId: "wfr_1", workflowUrl: endpoint, workflowState: "RUN_SUCCESS", workflowRunCreatedAt: at },
          ...{ workflowRunCompletedAt: at + 9, workflowRunCallerIp: "192.0.2.1", workflowRunResponse: '"done"' },
          ...{ label: "red", labels: ["red", "blue"] },
          steps: [initial(first), single({ stepId: 1, stepName: "s", stepType: "Run", messageId: second, out: "1", createdAt: at + 5 })],
        },
      ],
    });
  });

  test("that began without a payload has an initial step without one", async () => {
    const home = await house();
    await home.ask("POST", "/v2/trigger/https://e.example/without");
    await home.ask("POST", "/v2/trigger/https://e.example/with", { body: "payload" });
    const { body } = await home.ask("GET", "/v2/workflows/logs");
    const shown = body.runs.map(({ workflowUrl, steps }: { workflowUrl: string; steps: { steps: object[] }[] }) => {
      const [initialStep = {}] = steps[0]?.steps ?? [];
      return [workflowUrl, "out" in initialStep ? initialStep.out : "absent"];
    });
    expect(Object.fromEntries(shown)).toEqual({ "https://e.example/without": "absent", "https://e.example/with": "payload" });
  });

  test("that goes on shows that the endpoint is called, tried again, and what it failed with", async () => {
    const home = await house();
    const first = await start(home, "wfr_1", { retryDelay: "60000" });
    const next = { messageId: first, retries: 3, retryDelay: "60000" };
    const nextOf = async () => (await stepsOf(home)).slice(1);
    expect(await nextOf()).toEqual([{ type: "next", steps: [{ ...next, state: "STEP_PROGRESS" }] }]);
    const headers = [["Upstash-Error-Step-Name", "pay"]] as const;
    await answer(home, first, { status: 500, body: bytes("oh"), headers });
    const error = { error: "the destination answered with status 500", body: "oh", status: 500, time: at };
    const errors = [{ ...error, headers: { "Upstash-Error-Step-Name": ["pay"] } }];
    const retried = { ...next, stepName: "pay", errors };
    expect(await nextOf()).toEqual([{ type: "next", steps: [{ ...retried, state: "STEP_RETRY", nextDeliveryTime: at + 60_000 }] }]);
    home.clock.now = at + 60_000;
    await due(home);
    expect(await nextOf()).toEqual([{ type: "next", steps: [{ ...retried, state: "STEP_PROGRESS" }] }]);
    // Once the step is there, they are what it took.
    const second = await step(home, "wfr_1", { out: "1" });
    await answer(home, first);
    expect(await nextOf()).toEqual([
      single({
        stepId: 1,
        stepName: "s",
        stepType: "Run",
        messageId: second,
        out: "1",
        createdAt: at + 60_000,
        retryDelay: "60000",
        errors,
      }),
      { type: "next", steps: [{ messageId: second, retries: 3, retryDelay: "60000", state: "STEP_PROGRESS" }] },
    ]);
    await answer(home, second, { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]], body: bytes("never") });
    const failed = { messageId: second, retries: 3, retryDelay: "60000", state: "STEP_FAILED" };
    expect((await nextOf())[1]).toMatchObject({ type: "next", steps: [{ ...failed, errors: [{ status: 489, body: "never" }] }] });
    expect(await logs(home)).toMatchObject([{ workflowState: "RUN_FAILED", dlqId: expect.any(String) }]);
  });

  test("whose trigger meets no workflow has two groups, and one error", async () => {
    const home = await house();
    const first = await start(home, "wfr_1");
    await answer(home, first, { status: 200, body: bytes("hello") });
    const error = {
      error: expect.stringMatching(/^detected a non-workflow destination for trigger\/invoke\. make sure/),
      ...{ body: "hello", headers: {}, status: 200, time: at },
    };
    expect(await stepsOf(home)).toEqual([
      initial(first),
      { type: "next", steps: [{ messageId: first, retries: 3, state: "STEP_FAILED", errors: [error] }] },
    ]);
  });

  test("that was cancelled shows where it stood", async () => {
    const home = await house();
    const first = await start(home, "wfr_1");
    await home.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_1"] });
    expect(await logs(home)).toMatchObject([
      {
        workflowState: "RUN_CANCELED",
        workflowRunCompletedAt: at,
        steps: [{}, { type: "next", steps: [{ messageId: first, state: "STEP_CANCELED" }] }],
      },
    ]);
    const other = await start(home, "wfr_2");
    const nap = await step(home, "wfr_2", { stepType: "SleepFor", sleepFor: 5 }, { delay: 5_000 });
    await answer(home, other);
    const sleeping = { stepId: 1, stepName: "s", stepType: "SleepFor", messageId: nap, sleepFor: 5 };
    expect(await stepsOf(home)).toEqual([initial(other), single({ ...sleeping, state: "STEP_PROGRESS" })]);
    await home.store.execute("cancelRuns", { account: "acc_1", runIds: ["wfr_2"] });
    expect(await stepsOf(home)).toEqual([initial(other), single({ ...sleeping, state: "STEP_CANCELED" })]);
  });

  test("sleeps until its time has come, and is then called for what is next", async () => {
    const home = await house();
    const first = await start(home, "wfr_1", { delay: 1_000 });
    expect(await stepsOf(home)).toEqual([{ type: "sequential", steps: [{ ...initial(first).steps[0], state: "STEP_PROGRESS" }] }]);
    home.clock.now = at + 1_000;
    await due(home);
    expect(await stepsOf(home)).toMatchObject([
      { steps: [{ state: "STEP_SUCCESS" }] },
      { type: "next", steps: [{ state: "STEP_PROGRESS" }] },
    ]);
    const until = await step(home, "wfr_1", { stepType: "SleepUntil", sleepUntil: 1_800_000_100 }, { notBefore: at + 100_000 });
    await answer(home, first);
    expect((await stepsOf(home))[1]).toMatchObject({ steps: [{ messageId: until, state: "STEP_PROGRESS", sleepUntil: 1_800_000_100 }] });
    home.clock.now = at + 100_000;
    await due(home);
    expect(await stepsOf(home)).toMatchObject([
      {},
      { steps: [{ state: "STEP_SUCCESS" }] },
      { type: "next", steps: [{ messageId: until }] },
    ]);
  });
});

describe("steps side by side", () => {
  const plan = (targetStep: number, more: Record<string, unknown> = {}) => ({
    stepId: 0,
    targetStep,
    concurrent: 2,
    stepName: `b${targetStep}`,
    ...more,
  });

  test("are one group: with a result, without one, and with a failure", async () => {
    const home = await house();
    const first = await start(home, "wfr_1", { retries: 1, retryDelay: "1000" });
    const [one, two] = [await step(home, "wfr_1", plan(1)), await step(home, "wfr_1", plan(2))];
    await answer(home, first);
    const branch = (stepId: number, fields: object) => ({
      ...{ stepId, stepName: `b${stepId}`, stepType: "Run", callType: "step", concurrent: 2, createdAt: at, retryDelay: "1000" },
      ...{ ...settings, retries: 1, ...fields },
    });
    const open = { state: "STEP_PROGRESS" };
    const groupOf = async () => (await stepsOf(home)).slice(1);
    expect(await groupOf()).toEqual([
      { type: "parallel", steps: [branch(1, { ...open, messageId: one }), branch(2, { ...open, messageId: two })] },
    ]);
    const result = await step(home, "wfr_1", { ...plan(1), stepId: 1, targetStep: undefined, out: "x" });
    await answer(home, one);
    await answer(home, result);
    const done = branch(1, { state: "STEP_SUCCESS", messageId: result, out: "x" });
    await answer(home, two, { status: 500, body: bytes("no") });
    const error = { error: "the destination answered with status 500", body: "no", headers: {}, status: 500 };
    const retry = { messageId: two, state: "STEP_RETRY", nextDeliveryTime: at + 1_000, errors: [{ ...error, time: at }] };
    expect(await groupOf()).toEqual([{ type: "parallel", steps: [done, branch(2, retry)] }]);
    home.clock.now = at + 1_000;
    await due(home);
    await answer(home, two, { status: 500, body: bytes("no") });
    const failed = {
      messageId: two,
      state: "STEP_FAILED",
      errors: [
        { ...error, time: at },
        { ...error, time: at + 1_000 },
      ],
    };
    expect(await groupOf()).toEqual([{ type: "parallel", steps: [done, branch(2, failed)] }]);
  });

  test("wait and invoke in their places; what comes after the failure of the run is told all the same", async () => {
    const home = await house();
    const first = await start(home, "parent", { retries: 0 });
    const [one, two] = [await step(home, "parent", plan(1)), await step(home, "parent", plan(2, { stepType: "Invoke" }))];
    await answer(home, first);
    const invoker = { stepId: 2, stepName: "b2", stepType: "Invoke", concurrent: 2 };
    await invoke(home, "child", { step: invoker });
    await answer(home, two);
    const child = { invokedWorkflowRunId: "child", invokedWorkflowUrl: `${endpoint}/child`, invokedWorkflowCreatedAt: at };
    const given = { ...child, invokedWorkflowRunBody: "payload", invokedWorkflowRunHeaders: { ...versioned, "X-Child": ["c"] } };
    expect((await stepsOf(home, "?workflowRunId=parent"))[1]).toMatchObject({
      type: "parallel",
      steps: [
        { messageId: one, state: "STEP_PROGRESS" },
        { messageId: two, state: "STEP_PROGRESS", stepType: "Invoke", ...given },
      ],
    });
    await answer(home, one, { status: 489, headers: [["Upstash-Nonretryable-Error", "true"]] });
    expect((await stepsOf(home, "?workflowRunId=parent"))[1].steps).toMatchObject([
      { state: "STEP_FAILED", errors: [{ status: 489 }] },
      { state: "STEP_CANCELED" },
    ]);
    await finish(home, "child", '"c"');
    const parent = await stepsOf(home, "?workflowRunId=parent");
    expect(parent).toHaveLength(2);
    expect(parent[1].steps).toMatchObject([
      { state: "STEP_FAILED" },
      { state: "STEP_SUCCESS", stepId: 2, concurrent: 2, out: '{"body":"\\"c\\"","isCanceled":false,"isFailed":false}', ...given },
    ]);
    expect((await logs(home, "?workflowRunId=child"))[0].invoker).toEqual({
      ...{ workflowRunId: "parent", workflowUrl: endpoint, workflowRunCreatedAt: at },
    });
  });
});

describe("a step", () => {
  test("that invokes a run is under way as long as that is, and shows it afterwards", async () => {
    const home = await house();
    const first = await start(home, "parent");
    const invoking = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
    const child = await invoke(home, "child", { step: invoking });
    await answer(home, first);
    const known = {
      ...{ stepId: 1, stepName: "inv", stepType: "Invoke" },
      ...{ invokedWorkflowRunId: "child", invokedWorkflowUrl: `${endpoint}/child`, invokedWorkflowCreatedAt: at },
      ...{ invokedWorkflowRunBody: "payload", invokedWorkflowRunHeaders: { ...versioned, "X-Child": ["c"] } },
    };
    expect(await stepsOf(home, "?workflowRunId=parent")).toEqual([
      initial(first),
      single({ ...known, messageId: child, state: "STEP_PROGRESS" }),
    ]);
    await home.store.execute("cancelRuns", { account: "acc_1", runIds: ["child"] });
    const [, done, next] = await stepsOf(home, "?workflowRunId=parent");
    const messageId = next.steps[0].messageId;
    expect(done).toEqual(single({ ...known, messageId, out: '{"isCanceled":true,"isFailed":false}' }));
  });

  test("that waits shows for what, until when, and how it ended", async () => {
    const home = await house();
    const first = await start(home, "wfr_1");
    home.clock.now = at + 10;
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: waitFor("paid", 1) });
    await answer(home, first);
    const wait = { stepId: 1, stepName: "w", stepType: "Wait", waitEventId: "paid", waitTimeoutDuration: "1h" };
    const deadline = { waitTimeoutDeadline: at + 3_600_010 };
    expect((await stepsOf(home)).slice(1)).toEqual([
      single({ ...wait, ...deadline, messageId: first, state: "STEP_PROGRESS", createdAt: at + 10 }),
    ]);
    await home.store.execute("notify", { account: "acc_1", event: "paid", body: bytes("yes"), runId: "wfr_1", kind: "event" });
    const [, told] = await stepsOf(home);
    const { messageId } = told.steps[0];
    expect(told).toEqual(
      single({ ...wait, ...deadline, messageId, out: btoa("yes"), eventData: "yes", waitTimeout: false, createdAt: at + 10 }),
    );
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: waitFor("late", 2) });
    await answer(home, messageId);
    home.clock.now = at + 3_600_010;
    await due(home);
    const [, , over] = await stepsOf(home);
    expect(over.steps).toMatchObject([{ stepId: 2, waitEventId: "late", waitTimeout: true, waitTimeoutDeadline: at + 3_600_010 }]);
    for (const field of ["out", "eventData"]) expect(over.steps[0]).not.toHaveProperty(field);
  });

  test.each([
    ["a text", bytes("ü"), {}, { out: "w7w=", eventData: "ü" }],
    ["no text", Buffer.from([0xff]), {}, { out: "/w==" }],
    ["nothing", bytes(""), {}, {}],
    [
      "a text that is hidden",
      bytes("ü"),
      { redaction: { body: true, headers: false } },
      { eventData: expect.stringMatching(/^REDACTED:/) },
    ],
    [
      "no text, and hidden",
      Buffer.from([0xff]),
      { redaction: { body: true, headers: false } },
      { out: expect.stringMatching(/^REDACTED:/) },
    ],
  ])("that has waited shows the event: %s", async (_, body, more, shown) => {
    const home = await house();
    await answer(home, await start(home, "wfr_1", more));
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: waitFor("paid", 1) });
    await home.store.execute("notify", { account: "acc_1", event: "paid", body, runId: "wfr_1", kind: "event" });
    const [, { steps }] = await stepsOf(home);
    expect(steps).toMatchObject([shown]);
    if (!("eventData" in shown) && !("redaction" in more)) expect(steps[0]).not.toHaveProperty("eventData");
    const [, left] = await stepsOf(home, "?trimBody=-1");
    expect(left.steps[0]).not.toHaveProperty("eventData");
  });

  test("that calls a third party shows the request, then the answer, then what the endpoint made of it", async () => {
    const home = await house();
    const first = await start(home, "wfr_1");
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const url = "https://third.example/x";
    const callback = { ...callbackTo(endpoint), headers: [["Upstash-Workflow-Callback", "true"]] as const };
    const request = {
      url,
      method: "PUT" as const,
      retries: 1,
      retryDelay: "1000",
      callback,
      body: bytes("ask"),
      headers: [["X-Ask", "a"]] as const,
    };
    const call = await post(home, letterOf({ ...request, post: { kind: "call", runId: "wfr_1", head } }));
    await answer(home, first);
    const asked = { callUrl: url, callMethod: "PUT", callHeaders: { "X-Ask": ["a"] }, callBody: "ask" };
    const known = { stepId: 1, stepName: "get", stepType: "Call", retries: 1, retryDelay: "1000", ...asked };
    const calling = { ...known, callType: "toCallback", messageId: call, headers: { "X-Ask": ["a"] } };
    expect((await stepsOf(home)).slice(1)).toEqual([single({ ...calling, state: "STEP_PROGRESS" })]);
    await answer(home, call, { status: 503, body: bytes("busy") });
    const error = { error: "the destination answered with status 503", body: "busy", headers: {}, status: 503, time: at };
    expect((await stepsOf(home)).slice(1)).toEqual([
      single({ ...calling, state: "STEP_RETRY", nextDeliveryTime: at + 1_000, errors: [error] }),
    ]);
    home.clock.now = at + 1_000;
    await due(home);
    await answer(home, call, { status: 401, body: Buffer.from([255, 0]), headers: [["X-Tell", "t"]] });
    const again = {
      error: "the destination answered with status 401",
      bodyBase64: "/wA=",
      headers: { "X-Tell": ["t"] },
      status: 401,
      time: at + 1_000,
    };
    const told = {
      callResponseStatus: 401,
      callResponseBodyBase64: "/wA=",
      callResponseHeaders: { "X-Tell": ["t"] },
      errors: [error, again],
    };
    const [{ message: result } = { message: { id: "" } }] = home.deliveries;
    const headers = { "Content-Type": ["application/json"], "Upstash-Workflow-Callback": ["true"] };
    const [, answered] = await stepsOf(home);
    expect(answered).toEqual(
      single({
        ...known,
        ...told,
        callType: "fromCallback",
        messageId: result.id,
        createdAt: at + 1_000,
        state: "STEP_PROGRESS",
        headers: expect.objectContaining(headers),
      }),
    );
    const made = await step(home, "wfr_1", { ...head, out: '{"status":401}' });
    await answer(home, result.id);
    const [, done, next] = await stepsOf(home);
    expect(done).toEqual(single({ ...known, ...told, messageId: made, out: '{"status":401}', createdAt: at + 1_000 }));
    expect(next).toMatchObject({ type: "next", steps: [{ messageId: made, state: "STEP_PROGRESS" }] });
  });

  test("that waited for a webhook hides the call as a whole where a header of it is hidden", async () => {
    const home = await house();
    await answer(home, await start(home, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } }));
    const waiter = waitFor("hook", 1);
    const call = { ...waiter, kind: "webhook", step: { ...waiter.step, stepType: "WaitForWebhook" } } as const;
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: call });
    await home.ask("POST", "/v2/workflows/hooks/acc_1/wfr_1/hook", { headers: { "x-tell": "secret" }, token: null });
    const [, { steps }] = await stepsOf(home);
    expect(steps).toMatchObject([{ stepType: "WaitForWebhook", waitTimeout: false, eventData: expect.stringMatching(/^REDACTED:/) }]);
    expect(JSON.stringify(steps)).not.toContain("secret");
    expect(JSON.stringify(steps)).not.toContain(btoa("secret").slice(0, 6));
  });

  test("that called hides what came of it as a whole where a header of the answer is hidden, as it has them all in it", async () => {
    const home = await house();
    const first = await start(home, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } });
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const callback = { ...callbackTo(endpoint), headers: [["Upstash-Workflow-Callback", "true"]] as const };
    const call = await post(home, letterOf({ url: "https://third.example/x", callback, post: { kind: "call", runId: "wfr_1", head } }));
    await answer(home, first);
    await answer(home, call, { headers: [["X-Tell", "secret"]] });
    await step(home, "wfr_1", { ...head, out: '{"header":{"X-Tell":["secret"]}}' });
    const [, { steps }] = await stepsOf(home);
    expect(steps).toMatchObject([{ out: expect.stringMatching(/^REDACTED:/) }]);
    expect(JSON.stringify(steps)).not.toContain("secret");
  });
});
