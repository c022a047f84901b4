import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { ask, findDeadLetter, waitForEnd, createGate, waitForResult } from "./workflowTestServer.ts";

/** Tests of the log of runs. */
export function logs(createUser: () => WorkflowUser): void {
  testGroups(createUser);
  testUnfinished(createUser);
  testFailures(createUser);
  testLists(createUser);
}

const success = "STEP_SUCCESS";

function testGroups(createUser: () => WorkflowUser): void {
  test("a successful run is shown as groups of steps with all their details", async () => {
    const user = createUser();
    const other = user.answer(() => new Response("called", { status: 202 }));
    const { parent, child } = user.serveMany((byName) => ({
      parent: async (context) => {
        await context.run("one", () => ({ n: 1 }));
        await context.sleep("nap", 1);
        await Promise.all([
          context.run("left", () => "l"),
          context.call("right", { url: other.url, method: "POST", body: "ask" }),
        ]);
        await context.waitForEvent("wait", "tell", { timeout: 1 });
        await context.invoke("child", { workflow: byName("child"), body: "c" });
        return "done";
      },
      child: (context: WorkflowContext<string>) => context.run("only", () => context.requestPayload),
    }));
    const run = await user.workflows.trigger({ url: parent.url, body: "p", headers: { "x-mine": "m" } });
    const log = await waitForEnd(user, run);
    expect(log).toMatchObject({
      ...run,
      workflowUrl: parent.url,
      workflowState: "RUN_SUCCESS",
      workflowRunResponse: '"done"',
      workflowRunCreatedAt: expect.any(Number),
      workflowRunCompletedAt: expect.any(Number),
    });
    expect(log.dlqId).toBeUndefined();
    const any = { messageId: expect.stringMatching(/^msg_/), createdAt: expect.any(Number), state: success };
    const one = (step: object) => ({ type: "sequential", steps: [{ ...any, concurrent: 1, ...step }] });
    expect(log.steps).toMatchObject([
      one({ stepName: "init", stepType: "Initial", callType: "step", out: "p" }),
      one({ stepId: 1, stepName: "one", stepType: "Run", callType: "step", out: '{"n":1}' }),
      one({ stepId: 2, stepName: "nap", stepType: "SleepFor", sleepFor: 1 }),
      {
        type: "parallel",
        steps: [
          { ...any, stepId: 3, stepName: "left", stepType: "Run", out: '"l"', concurrent: 2 },
          {
            ...any,
            stepId: 4,
            stepName: "right",
            stepType: "Call",
            concurrent: 2,
            callUrl: other.url,
            callMethod: "POST",
            callBody: "ask",
            callResponseStatus: 202,
            callResponseBody: "called",
          },
        ],
      },
      one({
        stepId: 5,
        stepName: "wait",
        stepType: "Wait",
        waitEventId: "tell",
        waitTimeoutDuration: "1s",
        waitTimeout: true,
      }),
      one({
        stepId: 6,
        stepName: "child",
        stepType: "Invoke",
        invokedWorkflowUrl: child.url,
        invokedWorkflowRunId: expect.any(String),
      }),
    ]);
    expect(log.steps).toHaveLength(6);
    expect(log.steps[0]?.steps[0]).not.toHaveProperty("stepId");
  });
}

function testUnfinished(createUser: () => WorkflowUser): void {
  test("an active run shows its next step, planned branches and waits", async () => {
    const user = createUser();
    const started = createGate();
    const go = createGate();
    const work = user.serve(async (context) => {
      await Promise.all([
        context.run("busy", () => (started.resolve(), go.promise)),
        context.sleep("long", "1h"),
        context.waitForEvent("wait", "go-on", { timeout: "1h" }),
      ]);
    });
    const single = user.serve((context) => context.run("only", () => go.promise));
    const [many, one] = await user.workflows.trigger([{ url: work.url }, { url: single.url }]);
    await started.promise;
    await eventually(
      () => user.workflows.getWaiters({ eventId: "go-on" }),
      ({ length }) => length === 1,
    );
    const logOf = async (run: typeof one) =>
      (await user.workflows.logs({ filter: { workflowRunId: run?.workflowRunId ?? "" } })).runs[0] ?? {
        steps: [],
      };
    const branches = await logOf(many);
    expect(branches).toMatchObject({ workflowState: "RUN_STARTED" });
    expect(branches.steps).toMatchObject([
      { type: "sequential" },
      {
        type: "parallel",
        steps: [
          { stepId: 1, stepName: "busy", stepType: "Run", state: "STEP_PROGRESS" },
          { stepId: 2, stepName: "long", stepType: "SleepFor", sleepFor: "1h", state: "STEP_PROGRESS" },
          { stepId: 3, stepName: "wait", stepType: "Wait", waitEventId: "go-on", state: "STEP_PROGRESS" },
        ],
      },
    ]);
    expect((await logOf(one)).steps).toMatchObject([
      { type: "sequential" },
      { type: "next", steps: [{ state: "STEP_PROGRESS" }] },
    ]);
    go.resolve();
    await waitForResult(user, one ?? { workflowRunId: "" });
    await user.workflows.cancel(many?.workflowRunId ?? "");
    expect(await waitForEnd(user, many ?? { workflowRunId: "" })).toMatchObject({
      workflowState: "RUN_CANCELED",
    });
  });

  test("a step that will be retried shows its errors so far", async () => {
    const user = createUser();
    const work = user.serve((context) =>
      context.run("fail", () => {
        throw new Error(`oh ${context.retried}`);
      }),
    );
    const { workflowRunId } = await user.workflows.trigger({
      url: work.url,
      retries: 1,
      retryDelay: "3600000",
    });
    const { runs } = await eventually(
      () => user.workflows.logs({ filter: { workflowRunId } }),
      ({ runs: [run] }) => run?.steps[1]?.steps[0]?.state === "STEP_RETRY",
    );
    expect(runs[0]?.steps[1]).toMatchObject({
      type: "next",
      steps: [
        { state: "STEP_RETRY", retries: 1, errors: [{ status: 500, body: expect.stringContaining("oh 0") }] },
      ],
    });
    await user.workflows.cancel({ all: true });
  });
}

function testFailures(createUser: () => WorkflowUser): void {
  test("a failure is shown at the failed branch or as the next step", async () => {
    const user = createUser();
    const broken = () => {
      throw new Error("broken");
    };
    const beside = user.serve(async (context) => {
      await Promise.all([context.sleep("long", "1h"), context.run("broken", broken)]);
    });
    const alone = user.serve((context) => context.run("broken", broken));
    const [many, one] = await user.workflows.trigger([
      { url: beside.url, retries: 0 },
      { url: alone.url, retries: 0 },
    ]);
    if (!many || !one) throw new Error("two runs");
    const failed = {
      state: "STEP_FAILED",
      errors: [{ status: 500, body: expect.stringContaining("broken") }],
    };
    const first = await waitForEnd(user, many);
    expect(first.steps[1]).toMatchObject({
      type: "parallel",
      steps: [{ stepName: "long" }, { stepName: "broken", ...failed }],
    });
    expect(first.steps).toHaveLength(2);
    expect((await waitForEnd(user, one)).steps[1]).toMatchObject({
      type: "next",
      steps: [{ stepName: "broken", ...failed }],
    });
    expect(await waitForEnd(user, one)).toMatchObject({ dlqId: (await findDeadLetter(user, one)).dlqId });
  });
}

function testLists(createUser: () => WorkflowUser): void {
  test("runs are found by their properties, newest first, page by page", async () => {
    const user = createUser();
    const work = user.serve(async (context: WorkflowContext<string>) => {
      await context.run("maybe", () => {
        if (context.requestPayload === "fail") throw new Error("fail");
      });
    });
    const all: { workflowRunId: string }[] = [];
    for (const body of ["fine", "fail", "fine"]) {
      const run = await user.workflows.trigger({ url: work.url, body, retries: 0, label: body });
      await waitForEnd(user, run);
      all.unshift(run);
    }
    const ids = all.map(({ workflowRunId }) => workflowRunId);
    const found = async (filter: object) =>
      (await user.workflows.logs({ filter })).runs.map(({ workflowRunId }) => workflowRunId);
    expect(await found({})).toEqual(ids);
    expect(await found({ state: "RUN_FAILED" })).toEqual([ids[1]]);
    expect(await found({ label: "fine" })).toEqual([ids[0], ids[2]]);
    expect(await found({ workflowUrl: work.url, callerIp: "127.0.0.1" })).toEqual(ids);
    expect(await found({ workflowUrl: `${work.url}x` })).toEqual([]);
    expect(await found({ fromDate: Date.now() + 60_000 })).toEqual([]);
    expect(await found({ host: new URL(work.url).host, path: new URL(work.url).pathname })).toEqual(ids);
    expect(await found({ host: "example.com" })).toEqual([]);
    // The parameters that are older than `filter` are given next to it.
    expect((await user.workflows.logs({ state: "RUN_FAILED", workflowUrl: work.url })).runs).toHaveLength(1);
    const first = await user.workflows.logs({ count: 2 });
    const second = await user.workflows.logs({ count: 2, cursor: first.cursor });
    expect([...first.runs, ...second.runs].map(({ workflowRunId }) => workflowRunId)).toEqual(ids);
    expect(second.cursor).toBeUndefined();
    await expect(user.workflows.logs({ filter: { state: "RUN_LOST" } as object })).rejects.toMatchObject({
      status: 400,
    });
    // The same filter under its other name.
    const { body } = await ask(user, `GET workflows/logs?workflowRunId=${ids[0]}`);
    expect(body).toMatchObject({ runs: [{ workflowRunId: ids[0], workflowState: "RUN_SUCCESS" }] });
  });
}
