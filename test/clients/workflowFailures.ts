import type { WorkflowContext } from "@upstash/workflow";
import { WorkflowNonRetryableError, WorkflowRetryAfterError } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./house.ts";
import type { Author } from "./workflowHouse.ts";
import { countOf, deadLetterOf, ended, resultOf } from "./workflowHouse.ts";

/** How runs fail, what is tried before, and who is told. */
export function failing(arrive: () => Author): void {
  retries(arrive);
  refused(arrive);
  telling(arrive);
  failureUrls(arrive);
  callbackAgain(arrive);
}

const throwing = (error: Error) => (): never => {
  throw error;
};

function retries(arrive: () => Author): void {
  test("a step that fails is tried again as often as the trigger says, after the delay that it says", async () => {
    const author = arrive();
    const work = author.serve(async (context) => {
      await context.run("fine", () => 1);
      return context.run("third time lucky", () => {
        if (context.retried < 2) throw new Error(`not yet ${context.retried}`);
        return context.retried;
      });
    });
    const began = Date.now();
    const run = await author.workflows.trigger({ url: work.url, retries: 2, retryDelay: "100 * (1 + retried)" });
    expect(await resultOf(author, run)).toBe(2);
    expect(Date.now() - began).toBeGreaterThanOrEqual(300);
    expect(await countOf(work, 5)).toBe(5);
    expect(work.calls.map(({ status }) => status)).toEqual([200, 500, 500, 200, 200]);
    expect(work.calls.map(({ headers }) => headers["upstash-retried"])).toEqual(["0", "0", "1", "2", "0"]);
  });

  test("a run fails when its retries are used up, and is a dead letter then", async () => {
    const author = arrive();
    const work = author.serve((context) => context.run("fail", throwing(new Error("never"))));
    const run = await author.workflows.trigger({ url: work.url, body: { n: 1 }, retries: 1, retryDelay: "10", label: "broken" });
    const { dlqId } = await ended(author, run);
    const letter = await deadLetterOf(author, run);
    expect(letter).toMatchObject({
      ...{ dlqId, workflowRunId: run.workflowRunId, workflowUrl: work.url, url: work.url, maxRetries: 1, responseStatus: 500 },
      ...{ label: "broken", labels: ["broken"], failureCallback: work.url, workflowCreatedAt: expect.any(Number) },
    });
    expect(JSON.parse(letter.responseBody)).toMatchObject({ message: "never" });
    // Twice, and the failure callback to an endpoint that has no failure function.
    expect(await countOf(work, 3)).toBe(3);
    expect(work.calls[2]).toMatchObject({ status: 200, headers: { "upstash-workflow-is-failure": "true" } });
  });

  test("an error that no retry can help fails the run at once", async () => {
    const author = arrive();
    const work = author.serve((context) => context.run("fail", throwing(new WorkflowNonRetryableError("give up"))));
    const run = await author.workflows.trigger({ url: work.url });
    expect(await ended(author, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    expect(await deadLetterOf(author, run)).toMatchObject({ responseStatus: 489, responseBody: expect.stringContaining("give up") });
    expect(await countOf(work, 2)).toBe(2);
    expect(work.calls[0]?.status).toBe(489);
  });

  test("an error that names a time is tried again then", async () => {
    const author = arrive();
    const times: number[] = [];
    const work = author.serve((context) =>
      context.run("later", () => {
        times.push(Date.now());
        if (context.retried === 0) throw new WorkflowRetryAfterError("busy", 1);
        return "done";
      }),
    );
    expect(await resultOf(author, await author.workflows.trigger({ url: work.url, retryDelay: "1" }))).toBe("done");
    const [first = 0, second = 0] = times;
    expect(second - first).toBeGreaterThanOrEqual(1000);
    expect(await countOf(work, 3)).toBe(3);
    expect(work.calls.map(({ status }) => status)).toEqual([429, 200, 200]);
  });
}

function refused(arrive: () => Author): void {
  type Step = (context: WorkflowContext) => Promise<unknown>;
  const cases: [what: string, step: Step, reason: string][] = [
    ["a result larger than any message", (context) => context.run("big", () => "x".repeat(8 * 1024 * 1024)), "8388608"],
    ["a sleep of no duration", (context) => context.sleep("nap", "soon" as "1s"), "soon"],
    ["a sleep of ten years", (context) => context.sleep("nap", "3650d"), "limit"],
    ["a wait of no duration", (context) => context.waitForEvent("wait", "event", { timeout: "soon" as "1s" }), "soon"],
    ["a wait of ten years", (context) => context.waitForEvent("wait", "event", { timeout: "3650d" }), "limit"],
    ["an event with a name that no path can have", (context) => context.waitForEvent("wait", "100%"), "percent-encoding"],
    ["a call to what is no URL", (context) => context.call("call", { url: "third party" }), "third party"],
    ["a call with no method", (context) => context.call("call", { url: "http://127.0.0.1:1/", method: "MAYBE" as "GET" }), "MAYBE"],
  ];
  test.each(cases)("%s fails the run at once, with the reason", async (_, step, reason) => {
    const author = arrive();
    const work = author.serve(async (context) => {
      await context.run("fine", () => 1);
      await step(context);
    });
    const run = await author.workflows.trigger({ url: work.url });
    expect(await ended(author, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    expect(await deadLetterOf(author, run)).toMatchObject({ responseStatus: 489, responseBody: expect.stringContaining(reason) });
  });
}

type Told = {
  response: string;
  status: number;
  payload: unknown;
  runId: string;
  label: string | undefined;
  mine: string | null;
  header: unknown;
};

function telling(arrive: () => Author): void {
  test.each([
    ["whole", 3 * 1024 * 1024, 3 * 1024 * 1024],
    ["cut to what fits, and still to be read", 7 * 1024 * 1024, 5.9 * 1024 * 1024],
  ])("a failure function gets a large error: %s", async (_, length, least) => {
    const author = arrive();
    const told: [message: string, payload: unknown][] = [];
    const work = author.serve((context) => context.run("fail", throwing(new WorkflowNonRetryableError("m".repeat(length)))), {
      failureFunction: ({ failResponse, context }) => void told.push([failResponse, context.requestPayload]),
    });
    const run = await author.workflows.trigger({ url: work.url, body: { order: 7 } });
    expect(await deadLetterOf(author, run)).toMatchObject({ body: '{"order":7}' });
    await eventually(
      async () => told.length,
      (count) => count > 0,
    );
    const [[message, payload] = ["", undefined]] = told;
    expect(payload).toEqual({ order: 7 });
    expect(message).toMatch(/^m+$/);
    expect(message.length).toBeGreaterThanOrEqual(least);
    expect(message.length).toBeLessThanOrEqual(length);
  });

  const failedWith = async (author: Author, body: unknown) => {
    const told: Told[] = [];
    const work = author.serve((context) => context.run("fail", throwing(new Error("böse"))), {
      failureFunction: ({ context, failResponse, failStatus, failHeaders }) => {
        const { workflowRunId: runId, requestPayload: payload, label } = context;
        const header = failHeaders["Upstash-Workflow-Sdk-Version"];
        told.push({ runId, payload, label, mine: context.headers.get("x-mine"), response: failResponse, status: failStatus, header });
        return "cleaned up";
      },
    });
    const run = await author.workflows.trigger({ url: work.url, body, retries: 0, label: "sad", headers: { "x-mine": "m" } });
    await eventually(
      async () => told.length,
      (count) => count > 0,
    );
    return { told, run, work };
  };

  test("the failure function is told of the failure, with the payload and the headers of the run", async () => {
    const author = arrive();
    const { told, run, work } = await failedWith(author, { n: 1 });
    const common = { runId: run.workflowRunId, label: "sad", mine: "m", response: "böse", status: 500, header: ["1"] };
    expect(told).toEqual([{ ...common, payload: { n: 1 } }]);
    expect(await countOf(work, 2)).toBe(2);
    const { failureFunction } = await eventually(
      () => ended(author, run),
      (one) => one.failureFunction?.state === "CALLBACK_SUCCESS",
    );
    expect(failureFunction).toMatchObject({
      ...{ url: work.url, failStatus: 500, failResponse: expect.stringContaining("böse"), responseStatus: 200 },
      ...{ responseBody: JSON.stringify({ result: "cleaned up" }), messageId: expect.stringMatching(/^msg_/) },
    });
    expect(await deadLetterOf(author, run)).toMatchObject({
      failureCallbackInfo: { state: "CALLBACK_SUCCESS", responseStatus: 200, responseBody: JSON.stringify({ result: "cleaned up" }) },
    });
  });

  test("without a payload, there is none for the failure function either", async () => {
    const { told } = await failedWith(arrive(), undefined);
    expect(told).toMatchObject([{ payload: undefined }]);
    expect(told[0]?.payload).toBeUndefined();
  });

  test("an error that has nothing to do with a step counts as well", async () => {
    const author = arrive();
    const told: string[] = [];
    const work = author.serve(
      async (context) => {
        await context.run("fine", () => 1);
        throw new Error("between");
      },
      { failureFunction: ({ failResponse }) => void told.push(failResponse) },
    );
    await ended(author, await author.workflows.trigger({ url: work.url, retries: 0 }));
    expect(await countOf(work, 3)).toBe(3);
    expect(told).toEqual(["between"]);
  });

  test("a run that comes back without any step is refused as not allowed, and the failure function with it", async () => {
    const author = arrive();
    const told: string[] = [];
    const work = author.serve(async () => undefined, { failureFunction: ({ failResponse }) => void told.push(failResponse) });
    const run = await author.workflows.trigger({ url: work.url, retries: 0 });
    expect(await deadLetterOf(author, run)).toMatchObject({ responseStatus: 400 });
    expect(await countOf(work, 2)).toBe(2);
    expect(told).toEqual([]);
  });
}

function failureUrls(arrive: () => Author): void {
  test("a failure URL gets the failure with all that belongs to it", async () => {
    const author = arrive();
    const desk = author.answer(() => Response.json({ noted: true }));
    const work = author.serve((context: WorkflowContext) => context.run("fail", throwing(new Error("sorry"))));
    const run = await author.workflows.trigger({ url: work.url, body: "p", retries: 0, failureUrl: desk.url, headers: { "x-mine": "m" } });
    expect(await countOf(desk, 1)).toBe(1);
    const { dlqId } = await ended(author, run);
    expect(desk.calls[0]?.headers).toMatchObject({
      ...{ "upstash-workflow-is-failure": "true", "upstash-workflow-failure-callback": "true", "x-mine": "m" },
      ...{ "upstash-workflow-runid": run.workflowRunId, "content-type": "application/json" },
    });
    expect(JSON.parse(desk.calls[0]?.body ?? "")).toMatchObject({
      ...{ status: 500, url: work.url, workflowRunId: run.workflowRunId, dlqId, maxRetries: 0, sourceBody: btoa("p") },
      ...{ sourceMessageId: work.calls[0]?.headers["upstash-message-id"], workflowCreatedAt: expect.any(Number), callerIP: "127.0.0.1" },
    });
    expect(await countOf(work, 1)).toBe(1);
  });
}

function callbackAgain(arrive: () => Author): void {
  test("a failure function that fails can be called again, once it has failed for good", async () => {
    const author = arrive();
    let [broken, executed] = [true, 0];
    const work = author.serve((context) => context.run("fail", throwing(new Error("sorry"))), {
      failureFunction: () => {
        executed++;
        if (broken) throw new Error("desk is closed");
        return "noted";
      },
    });
    const run = await author.workflows.trigger({ url: work.url, retries: 1, retryDelay: "10" });
    const inState = (state: string) =>
      eventually(
        () => deadLetterOf(author, run),
        (letter) => letter.failureCallbackInfo?.state === state,
      );
    const { dlqId, failureCallbackInfo } = await inState("CALLBACK_FAIL");
    expect(failureCallbackInfo).toMatchObject({ responseStatus: 500, responseBody: expect.stringContaining("desk is closed") });
    // As often as the run itself.
    expect(executed).toBe(2);
    expect((await author.workflows.dlq.list({ filter: { failureFunctionState: "CALLBACK_FAIL" } })).messages).toHaveLength(1);
    expect((await author.workflows.dlq.list({ filter: { failureFunctionState: "CALLBACK_SUCCESS" } })).messages).toHaveLength(0);
    broken = false;
    const again = await author.workflows.dlq.retryFailureFunction({ dlqId });
    expect(again).toMatchObject({ workflowRunId: run.workflowRunId, workflowCreatedAt: expect.any(Number) });
    expect((await inState("CALLBACK_SUCCESS")).failureCallbackInfo).toMatchObject({ responseBody: '{"result":"noted"}' });
    await expect(author.workflows.dlq.retryFailureFunction({ dlqId })).rejects.toMatchObject({ status: 400 });
    await expect(author.workflows.dlq.retryFailureFunction({ dlqId: "dlq_none" })).rejects.toMatchObject({ status: 404 });
    expect(executed).toBe(3);
    expect((await author.workflows.dlq.list()).messages).toHaveLength(1);
  });
}
