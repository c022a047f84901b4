import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { eventually } from "../clientTestServer.ts";
import type { WorkflowUser, WorkflowTestServer } from "../workflowTestServer.ts";
import { waitForCount, findDeadLetter, waitForEnd, startWorkflowTestServer } from "../workflowTestServer.ts";
import { python, pythonJson } from "./dialects.ts";
import type { Row } from "./exchange.ts";
import { expectReplay } from "./exchange.ts";
import type { CallResult, PythonFailure } from "./pythonEndpoint.ts";
import { servePython } from "./pythonEndpoint.ts";

const json = { "Content-Type": "application/json" };

/** Starts a workflow as its users do, with a publish to its endpoint, which starts the run itself. */
async function start(
  author: WorkflowUser,
  url: string,
  payload: unknown,
): Promise<{ workflowRunId: string }> {
  const body = pythonJson(payload);
  const headers = { ...json, "Upstash-Forward-X-Mine": "mine" };
  await expectReplay(python, author, {
    rows: [{ call: "message.publish_json", send: `POST /v2/publish/${url}`, headers, body }],
  });
  const { runs } = await eventually(
    () => author.workflows.logs({ filter: { workflowUrl: url } }),
    ({ runs }) => runs.length > 0,
  );
  return { workflowRunId: runs[0]?.workflowRunId ?? "" };
}

describe.each(["LazyFetch,InitialBody", "LazyFetch,InitialBody,WF_DetectTrigger"])(
  "a Python workflow with %s",
  (features) => {
    let house: WorkflowTestServer;

    beforeAll(async () => {
      house = await startWorkflowTestServer("SQLite");
    });

    afterAll(() => house.close());

    test("executes every kind of step: run, sleep, sleep until a time, and call", async () => {
      const author = house.createUser();
      const other = author.answer(() =>
        Response.json({ called: "ü" }, { status: 201, headers: { "x-answer": "a" } }),
      );
      const executed: string[] = [];
      const results: unknown[] = [];
      const work = servePython(
        author,
        async (context) => {
          const { n } = context.requestPayload as { n: number };
          const first = await context.run("first", () => (executed.push("first"), `${n} ü €`));
          const second = await context.run(
            "second",
            () => (executed.push("second"), { first, list: [1, null, true] }),
          );
          await context.run("third", () => (executed.push("third"), null));
          await context.sleep("nap", 1);
          await context.sleep("short nap", "0s");
          await context.sleepUntil("until", Math.floor(Date.now() / 1000));
          const called: CallResult = await context.call("call", {
            url: other.url,
            method: "POST",
            body: { ask: [1, { deep: "ä" }] },
            headers: { "X-Call": "c" },
          });
          const asked = await context.call("ask", { url: other.url });
          await context.run("last", () =>
            results.push([second, called.status, called.body, asked.status, context.headers["x-mine"]]),
          );
        },
        { features },
      );
      const run = await start(author, work.url, { n: 7 });
      expect(await waitForEnd(author, run)).toMatchObject({ workflowState: "RUN_SUCCESS" });
      expect(executed).toEqual(["first", "second", "third"]);
      expect(results).toEqual([
        [{ first: "7 ü €", list: [1, null, true] }, 201, { called: "ü" }, 201, "mine"],
      ]);
      expect(other.calls).toMatchObject([
        {
          method: "POST",
          body: pythonJson({ ask: [1, { deep: "ä" }] }),
          headers: { "x-call": "c", "content-type": "application/json" },
        },
        { method: "GET" },
      ]);
      // Two calls for the start, one for each of nine steps, and a callback for each call.
      expect(await waitForCount(work, 13)).toBe(13);
      expect(work.calls.every(({ status }) => status === 200)).toBe(true);
    });

    test("fails after its retries, and its failure function gets the error and the payload", async () => {
      const author = house.createUser();
      const failures: PythonFailure[] = [];
      const failureFunction = (failure: PythonFailure): void => void failures.push(failure);
      const work = servePython(
        author,
        async (context) => {
          await context.run("fine", () => 1);
          await context.run("broken", () => {
            throw new Error("sorry");
          });
        },
        { features, retries: 0, failureFunction },
      );
      const run = await start(author, work.url, { n: 1 });
      expect(await waitForEnd(author, run)).toMatchObject({ workflowState: "RUN_FAILED" });
      await eventually(
        async () => failures,
        ({ length }) => length > 0,
      );
      expect(failures).toMatchObject([{ status: 500, message: "sorry", payload: { n: 1 }, ...run }]);
      expect(failures[0]?.headers).toMatchObject({ "X-Mine": ["mine"] });
      expect(await findDeadLetter(author, run)).toMatchObject({ workflowUrl: work.url, responseStatus: 500 });
    });

    test("continues after a call that failed for good, and gets its status", async () => {
      const author = house.createUser();
      const other = author.answer(() => new Response("no", { status: 404 }));
      const results: unknown[] = [];
      const work = servePython(
        author,
        async (context) => {
          const { status, body } = await context.call("call", {
            url: other.url,
            method: "PUT",
            body: "text",
          });
          await context.run("last", () => (results.push([status, body]), null));
        },
        { features },
      );
      const run = await start(author, work.url, null);
      expect(await waitForEnd(author, run)).toMatchObject({ workflowState: "RUN_SUCCESS" });
      expect(results).toEqual([[404, "no"]]);
      expect(other.calls).toMatchObject([{ method: "PUT", body: '"text"' }]);
    });
  },
);

describe("the Python workflow client", () => {
  const waiters = z.array(z.object({ workflowRunId: z.string(), eventId: z.string() }));
  const notified = z.array(z.object({ messageId: z.string(), workflowRunId: z.string(), url: z.string() }));
  let house: WorkflowTestServer;

  beforeAll(async () => {
    house = await startWorkflowTestServer("SQLite");
  });

  afterAll(() => house.close());

  test("wakes a waiting run by the event alone and by the run, and cancels a run", async () => {
    const author = house.createUser();
    const work = author.serve(async (context) => {
      const one = await context.waitForEvent("one", "python-event", { timeout: 100 });
      const two = await context.waitForEvent("two", "python-event-2", { timeout: 100 });
      await context.sleep("long", 1000);
      return [one.eventData, two.eventData];
    });
    const { workflowRunId } = await author.workflows.trigger({ url: work.url });
    const untilWaiting = (event: string): Row => ({
      call: "get_waiters",
      send: `GET /v2/waiters/${event}`,
      reads: waiters,
      await: true,
      gives: [{ url: work.url }],
    });
    await expectReplay(python, author, {
      rows: [
        untilWaiting("python-event"),
        {
          call: "notify",
          send: "POST /v2/notify/python-event",
          headers: json,
          body: pythonJson({ paid: true }),
          reads: notified.length(1),
        },
        untilWaiting("python-event-2"),
        {
          call: "notify a run",
          send: "POST /v2/notify/{run}/python-event-2",
          headers: json,
          body: "text",
          reads: notified.length(1),
        },
        { call: "cancel", send: "DELETE /v2/workflows/runs/{run}?cancel=true" },
      ],
      memory: { run: workflowRunId },
    });
    expect(await waitForEnd(author, { workflowRunId })).toMatchObject({ workflowState: "RUN_CANCELED" });
  });
});
