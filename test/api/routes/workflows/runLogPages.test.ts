import { describe, expect, test } from "vitest";
import { bytes, callbackTo, makeInput } from "../../../engine/core/commandRunner.ts";
import { testTime, createTestServer, otherToken } from "../../testServer.ts";
import {
  settleStep,
  claimDue,
  finish,
  startInvoked,
  readRunLog,
  readSteps,
  versioned,
} from "./runLogFixtures.ts";
import { endpoint, post, start, step } from "./workflow.ts";

describe("a failed run", () => {
  test.each([
    ["success", { status: 200, body: bytes('{"result":"clean"}') }, "CALLBACK_SUCCESS"],
    ["failure", { status: 418, body: bytes("teapot") }, "CALLBACK_FAIL"],
  ])("shows the %s of its failure callback", async (_, outcome, state) => {
    const server = await createTestServer();
    const failureUrl = "https://app.example/failed";
    const first = await start(server, "wfr_1", { retries: 0, failureCallback: callbackTo(failureUrl) });
    await settleStep(server, first, { status: 500, body: bytes("boom"), headers: [["X-Why", "w"]] });
    const callback = server.delivery();
    const [{ dlqId, failureFunction }] = await readRunLog(server);
    const failure = {
      messageId: callback.message.id,
      url: failureUrl,
      dlqId,
      maxRetries: 0,
      failStatus: 500,
      failResponse: "boom",
      failHeaders: { "X-Why": ["w"] },
    };
    expect(failureFunction).toEqual({ ...failure, state: "CALLBACK_INPROGRESS" });
    await server.settle(callback, outcome);
    const [after] = await readRunLog(server);
    const body = Buffer.from(outcome.body).toString();
    expect(after.failureFunction).toMatchObject({
      ...failure,
      state,
      responseStatus: outcome.status,
      responseBody: body,
    });
    expect(after.failureFunction.errors?.map(({ status }: { status: number }) => status)).toEqual(
      state === "CALLBACK_FAIL" ? [418] : undefined,
    );
  });

  test("is resumed as a new run with its steps", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { retries: 0 });
    const second = await step(server, "wfr_1", { out: "1" });
    await settleStep(server, first);
    await settleStep(server, second, { status: 500 });
    const [{ dlqId }] = await readRunLog(server);
    server.clock.now = testTime + 50;
    const { runId } = await server.store.execute("resumeRun", {
      account: "acc_1",
      dlqId,
      from: "failure",
      overrides: {},
      logRetention: 1_000,
    });
    const [newest, oldest] = await readRunLog(server);
    expect(oldest).toMatchObject({ workflowRunId: "wfr_1", workflowState: "RUN_FAILED" });
    const again = server.delivery().message.id;
    expect(newest).toMatchObject({
      workflowRunId: runId,
      workflowState: "RUN_STARTED",
      workflowRunCreatedAt: testTime + 50,
    });
    expect(newest.steps).toMatchObject([
      { steps: [{ stepName: "init", messageId: first }] },
      { steps: [{ stepId: 1, messageId: again, state: "STEP_SUCCESS", out: "1" }] },
      { type: "next", steps: [{ messageId: again, state: "STEP_PROGRESS" }] },
    ]);
    // The events of the failed run are not listed again for the new run.
    const { body } = await server.ask("GET", `/v2/workflows/messageLogs?workflowRunId=${runId}`);
    expect(body.events.map(({ state }: { state: string }) => state)).toEqual([
      "RUN_STARTED",
      "CREATED",
      "ACTIVE",
    ]);
  });
});

describe("redacted content", () => {
  const hidden = (text: string) =>
    expect.stringMatching(new RegExp(`^REDACTED:[0-9a-f]{64}$|^(?!.*${text})$`));

  test("appears nowhere: payload, outputs, results, bodies of calls and errors", async () => {
    const server = await createTestServer();
    const secret = "top-secret";
    const redaction = { body: true, headers: ["X-Key"] };
    const headers = [
      ["X-Key", secret],
      ["X-Open", "o"],
    ] as const;
    const failureCallback = callbackTo("https://app.example/failed");
    const first = await start(server, "wfr_1", {
      retries: 1,
      body: bytes(secret),
      headers,
      redaction,
      failureCallback,
    });
    await settleStep(server, first, { status: 500, body: bytes(secret) });
    server.clock.now = testTime + 86_400;
    await claimDue(server);
    const head = { stepId: 1, stepName: "get", stepType: "Call", concurrent: 1 };
    const call = makeInput({
      url: "https://third.example",
      retries: 0,
      callback: callbackTo(endpoint),
      body: bytes(secret),
    });
    const called = await post(server, { ...call, post: { kind: "call", runId: "wfr_1", head } });
    await settleStep(server, first);
    expect(JSON.stringify(await readRunLog(server))).not.toContain(secret);
    await settleStep(server, called, { status: 400, body: bytes(secret) });
    const result = server.delivery().message.id;
    expect(JSON.stringify(await readRunLog(server))).not.toContain(secret);
    const made = await step(server, "wfr_1", { ...head, out: secret });
    const text = JSON.stringify(await readRunLog(server));
    expect(text).not.toContain(secret);
    expect(text).not.toContain(btoa(secret));
    expect((await readRunLog(server))[0].steps[0].steps[0]).toMatchObject({
      out: hidden(secret),
      headers: { "X-Key": [hidden(secret)], "X-Open": ["o"] },
    });
    expect(result).not.toBe(made);
    await finish(server, "wfr_1", secret);
    expect((await readRunLog(server))[0].workflowRunResponse).toMatch(/^REDACTED:/);
    const events = JSON.stringify((await server.ask("GET", "/v2/workflows/events")).body);
    expect(events).toContain("REDACTED");
    expect(events).not.toContain(secret);
  });

  test("of an invoked run is also hidden in the run that invoked it", async () => {
    const server = await createTestServer();
    await start(server, "parent");
    const invoking = { stepId: 1, stepName: "inv", stepType: "Invoke", concurrent: 1 };
    await startInvoked(server, "child", { step: invoking, redaction: { body: true, headers: true } });
    const [, group] = await readSteps(server, "?workflowRunId=parent");
    expect(group.steps[0].invokedWorkflowRunBody).toMatch(/^REDACTED:/);
    expect(group.steps[0].invokedWorkflowRunHeaders["X-Child"][0]).toMatch(/^REDACTED:/);
    expect(group.steps[0].headers).toEqual(versioned);
  });
});

describe("bodies", () => {
  test("are cut or omitted on request", async () => {
    const server = await createTestServer();
    const first = await start(server, "wfr_1", { body: bytes("grüße") });
    await step(server, "wfr_1", { out: "0123456789" });
    await settleStep(server, first);
    await finish(server, "wfr_1", "result");
    const shown = async (query: string) => {
      const [run] = await readRunLog(server, query);
      return [run.steps[0].steps[0].out, run.steps[1].steps[0].out, run.workflowRunResponse];
    };
    expect(await shown("")).toEqual(["grüße", "0123456789", "result"]);
    expect(await shown("?trimBody=4")).toEqual(["grü", "0123", "resu"]);
    expect(await shown("?trimBody=3")).toEqual(["gr", "012", "res"]);
    expect(await shown("?trimBody=0")).toEqual(["", "", ""]);
    expect(await shown("?trimBody=-1")).toEqual([undefined, undefined, undefined]);
  });

  test(
    "that exceed a page end it early; a run too large for any page is shown without bodies",
    { tags: "long" },
    async () => {
      const server = await createTestServer();
      const large = bytes(
        `{"stepId":1,"stepName":"s","stepType":"Run","concurrent":1,"out":"${"x".repeat(7 * 1024 * 1024)}"}`,
      );
      for (const runId of ["wfr_1", "wfr_2", "wfr_3"]) {
        await start(server, runId);
        for (let stepId = 1; stepId <= (runId === "wfr_1" ? 6 : 2); stepId++)
          await step(server, runId, { stepId, message: { body: large } });
      }
      const first = (await server.ask("GET", "/v2/workflows/logs")).body;
      expect(first.runs.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId)).toEqual([
        "wfr_3",
        "wfr_2",
      ]);
      const second = (await server.ask("GET", `/v2/workflows/logs?cursor=${first.cursor}`)).body;
      expect(second.cursor).toBeUndefined();
      const steps: { steps: [{ out?: string; truncated?: boolean; stepId?: number; headers?: object }] }[] =
        second.runs[0].steps;
      expect(
        steps.map(({ steps: [one] }) => [
          one.stepId,
          one.out?.length ?? 0,
          one.truncated,
          one.headers !== undefined,
        ]),
      ).toEqual([
        [undefined, 7, undefined, true],
        ...[1, 2, 3, 4].map((id) => [id, 7 * 1024 * 1024, undefined, true]),
        ...[5, 6].map((id) => [id, 0, true, false]),
        // The endpoint is still called with the first message, because it has not responded yet.
        [undefined, 0, undefined, false],
      ]);
      const events = (await server.ask("GET", "/v2/workflows/events?count=1000")).body;
      const runIds = events.events.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId);
      expect([...new Set(runIds)]).toEqual(["wfr_3", "wfr_2"]);
      const others = (await server.ask("GET", `/v2/workflows/events?cursor=${events.cursor}`)).body;
      expect(others.events.filter(({ state }: { state: string }) => state === "CREATED")).toHaveLength(7);
    },
  );
});

describe("the list of runs", () => {
  test("is filtered and paged, newest first, and shows only the account's runs", async () => {
    const server = await createTestServer();
    const other = "https://app.example/other";
    const firsts: string[] = [];
    for (const [index, runId] of ["a", "b", "c"].entries()) {
      server.clock.now = testTime + index;
      const flowControl = { key: `key-${runId}`, parallelism: 5, rate: null, period: null };
      firsts.push(
        await start(server, runId, {
          url: runId === "b" ? other : endpoint,
          labels: [runId, "all"],
          callerIp: `192.0.2.${index}`,
          flowControl,
        }),
      );
    }
    await start(server, "a", { as: "acc_2", labels: ["all"] });
    await finish(server, "b");
    const found = async (query: string) =>
      (await readRunLog(server, `?${query}`)).map(
        ({ workflowRunId }: { workflowRunId: string }) => workflowRunId,
      );
    expect(await found("")).toEqual(["c", "b", "a"]);
    expect(await found("groupBy=workflowRunId")).toEqual(["c", "b", "a"]);
    expect(await found("workflowRunId=a")).toEqual(["a"]);
    expect(await found(`workflowUrl=${other}`)).toEqual(["b"]);
    expect(await found(`workflowUrl=${other.slice(0, -1)}`)).toEqual([]);
    expect(await found(`workflowCreatedAt=${testTime + 1}`)).toEqual(["b"]);
    expect(await found(`workflowRuns=a@${testTime},c@${testTime + 2},b@${testTime}&label=none`)).toEqual([
      "c",
      "a",
    ]);
    expect(await found("state=RUN_SUCCESS")).toEqual(["b"]);
    expect(await found("state=RUN_STARTED,RUN_SUCCESS")).toEqual(["c", "b", "a"]);
    expect(await found("state=STEP_PROGRESS")).toEqual(["c", "a"]);
    expect(await found("state=STEP_PROGRESS,RUN_SUCCESS")).toEqual(["c", "b", "a"]);
    expect(await found("state=STEP_FAILED")).toEqual([]);
    expect(await found(`fromDate=${testTime + 1}&toDate=${testTime + 1}`)).toEqual(["b"]);
    expect(await found("label=a&label=b")).toEqual(["b", "a"]);
    expect(await found("flowControlKey=key-c")).toEqual(["c"]);
    expect(await found("callerIp=192.0.2.1")).toEqual(["b"]);
    expect(await found("callerIP=192.0.2.2")).toEqual(["c"]);
    expect(await found("host=app.example&path=/other")).toEqual(["b"]);
    expect(await found(`messageId=${firsts[2]}`)).toEqual(["c"]);
    expect(await found(`messageId=${firsts[2]}&label=b`)).toEqual([]);
    expect(await found("messageId=msg_none")).toEqual([]);
    expect(
      (await server.ask("GET", `/v2/workflows/logs?messageId=${firsts[2]}`, { token: otherToken })).body,
    ).toEqual({ runs: [] });
    expect(
      (await server.ask("GET", "/v2/workflows/logs?label=all", { token: otherToken })).body.runs,
    ).toHaveLength(1);
    const pages: string[] = [];
    for (let cursor = ""; pages.length < 5;) {
      const { body } = await server.ask("GET", `/v2/workflows/events?groupBy=workflowRunId&count=1${cursor}`);
      pages.push(...body.runs.map(({ workflowRunId }: { workflowRunId: string }) => workflowRunId));
      if (body.cursor === undefined) break;
      cursor = `&cursor=${body.cursor}`;
    }
    expect(pages).toEqual(["c", "b", "a"]);
  });

  test.each([
    ["logs?count=0", "count: must be at least 1"],
    ["logs?cursor=x", "cursor: unknown; use the cursor of the previous page"],
    ["logs?cursor=run_1", "cursor: unknown; use the cursor of the previous page"],
    ["logs?state=CREATED", "state: must be one of RUN_STARTED"],
    ["logs?groupBy=label", "groupBy: must be one of workflowRunId"],
    ["logs?surprise=1", "surprise: unknown parameter"],
    ["logs?fromDate=2&toDate=1", "fromDate: is later than toDate"],
    ["logs?workflowRuns=a", 'workflowRuns: "a" is invalid; use id@createdAt'],
    ["logs?workflowRuns=a@b", 'workflowRuns: "a@b" is invalid; use id@createdAt'],
    ["logs?trimBody=-2", "trimBody: is neither a number of bytes nor -1"],
    ["logs?workflowRunId=%00", "workflowRunId: "],
    ["events?groupBy=label", "groupBy: must be one of workflowRunId"],
    ["events?groupBy=workflowRunId&state=CREATED", "state: must be one of RUN_STARTED"],
    ["events?count=x", "count: is not a whole number"],
    ["events?state=NONE", "state: must be one of"],
  ])("refuses %s", async (query, error) => {
    const { ask } = await createTestServer();
    const reply = await ask("GET", `/v2/workflows/${query}`);
    expect(reply).toMatchObject({ status: 400, body: { error: expect.stringContaining(error) } });
  });
});
