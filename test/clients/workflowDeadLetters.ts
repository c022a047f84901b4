import type { WorkflowContext } from "@upstash/workflow";
import { serve } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./house.ts";
import type { Author } from "./workflowHouse.ts";
import { ask, countOf, deadLetterOf, ended, gate, resultOf } from "./workflowHouse.ts";

/** What can be done about runs that have failed. */
export function workflowDeadLetters(arrive: () => Author): void {
  listing(arrive);
  resuming(arrive);
  halfFinished(arrive);
  answered(arrive);
  changedCode(arrive);
  bulk(arrive);
}

/** A workflow of two steps whose second fails until `heal` is called. */
function ailing(author: Author) {
  const executed: string[] = [];
  let isBroken = true;
  const work = author.serve(async (context: WorkflowContext<string>) => {
    const first = await context.run("first", () => (executed.push("first"), `${context.requestPayload} 1`));
    const second = await context.run("second", () => {
      executed.push("second");
      if (isBroken) throw new Error("broken");
      return `${first} 2`;
    });
    return [second, context.headers.get("x-mine"), context.label ?? null];
  });
  const fail = async (label: string, more: object = {}) => {
    const run = await author.workflows.trigger({ url: work.url, body: label, label, retries: 0, headers: { "x-mine": "m" }, ...more });
    return { ...run, ...(await deadLetterOf(author, run)) };
  };
  return { work, executed, fail, heal: () => void (isBroken = false) };
}

type Filter = NonNullable<NonNullable<Parameters<Author["workflows"]["dlq"]["list"]>[0]>["filter"]>;
type Ids = { workflowRunId: string; workflowCreatedAt: unknown };

function listing(arrive: () => Author): void {
  test("dead letters are found by what belongs to their runs", async () => {
    const author = arrive();
    const { fail, work } = ailing(author);
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
      const { messages } = await author.workflows.dlq.list({ filter });
      expect({ filter, found: new Set(messages.map(({ label }) => label)) }).toEqual({ filter, found: new Set(wanted) });
    }
    const first = await author.workflows.dlq.list({ count: 1 });
    const second = await author.workflows.dlq.list({ count: 1, cursor: first.cursor ?? "" });
    expect([first.messages.length, second.messages.length]).toEqual([1, 1]);
    expect(new Set([...first.messages, ...second.messages].map(({ label }) => label))).toEqual(new Set(["blue", "red"]));
    await expect(author.workflows.dlq.list({ filter: { labeel: "x" } as object })).rejects.toMatchObject({ status: 400 });
    expect(await ask(author, "GET", `workflows/dlq/${red.dlqId}`)).toMatchObject({
      status: 200,
      body: { workflowRunId: red.workflowRunId },
    });
  });
}

function resuming(arrive: () => Author): void {
  test("a run that is resumed is a new one, and goes on with the step that failed", async () => {
    const author = arrive();
    const { fail, heal, executed } = ailing(author);
    const failed = await fail("red");
    heal();
    const { workflowRuns, cursor } = await author.workflows.dlq.resume(failed.dlqId);
    expect(cursor).toBeUndefined();
    const [resumed] = workflowRuns as Ids[];
    if (!resumed) throw new Error("one run");
    expect(resumed).toEqual({
      workflowRunId: expect.stringMatching(/^wfr_/),
      workflowCreatedAt: expect.any(Number),
      dlqId: failed.dlqId,
    });
    expect(resumed.workflowRunId).not.toBe(failed.workflowRunId);
    expect(await resultOf(author, resumed)).toEqual(["red 1 2", "m", "red"]);
    expect(executed).toEqual(["first", "second", "second"]);
    expect((await author.workflows.dlq.list()).messages).toEqual([]);
    expect(await ended(author, failed)).toMatchObject({ workflowState: "RUN_FAILED" });
  });

  test("a run that is restarted begins again with the same payload", async () => {
    const author = arrive();
    const { fail, heal, executed } = ailing(author);
    const failed = await fail("red");
    heal();
    const { workflowRuns } = await author.workflows.dlq.restart([failed.dlqId]);
    const [again] = workflowRuns as Ids[];
    if (!again) throw new Error("one run");
    expect(await resultOf(author, again)).toEqual(["red 1 2", "m", "red"]);
    expect(executed).toEqual(["first", "second", "first", "second"]);
    expect((await author.workflows.dlq.list()).messages).toEqual([]);
  });

  test("retries and flow control can be others for the new run, and a second failure is a dead letter again", async () => {
    const author = arrive();
    const { fail, work, executed } = ailing(author);
    const failed = await fail("red", { retryDelay: "10" });
    const count = work.calls.length;
    const { dlqId } = failed;
    const again = (await author.workflows.dlq.resume({ dlqId, retries: 2, flowControl: { key: "few", parallelism: 1 } })) as Ids;
    expect(await ended(author, again)).toMatchObject({ workflowState: "RUN_FAILED", flowControlKey: "few" });
    expect(executed).toEqual(["first", "second", "second", "second", "second"]);
    expect(work.calls.length - count).toBeGreaterThanOrEqual(3);
    const letter = await deadLetterOf(author, again);
    expect(letter).toMatchObject({ maxRetries: 2, label: "red" });
    const { workflowRuns } = await author.workflows.dlq.restart(letter.dlqId, { retries: 0 });
    expect(await deadLetterOf(author, workflowRuns[0] ?? { workflowRunId: "" })).toMatchObject({ maxRetries: 0 });
  });
}

function halfFinished(arrive: () => Author): void {
  test("of a group that is half finished, only what has no result is executed again", async () => {
    const author = arrive();
    const executed: string[] = [];
    const other = author.answer(() => Response.json("called"));
    let isBroken = true;
    const finished = gate();
    const work = author.serve(async (context) => {
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
    const run = await author.workflows.trigger({ url: work.url, retries: 0 });
    const history = async () => ((await ask(author, "GET", `workflows/runs/${run.workflowRunId}`)).body as unknown[]).length;
    // The payload, a step, five plans, two results, and a call, its answer and its result.
    await eventually(history, (length) => length === 12);
    await eventually(
      () => author.workflows.getWaiters({ eventId: "half" }),
      ({ length }) => length === 1,
    );
    finished.resolve();
    const { dlqId } = await deadLetterOf(author, run);
    expect(await author.workflows.getWaiters({ eventId: "half" })).toEqual([]);
    isBroken = false;
    const { workflowRuns } = await author.workflows.dlq.resume([dlqId]);
    const [resumed] = workflowRuns as Ids[];
    if (!resumed) throw new Error("one run");
    await eventually(
      () => author.workflows.getWaiters({ eventId: "half" }),
      ({ length }) => length === 1,
    );
    await author.workflows.notify({ eventId: "half", eventData: "woken" });
    expect(await resultOf(author, resumed)).toEqual(["quick", "called", "mended", "woken", "other"]);
    expect(executed.toSorted()).toEqual(["before", "broken", "broken", "other", "quick"]);
    expect(other.calls).toHaveLength(1);
  });
}

function answered(arrive: () => Author): void {
  test("a third party that has answered is not asked again when its answer could not be told", async () => {
    const author = arrive();
    let isBroken = true;
    const other = author.answer(() => Response.json("once"));
    const route = async (context: WorkflowContext) => (await context.call("call", { url: other.url })).body;
    const { handler } = serve(route, { qstashClient: author.client, receiver: author.receiver, env: {} });
    const work = author.answer((request) =>
      isBroken && request.headers.has("upstash-workflow-callback") ? new Response("not now", { status: 503 }) : handler(request),
    );
    const run = await author.workflows.trigger({ url: work.url, retries: 0 });
    const { dlqId, responseStatus } = await deadLetterOf(author, run);
    expect(responseStatus).toBe(503);
    isBroken = false;
    const [resumed] = (await author.workflows.dlq.resume(dlqId)).workflowRuns;
    expect(await resultOf(author, resumed ?? { workflowRunId: "" })).toBe("once");
    expect(other.calls).toHaveLength(1);
  });

  test("a run that failed after its last step ends when it is resumed, and executes none", async () => {
    const author = arrive();
    const executed: number[] = [];
    let isBroken = true;
    const work = author.serve(async (context) => {
      const [one, two] = await Promise.all([context.run("one", () => executed.push(1)), context.run("two", () => executed.push(2))]);
      if (isBroken) throw new Error("at the end");
      return [one, two].length;
    });
    const run = await author.workflows.trigger({ url: work.url, retries: 0 });
    const { dlqId } = await deadLetterOf(author, run);
    isBroken = false;
    const [resumed] = (await author.workflows.dlq.resume(dlqId)).workflowRuns;
    expect(await resultOf(author, resumed ?? { workflowRunId: "" })).toBe(2);
    expect(new Set(executed)).toEqual(new Set([1, 2]));
    expect(executed).toHaveLength(2);
  });
}

function changedCode(arrive: () => Author): void {
  test("code that does not fit the history fails the run at once with the reason, and goes on when it is put right", async () => {
    const author = arrive();
    let name = "first";
    const work = author.serve(async (context) => {
      const first = await context.run(name, () => (name === "first" && (name = "renamed"), 1));
      return context.run("second", () => first + 1);
    });
    const run = await author.workflows.trigger({ url: work.url });
    const { steps } = await ended(author, run);
    const reason = 'step 1: history has "first", the endpoint ran "renamed"';
    expect(steps.at(-1)).toMatchObject({ type: "next", steps: [{ state: "STEP_FAILED", errors: [{ error: reason, status: 500 }] }] });
    const letter = await deadLetterOf(author, run);
    // The beginning, the call that did not fit, and the failure callback.
    expect(await countOf(work, 3)).toBe(3);
    name = "first";
    const mended = author.workflows.dlq.resume(letter.dlqId);
    const [resumed] = (await mended).workflowRuns;
    expect(await resultOf(author, resumed ?? { workflowRunId: "" })).toBe(2);
  });
}

function bulk(arrive: () => Author): void {
  test("many are resumed, restarted and deleted by ids, by filters, and all, a page at a time", async () => {
    const author = arrive();
    const { fail, heal } = ailing(author);
    const { dlq } = author.workflows;
    const letters = await Promise.all(["a", "b", "c", "d", "e", "f"].map((label) => fail(label)));
    const [a = "", b = ""] = letters.map(({ dlqId }) => dlqId);
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
    for (const run of [...byFilter.workflowRuns, ...rest.workflowRuns]) expect(await resultOf(author, run)).toContain("m");
    expect(await left()).toEqual(new Set());
    expect(await dlq.delete({ all: true })).toMatchObject({ deleted: 0 });
    expect(await dlq.resume({ dlqIds: [a] }).catch(({ status }: { status: number }) => status)).toSatisfy(
      (answer: unknown) => answer === 404 || (answer as { workflowRuns: [] }).workflowRuns.length === 0,
    );
  });
}
