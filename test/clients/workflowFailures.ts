import type { WorkflowContext } from "@upstash/workflow";
import { WorkflowNonRetryableError, WorkflowRetryAfterError } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { waitForCount, findDeadLetter, waitForEnd, waitForResult } from "./workflowTestServer.ts";

/** Tests of how runs fail, what is retried before, and who is notified. */
export function failures(createUser: () => WorkflowUser): void {
  testRetries(createUser);
  testRefusals(createUser);
  testFailureCallbacks(createUser);
  testFailureUrls(createUser);
  testRepeatedCallback(createUser);
}

const throwError = (error: Error) => (): never => {
  throw error;
};

function testRetries(createUser: () => WorkflowUser): void {
  test("a failed step is retried as often as the trigger says, with its delay", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      await context.run("fine", () => 1);
      return context.run("third time lucky", () => {
        if (context.retried < 2) throw new Error(`not yet ${context.retried}`);
        return context.retried;
      });
    });
    const began = Date.now();
    const run = await user.workflows.trigger({
      url: work.url,
      retries: 2,
      retryDelay: "100 * (1 + retried)",
    });
    expect(await waitForResult(user, run)).toBe(2);
    expect(Date.now() - began).toBeGreaterThanOrEqual(300);
    expect(await waitForCount(work, 5)).toBe(5);
    expect(work.calls.map(({ status }) => status)).toEqual([200, 500, 500, 200, 200]);
    expect(work.calls.map(({ headers }) => headers["upstash-retried"])).toEqual(["0", "0", "1", "2", "0"]);
  });

  test("a run fails and becomes a dead letter when its retries are used up", async () => {
    const user = createUser();
    const work = user.serve((context) => context.run("fail", throwError(new Error("never"))));
    const run = await user.workflows.trigger({
      url: work.url,
      body: { n: 1 },
      retries: 1,
      retryDelay: "10",
      label: "broken",
    });
    const { dlqId } = await waitForEnd(user, run);
    const input = await findDeadLetter(user, run);
    expect(input).toMatchObject({
      dlqId,
      workflowRunId: run.workflowRunId,
      workflowUrl: work.url,
      url: work.url,
      maxRetries: 1,
      responseStatus: 500,
      label: "broken",
      labels: ["broken"],
      failureCallback: work.url,
      workflowCreatedAt: expect.any(Number),
    });
    expect(JSON.parse(input.responseBody)).toMatchObject({ message: "never" });
    // Two calls, and the failure callback to an endpoint without a failure function.
    expect(await waitForCount(work, 3)).toBe(3);
    expect(work.calls[2]).toMatchObject({ status: 200, headers: { "upstash-workflow-is-failure": "true" } });
  });

  test("a non-retryable error fails the run at once", async () => {
    const user = createUser();
    const work = user.serve((context) =>
      context.run("fail", throwError(new WorkflowNonRetryableError("give up"))),
    );
    const run = await user.workflows.trigger({ url: work.url });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    expect(await findDeadLetter(user, run)).toMatchObject({
      responseStatus: 489,
      responseBody: expect.stringContaining("give up"),
    });
    expect(await waitForCount(work, 2)).toBe(2);
    expect(work.calls[0]?.status).toBe(489);
  });

  test("an error with a retry time is retried at that time", async () => {
    const user = createUser();
    const times: number[] = [];
    const work = user.serve((context) =>
      context.run("later", () => {
        times.push(Date.now());
        if (context.retried === 0) throw new WorkflowRetryAfterError("busy", 1);
        return "done";
      }),
    );
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url, retryDelay: "1" }))).toBe(
      "done",
    );
    const [first = 0, second = 0] = times;
    expect(second - first).toBeGreaterThanOrEqual(1000);
    expect(await waitForCount(work, 3)).toBe(3);
    expect(work.calls.map(({ status }) => status)).toEqual([429, 200, 200]);
  });
}

function testRefusals(createUser: () => WorkflowUser): void {
  type Step = (context: WorkflowContext) => Promise<unknown>;
  const cases: [what: string, step: Step, reason: string][] = [
    [
      "a result larger than any message",
      (context) => context.run("big", () => "x".repeat(10 * 1024 * 1024)),
      "10485760",
    ],
    ["a sleep of no duration", (context) => context.sleep("nap", "soon" as "1s"), "soon"],
    ["a sleep of ten years", (context) => context.sleep("nap", "3650d"), "limit"],
    [
      "a wait of no duration",
      (context) => context.waitForEvent("wait", "event", { timeout: "soon" as "1s" }),
      "soon",
    ],
    [
      "a wait of ten years",
      (context) => context.waitForEvent("wait", "event", { timeout: "3650d" }),
      "limit",
    ],
    ["an event with an invalid name", (context) => context.waitForEvent("wait", "100%"), "percent-encoding"],
    ["a call to an invalid URL", (context) => context.call("call", { url: "third party" }), "third party"],
    [
      "a call with no method",
      (context) => context.call("call", { url: "http://127.0.0.1:1/", method: "MAYBE" as "GET" }),
      "MAYBE",
    ],
  ];
  test.each(cases)("%s fails the run at once with the reason", async (_, step, reason) => {
    const user = createUser();
    const work = user.serve(async (context) => {
      await context.run("fine", () => 1);
      await step(context);
    });
    const run = await user.workflows.trigger({ url: work.url });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    expect(await findDeadLetter(user, run)).toMatchObject({
      responseStatus: 489,
      responseBody: expect.stringContaining(reason),
    });
  });
}

type ReportedFailure = {
  response: string;
  status: number;
  payload: unknown;
  runId: string;
  label: string | undefined;
  mine: string | null;
  header: unknown;
};

function testFailureCallbacks(createUser: () => WorkflowUser): void {
  test.each([
    ["whole", 3 * 1024 * 1024, 3 * 1024 * 1024],
    ["cut to the limit and still valid", 9 * 1024 * 1024, 7.4 * 1024 * 1024],
  ])("a failure function gets a large error: %s", async (_, length, least) => {
    const user = createUser();
    const told: [message: string, payload: unknown][] = [];
    const work = user.serve(
      (context) => context.run("fail", throwError(new WorkflowNonRetryableError("m".repeat(length)))),
      {
        failureFunction: ({ failResponse, context }) =>
          void told.push([failResponse, context.requestPayload]),
      },
    );
    const run = await user.workflows.trigger({ url: work.url, body: { order: 7 } });
    expect(await findDeadLetter(user, run)).toMatchObject({ body: '{"order":7}' });
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

  const failedWith = async (user: WorkflowUser, body: unknown) => {
    const told: ReportedFailure[] = [];
    const work = user.serve((context) => context.run("fail", throwError(new Error("böse"))), {
      failureFunction: ({ context, failResponse, failStatus, failHeaders }) => {
        const { workflowRunId: runId, requestPayload: payload, label } = context;
        const header = failHeaders["Upstash-Workflow-Sdk-Version"];
        told.push({
          runId,
          payload,
          label,
          mine: context.headers.get("x-mine"),
          response: failResponse,
          status: failStatus,
          header,
        });
        return "cleaned up";
      },
    });
    const run = await user.workflows.trigger({
      url: work.url,
      body,
      retries: 0,
      label: "sad",
      headers: { "x-mine": "m" },
    });
    await eventually(
      async () => told.length,
      (count) => count > 0,
    );
    return { told, run, work };
  };

  test("the failure function gets the failure, the payload and the headers of the run", async () => {
    const user = createUser();
    const { told, run, work } = await failedWith(user, { n: 1 });
    const common = {
      runId: run.workflowRunId,
      label: "sad",
      mine: "m",
      response: "böse",
      status: 500,
      header: ["1"],
    };
    expect(told).toEqual([{ ...common, payload: { n: 1 } }]);
    expect(await waitForCount(work, 2)).toBe(2);
    const { failureFunction } = await eventually(
      () => waitForEnd(user, run),
      (one) => one.failureFunction?.state === "CALLBACK_SUCCESS",
    );
    expect(failureFunction).toMatchObject({
      url: work.url,
      failStatus: 500,
      failResponse: expect.stringContaining("böse"),
      responseStatus: 200,
      responseBody: JSON.stringify({ result: "cleaned up" }),
      messageId: expect.stringMatching(/^msg_/),
    });
    expect(await findDeadLetter(user, run)).toMatchObject({
      failureCallbackInfo: {
        state: "CALLBACK_SUCCESS",
        responseStatus: 200,
        responseBody: JSON.stringify({ result: "cleaned up" }),
      },
    });
  });

  test("the failure function gets no payload if the run has none", async () => {
    const { told } = await failedWith(createUser(), undefined);
    expect(told).toMatchObject([{ payload: undefined }]);
    expect(told[0]?.payload).toBeUndefined();
  });

  test("an error outside of steps fails the run as well", async () => {
    const user = createUser();
    const told: string[] = [];
    const work = user.serve(
      async (context) => {
        await context.run("fine", () => 1);
        throw new Error("between");
      },
      { failureFunction: ({ failResponse }) => void told.push(failResponse) },
    );
    await waitForEnd(user, await user.workflows.trigger({ url: work.url, retries: 0 }));
    expect(await waitForCount(work, 3)).toBe(3);
    expect(told).toEqual(["between"]);
  });

  test("an endpoint that executes no step refuses the run without calling its failure function", async () => {
    const user = createUser();
    const told: string[] = [];
    const work = user.serve(async () => undefined, {
      failureFunction: ({ failResponse }) => void told.push(failResponse),
    });
    const run = await user.workflows.trigger({ url: work.url, retries: 0 });
    expect(await findDeadLetter(user, run)).toMatchObject({ responseStatus: 400 });
    expect(await waitForCount(work, 2)).toBe(2);
    expect(told).toEqual([]);
  });
}

function testFailureUrls(createUser: () => WorkflowUser): void {
  test("a failure URL gets the complete failure", async () => {
    const user = createUser();
    const desk = user.answer(() => Response.json({ noted: true }));
    const work = user.serve((context: WorkflowContext) =>
      context.run("fail", throwError(new Error("sorry"))),
    );
    const run = await user.workflows.trigger({
      url: work.url,
      body: "p",
      retries: 0,
      failureUrl: desk.url,
      headers: { "x-mine": "m" },
    });
    expect(await waitForCount(desk, 1)).toBe(1);
    const { dlqId } = await waitForEnd(user, run);
    expect(desk.calls[0]?.headers).toMatchObject({
      "upstash-workflow-is-failure": "true",
      "upstash-workflow-failure-callback": "true",
      "x-mine": "m",
      "upstash-workflow-runid": run.workflowRunId,
      "content-type": "application/json",
    });
    expect(JSON.parse(desk.calls[0]?.body ?? "")).toMatchObject({
      status: 500,
      url: work.url,
      workflowRunId: run.workflowRunId,
      dlqId,
      maxRetries: 0,
      sourceBody: btoa("p"),
      sourceMessageId: work.calls[0]?.headers["upstash-message-id"],
      workflowCreatedAt: expect.any(Number),
      callerIP: "127.0.0.1",
    });
    expect(await waitForCount(work, 1)).toBe(1);
  });

  test("a failure URL learns that the endpoint was down", async () => {
    const user = createUser();
    const desk = user.answer(() => Response.json({ noted: true }));
    await user.workflows.trigger({ url: "http://127.0.0.1:1/", retries: 0, failureUrl: desk.url });
    expect(await waitForCount(desk, 1)).toBe(1);
    expect(JSON.parse(desk.calls[0]?.body ?? "")).toMatchObject({
      status: -1,
      createdAt: expect.any(Number),
      notBefore: expect.any(Number),
    });
  });
}

function testRepeatedCallback(createUser: () => WorkflowUser): void {
  test("a failure function that failed for good can be called again", async () => {
    const user = createUser();
    let broken = true;
    let executed = 0;
    const work = user.serve((context) => context.run("fail", throwError(new Error("sorry"))), {
      failureFunction: () => {
        executed++;
        if (broken) throw new Error("office is closed");
        return "noted";
      },
    });
    const run = await user.workflows.trigger({ url: work.url, retries: 1, retryDelay: "10" });
    const inState = (state: string) =>
      eventually(
        () => findDeadLetter(user, run),
        (input) => input.failureCallbackInfo?.state === state,
      );
    const { dlqId, failureCallbackInfo } = await inState("CALLBACK_FAIL");
    expect(failureCallbackInfo).toMatchObject({
      responseStatus: 500,
      responseBody: expect.stringContaining("office is closed"),
    });
    // It is retried as often as the run itself.
    expect(executed).toBe(2);
    expect(
      (await user.workflows.dlq.list({ filter: { failureFunctionState: "CALLBACK_FAIL" } })).messages,
    ).toHaveLength(1);
    expect(
      (await user.workflows.dlq.list({ filter: { failureFunctionState: "CALLBACK_SUCCESS" } })).messages,
    ).toHaveLength(0);
    broken = false;
    const again = await user.workflows.dlq.retryFailureFunction({ dlqId });
    expect(again).toMatchObject({ workflowRunId: run.workflowRunId, workflowCreatedAt: expect.any(Number) });
    expect((await inState("CALLBACK_SUCCESS")).failureCallbackInfo).toMatchObject({
      responseBody: '{"result":"noted"}',
    });
    await expect(user.workflows.dlq.retryFailureFunction({ dlqId })).rejects.toMatchObject({ status: 400 });
    await expect(user.workflows.dlq.retryFailureFunction({ dlqId: "dlq_none" })).rejects.toMatchObject({
      status: 404,
    });
    expect(executed).toBe(3);
    expect((await user.workflows.dlq.list()).messages).toHaveLength(1);
  });
}
