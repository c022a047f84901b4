import type { Bytes } from "../../../../src/engine/core/values/basics.ts";
import type { MessageInput } from "../../../../src/engine/core/model/message.ts";
import { describe, expect, test } from "vitest";
import { bytes, makeInput, callbackTo, makeEventWait } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer } from "../../testServer.ts";
import {
  settleStep,
  claimDue,
  makeInitialGroup,
  startInvoked,
  makeSingleGroup,
  readSteps,
  versioned,
} from "./runLogFixtures.ts";
import { endpoint, post, start, step } from "./workflow.ts";

describe("a step", () => {
  test("that its endpoint posted is not shown as the next one while the request still runs", async () => {
    const home = await createTestServer();
    const first = await start(home, "wfr_1", {
      retries: 2,
      flowControl: { key: "k", parallelism: 2, rate: null, period: null },
    });
    await settleStep(home, first, { status: 503 });
    home.clock.now = testTime + 3_600_000;
    await claimDue(home);
    home.clock.now++;
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: makeEventWait("paid", 1) });
    expect(home.memory.tables.messages.get(`acc_1\n${first}`)).toMatchObject({ state: "settled" });
    expect((await readSteps(home)).map(({ type }: { type: string }) => type)).toEqual([
      "sequential",
      "sequential",
    ]);
    await settleStep(home, first);
    expect(await readSteps(home)).toHaveLength(2);
  });

  test("that invokes a run is in progress until that run ends, and shows it afterwards", async () => {
    const home = await createTestServer();
    const first = await start(home, "parent");
    const invoking = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
    const child = await startInvoked(home, "child", { step: invoking });
    await settleStep(home, first);
    const known = {
      stepId: 1,
      stepName: "inv",
      stepType: "Invoke",
      invokedWorkflowRunId: "child",
      invokedWorkflowUrl: `${endpoint}/child`,
      invokedWorkflowCreatedAt: testTime,
      invokedWorkflowRunBody: "payload",
      invokedWorkflowRunHeaders: { ...versioned, "X-Child": ["c"] },
    };
    expect(await readSteps(home, "?workflowRunId=parent")).toEqual([
      makeInitialGroup(first),
      makeSingleGroup({ ...known, messageId: child, state: "STEP_PROGRESS" }),
    ]);
    await home.store.execute("cancelRuns", { account: "acc_1", runIds: ["child"] });
    const [, done, next] = await readSteps(home, "?workflowRunId=parent");
    const messageId = next.steps[0].messageId;
    expect(done).toEqual(
      makeSingleGroup({ ...known, messageId, out: '{"isCanceled":true,"isFailed":false}' }),
    );
  });

  test("that waits shows its event, its deadline and how the wait ended", async () => {
    const home = await createTestServer();
    const first = await start(home, "wfr_1");
    home.clock.now = testTime + 10;
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: makeEventWait("paid", 1) });
    await settleStep(home, first);
    const wait = {
      stepId: 1,
      stepName: "w",
      stepType: "Wait",
      waitEventId: "paid",
      waitTimeoutDuration: "1h",
    };
    const deadline = { waitTimeoutDeadline: testTime + 3_600_010 };
    expect((await readSteps(home)).slice(1)).toEqual([
      makeSingleGroup({
        ...wait,
        ...deadline,
        messageId: first,
        state: "STEP_PROGRESS",
        createdAt: testTime + 10,
      }),
    ]);
    await home.store.execute("notify", {
      account: "acc_1",
      event: "paid",
      body: bytes("yes"),
      runId: "wfr_1",
      kind: "event",
    });
    const [, notified] = await readSteps(home);
    const { messageId } = notified.steps[0];
    expect(notified).toEqual(
      makeSingleGroup({
        ...wait,
        ...deadline,
        messageId,
        out: btoa("yes"),
        eventData: "yes",
        waitTimeout: false,
        createdAt: testTime + 10,
      }),
    );
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: makeEventWait("late", 2) });
    await settleStep(home, messageId);
    home.clock.now = testTime + 3_600_010;
    await claimDue(home);
    const [, , over] = await readSteps(home);
    expect(over.steps).toMatchObject([
      { stepId: 2, waitEventId: "late", waitTimeout: true, waitTimeoutDeadline: testTime + 3_600_010 },
    ]);
    for (const field of ["out", "eventData"]) expect(over.steps[0]).not.toHaveProperty(field);
  });

  test.for<[what: string, body: Bytes, more: Partial<MessageInput>, shown: Record<string, unknown>]>([
    ["a text", bytes("ü"), {}, { out: "w7w=", eventData: "ü" }],
    ["binary data", Buffer.from([0xff]), {}, { out: "/w==" }],
    ["nothing", bytes(""), {}, {}],
    [
      "a hidden text",
      bytes("ü"),
      { redaction: { body: true, headers: false } },
      { eventData: expect.stringMatching(/^REDACTED:/) },
    ],
    [
      "hidden binary data",
      Buffer.from([0xff]),
      { redaction: { body: true, headers: false } },
      { out: expect.stringMatching(/^REDACTED:/) },
    ],
  ])("that has waited shows its event: %s", async ([, body, more, shown]) => {
    const home = await createTestServer();
    await settleStep(home, await start(home, "wfr_1", more));
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: makeEventWait("paid", 1) });
    await home.store.execute("notify", {
      account: "acc_1",
      event: "paid",
      body,
      runId: "wfr_1",
      kind: "event",
    });
    const [, { steps }] = await readSteps(home);
    expect(steps).toMatchObject([shown]);
    if (!("eventData" in shown) && !("redaction" in more)) expect(steps[0]).not.toHaveProperty("eventData");
    const [, left] = await readSteps(home, "?trimBody=-1");
    expect(left.steps[0]).not.toHaveProperty("eventData");
  });

  test("that calls a third party shows the request, the response and the result", async () => {
    const home = await createTestServer();
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
    const call = await post(home, makeInput({ ...request, post: { kind: "call", runId: "wfr_1", head } }));
    await settleStep(home, first);
    const asked = { callUrl: url, callMethod: "PUT", callHeaders: { "X-Ask": ["a"] }, callBody: "ask" };
    const known = { stepId: 1, stepName: "get", stepType: "Call", retries: 1, retryDelay: "1000", ...asked };
    const calling = { ...known, callType: "toCallback", messageId: call, headers: { "X-Ask": ["a"] } };
    expect((await readSteps(home)).slice(1)).toEqual([
      makeSingleGroup({ ...calling, state: "STEP_PROGRESS" }),
    ]);
    await settleStep(home, call, { status: 503, body: bytes("busy") });
    const error = {
      error: "the destination answered with status 503",
      body: "busy",
      headers: {},
      status: 503,
      time: testTime,
      explanation: expect.stringMatching(/^A proxy in front of the destination cannot reach/),
    };
    expect((await readSteps(home)).slice(1)).toEqual([
      makeSingleGroup({
        ...calling,
        state: "STEP_RETRY",
        nextDeliveryTime: testTime + 1_000,
        errors: [error],
      }),
    ]);
    home.clock.now = testTime + 1_000;
    await claimDue(home);
    await settleStep(home, call, { status: 401, body: Buffer.from([255, 0]), headers: [["X-Tell", "t"]] });
    const again = {
      error: "the destination answered with status 401",
      bodyBase64: "/wA=",
      headers: { "X-Tell": ["t"] },
      status: 401,
      time: testTime + 1_000,
      explanation: expect.stringMatching(/^The destination requires a login/),
    };
    const callFields = {
      callResponseStatus: 401,
      callResponseBodyBase64: "/wA=",
      callResponseHeaders: { "X-Tell": ["t"] },
      errors: [error, again],
    };
    const [{ message: result } = { message: { id: "" } }] = home.deliveries;
    const headers = { "Content-Type": ["application/json"], "Upstash-Workflow-Callback": ["true"] };
    const [, answered] = await readSteps(home);
    expect(answered).toEqual(
      makeSingleGroup({
        ...known,
        ...callFields,
        callType: "fromCallback",
        messageId: result.id,
        createdAt: testTime + 1_000,
        state: "STEP_PROGRESS",
        headers: expect.objectContaining(headers),
      }),
    );
    const made = await step(home, "wfr_1", { ...head, out: '{"status":401}' });
    await settleStep(home, result.id);
    const [, done, next] = await readSteps(home);
    expect(done).toEqual(
      makeSingleGroup({
        ...known,
        ...callFields,
        messageId: made,
        out: '{"status":401}',
        createdAt: testTime + 1_000,
      }),
    );
    expect(next).toMatchObject({ type: "next", steps: [{ messageId: made, state: "STEP_PROGRESS" }] });
  });

  test("that waited for a webhook hides the whole call if one of its headers is hidden", async () => {
    const home = await createTestServer();
    await settleStep(home, await start(home, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } }));
    const waiter = makeEventWait("hook", 1);
    const call = {
      ...waiter,
      kind: "webhook",
      step: { ...waiter.step, stepType: "WaitForWebhook" },
    } as const;
    await home.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: call });
    await home.ask("POST", "/v2/workflows/hooks/acc_1/wfr_1/hook", {
      headers: { "x-tell": "secret" },
      token: null,
    });
    const [, { steps }] = await readSteps(home);
    expect(steps).toMatchObject([
      { stepType: "WaitForWebhook", waitTimeout: false, eventData: expect.stringMatching(/^REDACTED:/) },
    ]);
    expect(JSON.stringify(steps)).not.toContain("secret");
    expect(JSON.stringify(steps)).not.toContain(btoa("secret").slice(0, 6));
  });

  test("that called hides its whole result if one of the response headers is hidden", async () => {
    const home = await createTestServer();
    const first = await start(home, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } });
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const callback = { ...callbackTo(endpoint), headers: [["Upstash-Workflow-Callback", "true"]] as const };
    const call = await post(
      home,
      makeInput({ url: "https://third.example/x", callback, post: { kind: "call", runId: "wfr_1", head } }),
    );
    await settleStep(home, first);
    await settleStep(home, call, { headers: [["X-Tell", "secret"]] });
    await step(home, "wfr_1", { ...head, out: '{"header":{"X-Tell":["secret"]}}' });
    const [, { steps }] = await readSteps(home);
    expect(steps).toMatchObject([{ out: expect.stringMatching(/^REDACTED:/) }]);
    expect(JSON.stringify(steps)).not.toContain("secret");
  });
});
