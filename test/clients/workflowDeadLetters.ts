import type { WorkflowContext } from "@upstash/workflow";
import { serve } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import {
  ask,
  waitForCount,
  findDeadLetter,
  waitForEnd,
  createGate,
  waitForResult,
} from "./workflowTestServer.ts";

/** Tests of the actions on failed runs. */
export function workflowDeadLetters(createUser: () => WorkflowUser): void {
  testListing(createUser);
  testResuming(createUser);
  testPartialRuns(createUser);
  testCallResults(createUser);
  testChangedCode(createUser);
  testBulk(createUser);
}

/** A workflow of two steps whose second step fails until `heal` is called. */
function serveFailingWorkflow(user: WorkflowUser) {
  const executed: string[] = [];
  let isBroken = true;
  const work = user.serve(async (context: WorkflowContext<string>) => {
    const first = await context.run("first", () => (executed.push("first"), `${context.requestPayload} 1`));
    const second = await context.run("second", () => {
      executed.push("second");
      if (isBroken) throw new Error("broken");
      return `${first} 2`;
    });
    return [second, context.headers.get("x-mine"), context.label ?? null];
  });
  const fail = async (label: string, more: object = {}) => {
    const run = await user.workflows.trigger({
      url: work.url,
      body: label,
      label,
      retries: 0,
      headers: { "x-mine": "m" },
      ...more,
    });
    return { ...run, ...(await findDeadLetter(user, run)) };
  };
  return { work, executed, fail, heal: () => void (isBroken = false) };
}

type Filter = NonNullable<NonNullable<Parameters<WorkflowUser["workflows"]["dlq"]["list"]>[0]>["filter"]>;
type Ids = { workflowRunId: string; workflowCreatedAt: unknown };

function testListing(createUser: () => WorkflowUser): void {
  test("dead letters are found by the properties of their runs", async () => {
    const user = createUser();
    const { fail, work } = serveFailingWorkflow(user);
    const before = Date.now() - 60_000;
    const red = await fail("red");
    await fail("blue");
    const cases: [filter: Filter, found: string[]][] = [
      [{}, ["red", "blue"]],
      [{ workflowRunId: red.workflowRunId }, ["red"]],
      [{ workflowRunId: red.workflowRunId, workflowCreatedAt: red.workflowCreatedAt }, ["red"]],
      [{ workflowRunId: red.workflowRunId, workflowCreatedAt: 1 }, []],
      [{ workflowUrl: work.url }, ["red", "blue"]],
      [{ workflowUrl: "http://127.0.0.1:1/none" }, []],
      [{ url: work.url }, ["red", "blue"]],
      [{ responseStatus: 500 }, ["red", "blue"]],
      [{ responseStatus: 404 }, []],
      [{ label: "red" }, ["red"]],
      [{ label: ["red", "blue"] }, ["red", "blue"]],
      [{ callerIp: "127.0.0.1" }, ["red", "blue"]],
      [{ flowControlKey: "none" }, []],
      [{ fromDate: before, toDate: Date.now() + 60_000 }, ["red", "blue"]],
      [{ toDate: before }, []],
    ];
    for (const [filter, wanted] of cases) {
      const { messages } = await user.workflows.dlq.list({ filter });
      expect({ filter, found: new Set(messages.map(({ label }) => label)) }).toEqual({
        filter,
        found: new Set(wanted),
      });
    }
    const first = await user.workflows.dlq.list({ count: 1 });
    const second = await user.workflows.dlq.list({ count: 1, cursor: first.cursor ?? "" });
    expect([first.messages.length, second.messages.length]).toEqual([1, 1]);
    expect(new Set([...first.messages, ...second.messages].map(({ label }) => label))).toEqual(
      new Set(["blue", "red"]),
    );
    await expect(user.workflows.dlq.list({ filter: { labeel: "x" } as object })).rejects.toMatchObject({
      status: 400,
    });
    expect(await ask(user, `GET workflows/dlq/${red.dlqId}`)).toMatchObject({
      status: 200,
      body: { workflowRunId: red.workflowRunId },
    });
  });
}

function testResuming(createUser: () => WorkflowUser): void {
  test("resuming creates a new run that continues with the failed step", async () => {
    const user = createUser();
    const { fail, heal, executed } = serveFailingWorkflow(user);
    const failed = await fail("red");
    heal();
    const { workflowRuns, cursor } = await user.workflows.dlq.resume(failed.dlqId);
    expect(cursor).toBeUndefined();
    const [resumed] = workflowRuns as Ids[];
    if (!resumed) throw new Error("one run");
    expect(resumed).toEqual({
      workflowRunId: expect.stringMatching(/^wfr_/),
      workflowCreatedAt: expect.any(Number),
      dlqId: failed.dlqId,
    });
    expect(resumed.workflowRunId).not.toBe(failed.workflowRunId);
    expect(await waitForResult(user, resumed)).toEqual(["red 1 2", "m", "red"]);
    expect(executed).toEqual(["first", "second", "second"]);
    expect((await user.workflows.dlq.list()).messages).toEqual([]);
    expect(await waitForEnd(user, failed)).toMatchObject({ workflowState: "RUN_FAILED" });
  });

  test("restarting creates a run from the beginning with the same payload", async () => {
    const user = createUser();
    const { fail, heal, executed } = serveFailingWorkflow(user);
    const failed = await fail("red");
    heal();
    const { workflowRuns } = await user.workflows.dlq.restart([failed.dlqId]);
    const [again] = workflowRuns as Ids[];
    if (!again) throw new Error("one run");
    expect(await waitForResult(user, again)).toEqual(["red 1 2", "m", "red"]);
    expect(executed).toEqual(["first", "second", "first", "second"]);
    expect((await user.workflows.dlq.list()).messages).toEqual([]);
  });

  test("the new run can have other retries and flow control, and can fail again", async () => {
    const user = createUser();
    const { fail, work, executed } = serveFailingWorkflow(user);
    const failed = await fail("red", { retryDelay: "10" });
    const count = work.calls.length;
    const { dlqId } = failed;
    const again = (await user.workflows.dlq.resume({
      dlqId,
      retries: 2,
      flowControl: { key: "few", parallelism: 1 },
    })) as Ids;
    expect(await waitForEnd(user, again)).toMatchObject({
      workflowState: "RUN_FAILED",
      flowControlKey: "few",
    });
    expect(executed).toEqual(["first", "second", "second", "second", "second"]);
    expect(work.calls.length - count).toBeGreaterThanOrEqual(3);
    const input = await findDeadLetter(user, again);
    expect(input).toMatchObject({ maxRetries: 2, label: "red" });
    const { workflowRuns } = await user.workflows.dlq.restart(input.dlqId, { retries: 0 });
    expect(await findDeadLetter(user, workflowRuns[0] ?? { workflowRunId: "" })).toMatchObject({
      maxRetries: 0,
    });
  });
}

function testPartialRuns(createUser: () => WorkflowUser): void {
  test("only steps without a result are executed again in a half-finished group", async () => {
    const user = createUser();
    const executed: string[] = [];
    const other = user.answer(() => Response.json("called"));
    let isBroken = true;
    const finished = createGate();
    const work = user.serve(async (context) => {
      const note = (name: string) => () => (executed.push(name), name);
      await context.run("before", note("before"));
      const all = await Promise.all([
        context.run("quick", note("quick")),
        context.call("call", { url: other.url }),
        context.run("broken", async () => {
          executed.push("broken");
          if (isBroken) await finished.promise;
          if (isBroken) throw new Error("broken");
          return "mended";
        }),
        context.waitForEvent("wait", "half", { timeout: "1h" }),
        context.run("other", note("other")),
      ]);
      return [all[0], all[1].body, all[2], all[3].eventData, all[4]];
    });
    const run = await user.workflows.trigger({ url: work.url, retries: 0 });
    const history = async () =>
      ((await ask(user, `GET workflows/runs/${run.workflowRunId}`)).body as unknown[]).length;
    // The payload, a step, five plans, two results, and a call, its response and its result.
    await eventually(history, (length) => length === 12);
    await eventually(
      () => user.workflows.getWaiters({ eventId: "half" }),
      ({ length }) => length === 1,
    );
    finished.resolve();
    const { dlqId } = await findDeadLetter(user, run);
    expect(await user.workflows.getWaiters({ eventId: "half" })).toEqual([]);
    isBroken = false;
    const { workflowRuns } = await user.workflows.dlq.resume([dlqId]);
    const [resumed] = workflowRuns as Ids[];
    if (!resumed) throw new Error("one run");
    await eventually(
      () => user.workflows.getWaiters({ eventId: "half" }),
      ({ length }) => length === 1,
    );
    await user.workflows.notify({ eventId: "half", eventData: "woken" });
    expect(await waitForResult(user, resumed)).toEqual(["quick", "called", "mended", "woken", "other"]);
    expect(executed.toSorted()).toEqual(["before", "broken", "broken", "other", "quick"]);
    expect(other.calls).toHaveLength(1);
  });
}

function testCallResults(createUser: () => WorkflowUser): void {
  test("a third party that answered is not called again if its response could not be delivered", async () => {
    const user = createUser();
    let isBroken = true;
    const other = user.answer(() => Response.json("once"));
    const route = async (context: WorkflowContext) => (await context.call("call", { url: other.url })).body;
    const { handler } = serve(route, { qstashClient: user.client, receiver: user.receiver, env: {} });
    const work = user.answer((request) =>
      isBroken && request.headers.has("upstash-workflow-callback")
        ? new Response("not now", { status: 503 })
        : handler(request),
    );
    const run = await user.workflows.trigger({ url: work.url, retries: 0 });
    const { dlqId, responseStatus } = await findDeadLetter(user, run);
    expect(responseStatus).toBe(503);
    isBroken = false;
    const [resumed] = (await user.workflows.dlq.resume(dlqId)).workflowRuns;
    expect(await waitForResult(user, resumed ?? { workflowRunId: "" })).toBe("once");
    expect(other.calls).toHaveLength(1);
  });

  test("a resumed run that failed after its last step ends without executing a step", async () => {
    const user = createUser();
    const executed: number[] = [];
    let isBroken = true;
    const work = user.serve(async (context) => {
      const [one, two] = await Promise.all([
        context.run("one", () => executed.push(1)),
        context.run("two", () => executed.push(2)),
      ]);
      if (isBroken) throw new Error("at the end");
      return [one, two].length;
    });
    const run = await user.workflows.trigger({ url: work.url, retries: 0 });
    const { dlqId } = await findDeadLetter(user, run);
    isBroken = false;
    const [resumed] = (await user.workflows.dlq.resume(dlqId)).workflowRuns;
    expect(await waitForResult(user, resumed ?? { workflowRunId: "" })).toBe(2);
    expect(new Set(executed)).toEqual(new Set([1, 2]));
    expect(executed).toHaveLength(2);
  });
}

function testChangedCode(createUser: () => WorkflowUser): void {
  test("code that differs from the history fails the run at once, and continues once corrected", async () => {
    const user = createUser();
    let name = "first";
    const work = user.serve(async (context) => {
      const first = await context.run(name, () => (name === "first" && (name = "renamed"), 1));
      return context.run("second", () => first + 1);
    });
    const run = await user.workflows.trigger({ url: work.url });
    const { steps } = await waitForEnd(user, run);
    const reason = 'step 1: history has "first", the endpoint ran "renamed"';
    expect(steps.at(-1)).toMatchObject({
      type: "next",
      steps: [{ state: "STEP_FAILED", errors: [{ error: reason, status: 500 }] }],
    });
    const input = await findDeadLetter(user, run);
    // The start, the call that did not match, and the failure callback.
    expect(await waitForCount(work, 3)).toBe(3);
    name = "first";
    const mended = user.workflows.dlq.resume(input.dlqId);
    const [resumed] = (await mended).workflowRuns;
    expect(await waitForResult(user, resumed ?? { workflowRunId: "" })).toBe(2);
  });
}

function testBulk(createUser: () => WorkflowUser): void {
  test("many runs are resumed, restarted and deleted by ids, by filters or all, page by page", async () => {
    const user = createUser();
    const { fail, heal } = serveFailingWorkflow(user);
    const { dlq } = user.workflows;
    const inputs = await Promise.all(["a", "b", "c", "d", "e", "f"].map((label) => fail(label)));
    const [a = "", b = ""] = inputs.map(({ dlqId }) => dlqId);
    const left = async () => new Set((await dlq.list()).messages.map(({ label }) => label));
    expect(await dlq.delete(a)).toEqual({ deleted: 1, cursor: undefined });
    expect(await dlq.delete([a, b])).toMatchObject({ deleted: 1, cursor: undefined, failed: [{ id: a }] });
    expect(await dlq.delete({ filter: { label: "none" } })).toMatchObject({ deleted: 0 });
    expect(await dlq.delete({ filter: { label: "c" } })).toMatchObject({ deleted: 1 });
    expect(await left()).toEqual(new Set(["d", "e", "f"]));
    heal();
    expect((await dlq.resume({ filter: { label: "none" } })).workflowRuns).toEqual([]);
    const byFilter = await dlq.resume({ filter: { label: ["d", "e"] }, count: 1 });
    expect(byFilter.workflowRuns).toHaveLength(1);
    expect(byFilter.cursor).toEqual(expect.any(String));
    const rest = await dlq.restart({ all: true });
    expect(rest.workflowRuns).toHaveLength(2);
    for (const run of [...byFilter.workflowRuns, ...rest.workflowRuns])
      expect(await waitForResult(user, run)).toContain("m");
    expect(await left()).toEqual(new Set());
    expect(await dlq.delete({ all: true })).toMatchObject({ deleted: 0 });
    expect(await dlq.resume({ dlqIds: [a] }).catch(({ status }: { status: number }) => status)).toSatisfy(
      (answer: unknown) => answer === 404 || (answer as { workflowRuns: [] }).workflowRuns.length === 0,
    );
  });
}
