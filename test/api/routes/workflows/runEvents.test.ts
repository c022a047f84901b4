import { describe, expect, test } from "vitest";
import { bytes, makeEventWait } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import { settleStep, claimDue, finish, startInvoked, settings } from "./runLogFixtures.ts";
import { workflowResponse, endpoint, start, step } from "./workflow.ts";

describe("events of runs", () => {
  test("and log entries say that a step settled a delivery, which has no status", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1");
    server.clock.now = testTime + 1_000;
    await step(server, "wfr_1", { stepId: 1 });
    const time = testTime + 1_000;
    const { body: log } = await server.ask("GET", `/v2/events?messageId=${first}&state=DELIVERED`);
    expect(log.events).toMatchObject([{ time, state: "DELIVERED", settledBy: "step" }]);
    expect(log.events[0]).not.toHaveProperty("responseStatus");
    const { body: message } = await server.ask("GET", `/v2/messages/${first}`);
    expect(message).toMatchObject({ state: "delivered", outcomes: [{ time, settledBy: "step" }] });
    expect(message.outcomes[0]).not.toHaveProperty("responseStatus");
    const { body } = await server.ask("GET", "/v2/workflows/events");
    const events = body.events.filter(({ messageId }: { messageId: string }) => messageId === first);
    expect(events.map(({ state, settledBy }: Record<string, unknown>) => [state, settledBy])).toEqual(
      expect.arrayContaining([
        ["CREATED", undefined],
        ["ACTIVE", undefined],
        ["DELIVERED", "step"],
      ]),
    );
    expect(events.filter((one: object) => "responseStatus" in one)).toEqual([]);
  });

  test("are listed run by run, in the order in which they happened, and page by page", async () => {
    const server = await createTestServer();
    const first = await start(server, "old", { labels: ["l"], callerIp: "192.0.2.9", retryDelay: "1000" });
    await settleStep(server, first, { status: 500, body: bytes("no") });
    server.clock.now = testTime + 1_000;
    await claimDue(server);
    await server.store.execute("wait", { account: "acc_1", runId: "old", waiter: makeEventWait("paid", 1) });
    await settleStep(server, first);
    server.clock.now = testTime + 2_000;
    await server.store.execute("notify", {
      account: "acc_1",
      event: "paid",
      body: bytes("yes"),
      runId: "old",
      kind: "event",
    });
    const woken = server.delivery();
    await server.settle(woken, workflowResponse);
    server.clock.now = testTime + 3_000;
    await finish(server, "old");
    const fresh = await start(server, "new");
    const { body } = await server.ask("GET", "/v2/workflows/events");
    const of = {
      workflowRunId: "old",
      workflowUrl: endpoint,
      workflowCreatedAt: testTime,
      label: "l",
      labels: ["l"],
      callerIp: "192.0.2.9",
    };
    const init = {
      stepName: "init",
      stepType: "Initial",
      callType: "step",
      concurrent: 1,
      state: "STEP_SUCCESS",
    };
    const whole = {
      ...init,
      messageId: first,
      out: "payload",
      createdAt: testTime,
      endedAt: testTime,
      ...settings,
      retryDelay: "1000",
    };
    const wait = {
      stepId: 1,
      stepName: "w",
      stepType: "Wait",
      callType: "step",
      concurrent: 1,
      state: "STEP_SUCCESS",
    };
    const rest = { messageId: first, stepInfo: init, ...of };
    const later = { messageId: woken.message.id, stepInfo: wait, ...of, time: testTime + 2_000 };
    const error = "the destination answered with status 500";
    expect(body.events.slice(0, 3)).toMatchObject([
      { state: "RUN_STARTED", workflowRunId: "new", time: testTime + 3_000 },
      { state: "CREATED", messageId: fresh, stepInfo: { stepName: "init", out: "payload" } },
      { state: "ACTIVE", messageId: fresh, stepInfo: init },
    ]);
    expect(body.events.slice(3)).toEqual([
      { time: testTime, state: "RUN_STARTED", ...of },
      { ...rest, time: testTime, state: "CREATED", stepInfo: whole },
      { ...rest, time: testTime, state: "ACTIVE" },
      {
        ...rest,
        time: testTime,
        state: "ERROR",
        error,
        responseStatus: 500,
        responseBody: "no",
        responseHeaders: {},
        nextDeliveryTime: testTime + 1_000,
      },
      { ...rest, time: testTime, state: "RETRY", nextDeliveryTime: testTime + 1_000 },
      { ...rest, time: testTime + 1_000, state: "ACTIVE" },
      { ...rest, time: testTime + 1_000, state: "DELIVERED", responseStatus: 200 },
      {
        ...of,
        time: testTime + 1_000,
        state: "WAITER_ADDED",
        stepInfo: expect.objectContaining({ ...wait, waitEventId: "paid", out: btoa("yes") }),
      },
      { ...later, state: "CREATED" },
      { ...later, state: "ACTIVE" },
      { ...later, state: "DELIVERED", responseStatus: 200 },
      { ...of, time: testTime + 3_000, state: "RUN_SUCCESS", workflowRunResponse: '"done"' },
    ]);
    expect((await server.ask("GET", "/v2/workflows/messageLogs")).body).toEqual(body);
    const paged: unknown[] = [];
    let cursor = "";
    do {
      const page = (await server.ask("GET", `/v2/workflows/events?count=2${cursor}`)).body;
      expect(page.events.length).toBeLessThanOrEqual(2);
      paged.push(...page.events);
      cursor = page.cursor === undefined ? "" : `&cursor=${page.cursor}`;
    } while (cursor !== "" && paged.length < 50);
    expect(paged).toEqual(body.events);
    const listStates = async (query: string) =>
      (await server.ask("GET", `/v2/workflows/events?${query}`)).body.events.map(
        ({ state }: { state: string }) => state,
      );
    expect(await listStates("state=ERROR,WAITER_ADDED")).toEqual(["ERROR", "WAITER_ADDED"]);
    expect(await listStates("state=RUN_STARTED")).toEqual(["RUN_STARTED", "RUN_STARTED"]);
    expect(await listStates(`messageId=${woken.message.id}`)).toEqual(["CREATED", "ACTIVE", "DELIVERED"]);
    expect((await server.ask("GET", "/v2/workflows/events", { token: otherToken })).body).toEqual({
      events: [],
    });
  });

  test("name the invoking and the invoked runs", async () => {
    const server = await createTestServer();
    await start(server, "parent", { retries: 0 });
    const child = await startInvoked(server, "child", {
      step: { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 },
      retries: 0,
    });
    await settleStep(server, child, { status: 500 });
    const { body } = await server.ask(
      "GET",
      "/v2/workflows/events?state=INVOKED,RUN_STARTED,RUN_FAILED,FAILED",
    );
    const invoked = {
      invokerWorkflowRunId: "parent",
      invokerWorkflowUrl: endpoint,
      invokerWorkflowCreatedAt: testTime,
    };
    const dlqId = expect.any(String);
    expect(body.events).toMatchObject([
      { state: "RUN_STARTED", workflowRunId: "child", ...invoked },
      { state: "FAILED", messageId: child, dlqId },
      { state: "RUN_FAILED", dlqId },
      { state: "RUN_STARTED", workflowRunId: "parent" },
      { state: "INVOKED", messageId: child, stepInfo: { stepName: "inv", invokedWorkflowRunId: "child" } },
    ]);
  });
});
