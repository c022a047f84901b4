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
    const server = await createTestServer();
    const first = await start(server, "wfr_1", {
      retries: 2,
      flowControl: { key: "k", parallelism: 2, rate: null, period: null },
    });
    await settleStep(server, first, { status: 503 });
    server.clock.now = testTime + 3_600_000;
    await claimDue(server);
    server.clock.now++;
    await server.store.execute("wait", {
      account: "acc_1",
      runId: "wfr_1",
      waiter: makeEventWait("paid", 1),
    });
    expect(server.memory.tables.messages.get(`acc_1\n${first}`)).toMatchObject({ state: "settled" });
    expect((await readSteps(server)).map(({ type }: { type: string }) => type)).toEqual([
      "sequential",
      "sequential",
    ]);
    await settleStep(server, first);
    expect(await readSteps(server)).toHaveLength(2);
  });

  test("that invokes a run is in progress until that run ends, and shows it afterwards", async () => {
    const server = await createTestServer();
    const first = await start(server, "parent");
    const invoking = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
    const child = await startInvoked(server, "child", { step: invoking });
    await settleStep(server, first);
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
    expect(await readSteps(server, "?workflowRunId=parent")).toEqual([
      makeInitialGroup(first),
      makeSingleGroup({ ...known, messageId: child, state: "STEP_PROGRESS" }),
    ]);
    await server.store.execute("cancelRuns", { account: "acc_1", runIds: ["child"] });
    const [, done, next] = await readSteps(server, "?workflowRunId=parent");
    const messageId = next.steps[0].messageId;
    expect(done).toEqual(
      makeSingleGroup({ ...known, messageId, out: '{"isCanceled":true,"isFailed":false}' }),
    );
  });

  test("that waits shows its event, its deadline and how the wait ended", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    server.clock.now = testTime + 10;
    await server.store.execute("wait", {
      account: "acc_1",
      runId: "wfr_1",
      waiter: makeEventWait("paid", 1),
    });
    await settleStep(server, first);
    const wait = {
      stepId: 1,
      stepName: "w",
      stepType: "Wait",
      waitEventId: "paid",
      waitTimeoutDuration: "1h",
    };
    const deadline = { waitTimeoutDeadline: testTime + 3_600_010 };
    expect((await readSteps(server)).slice(1)).toEqual([
      makeSingleGroup({
        ...wait,
        ...deadline,
        messageId: first,
        state: "STEP_PROGRESS",
        createdAt: testTime + 10,
      }),
    ]);
    await server.store.execute("notify", {
      account: "acc_1",
      event: "paid",
      body: bytes("yes"),
      runId: "wfr_1",
      kind: "event",
    });
    const [, notified] = await readSteps(server);
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
    await server.store.execute("wait", {
      account: "acc_1",
      runId: "wfr_1",
      waiter: makeEventWait("late", 2),
    });
    await settleStep(server, messageId);
    server.clock.now = testTime + 3_600_010;
    await claimDue(server);
    const [, , over] = await readSteps(server);
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
    const server = await createTestServer();
    await settleStep(server, await start(server, "wfr_1", more));
    await server.store.execute("wait", {
      account: "acc_1",
      runId: "wfr_1",
      waiter: makeEventWait("paid", 1),
    });
    await server.store.execute("notify", {
      account: "acc_1",
      event: "paid",
      body,
      runId: "wfr_1",
      kind: "event",
    });
    const [, { steps }] = await readSteps(server);
    expect(steps).toMatchObject([shown]);
    if (!("eventData" in shown) && !("redaction" in more)) expect(steps[0]).not.toHaveProperty("eventData");
    const [, left] = await readSteps(server, "?trimBody=-1");
    expect(left.steps[0]).not.toHaveProperty("eventData");
  });

  test("that calls a third party shows the request, the response and the result", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
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
    const call = await post(server, makeInput({ ...request, post: { kind: "call", runId: "wfr_1", head } }));
    await settleStep(server, first);
    const asked = { callUrl: url, callMethod: "PUT", callHeaders: { "X-Ask": ["a"] }, callBody: "ask" };
    const known = { stepId: 1, stepName: "get", stepType: "Call", retries: 1, retryDelay: "1000", ...asked };
    const calling = { ...known, callType: "toCallback", messageId: call, headers: { "X-Ask": ["a"] } };
    expect((await readSteps(server)).slice(1)).toEqual([
      makeSingleGroup({ ...calling, state: "STEP_PROGRESS" }),
    ]);
    await settleStep(server, call, { status: 503, body: bytes("busy") });
    const error = {
      error: "the destination answered with status 503",
      body: "busy",
      headers: {},
      status: 503,
      time: testTime,
      explanation: expect.stringMatching(/^A proxy in front of the destination cannot reach/),
    };
    expect((await readSteps(server)).slice(1)).toEqual([
      makeSingleGroup({
        ...calling,
        state: "STEP_RETRY",
        nextDeliveryTime: testTime + 1_000,
        errors: [error],
      }),
    ]);
    server.clock.now = testTime + 1_000;
    await claimDue(server);
    await settleStep(server, call, { status: 401, body: Buffer.from([255, 0]), headers: [["X-Tell", "t"]] });
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
    const [{ message: result } = { message: { id: "" } }] = server.deliveries;
    const headers = { "Content-Type": ["application/json"], "Upstash-Workflow-Callback": ["true"] };
    const [, answered] = await readSteps(server);
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
    const made = await step(server, "wfr_1", { ...head, out: '{"status":401}' });
    await settleStep(server, result.id);
    const [, done, next] = await readSteps(server);
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
    const server = await createTestServer();
    await settleStep(
      server,
      await start(server, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } }),
    );
    const waiter = makeEventWait("hook", 1);
    const call = {
      ...waiter,
      kind: "webhook",
      step: { ...waiter.step, stepType: "WaitForWebhook" },
    } as const;
    await server.store.execute("wait", { account: "acc_1", runId: "wfr_1", waiter: call });
    await server.ask("POST", "/v2/workflows/hooks/acc_1/wfr_1/hook", {
      headers: { "x-tell": "secret" },
      token: null,
    });
    const [, { steps }] = await readSteps(server);
    expect(steps).toMatchObject([
      { stepType: "WaitForWebhook", waitTimeout: false, eventData: expect.stringMatching(/^REDACTED:/) },
    ]);
    expect(JSON.stringify(steps)).not.toContain("secret");
    expect(JSON.stringify(steps)).not.toContain(btoa("secret").slice(0, 6));
  });

  test("that called hides its whole result if one of the response headers is hidden", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { redaction: { body: false, headers: ["X-Tell"] } });
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const callback = { ...callbackTo(endpoint), headers: [["Upstash-Workflow-Callback", "true"]] as const };
    const call = await post(
      server,
      makeInput({ url: "https://third.example/x", callback, post: { kind: "call", runId: "wfr_1", head } }),
    );
    await settleStep(server, first);
    await settleStep(server, call, { headers: [["X-Tell", "secret"]] });
    await step(server, "wfr_1", { ...head, out: '{"header":{"X-Tell":["secret"]}}' });
    const [, { steps }] = await readSteps(server);
    expect(steps).toMatchObject([{ out: expect.stringMatching(/^REDACTED:/) }]);
    expect(JSON.stringify(steps)).not.toContain("secret");
  });
});
