import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { ask, waitForCount, waitForEnd, createGate, waitForResult } from "./workflowTestServer.ts";

/** Tests of how runs start, what they receive, and how they are cancelled. */
export function runs(createUser: () => WorkflowUser): void {
  testTriggering(createUser);
  testSettings(createUser);
  testCancelling(createUser);
}

const echo = (context: WorkflowContext<string>) => context.run("echo", () => context.requestPayload);
/** Waits for an event that never occurs. */
const waitForever = (context: WorkflowContext<string>) =>
  context.waitForEvent("wait", "never", { timeout: "1h" });

const states = async (
  { workflows }: WorkflowUser,
  ids: readonly { workflowRunId: string }[],
): Promise<string[]> =>
  Promise.all(
    ids.map(
      async ({ workflowRunId }) =>
        (await workflows.logs({ filter: { workflowRunId } })).runs[0]?.workflowState ?? "none",
    ),
  );

function testTriggering(createUser: () => WorkflowUser): void {
  test("many runs are triggered at once, with or without chosen ids", async () => {
    const user = createUser();
    const work = user.serve(echo);
    const all = await user.workflows.trigger([
      { url: work.url, body: "a", workflowRunId: "chosen" },
      { url: work.url, body: "b" },
    ]);
    expect(all).toEqual([
      { workflowRunId: "wfr_chosen" },
      { workflowRunId: expect.stringMatching(/^wfr_.{21}$/) },
    ]);
    expect(await Promise.all(all.map((run) => waitForResult(user, run)))).toEqual(["a", "b"]);
  });

  test("an id can be used again only after its run has ended", async () => {
    const user = createUser();
    const work = user.serve(waitForever);
    const trigger = () => user.workflows.trigger({ url: work.url, workflowRunId: "same" });
    const run = await trigger();
    expect(await trigger()).toEqual(run);
    expect(await waitForCount(work, 1)).toBe(1);
    await user.workflows.cancel(run.workflowRunId);
    expect(await trigger()).toEqual(run);
    expect(await waitForCount(work, 2)).toBe(2);
    const { runs: both } = await user.workflows.logs({ filter: { workflowRunId: "wfr_same" } });
    expect(both.map(({ workflowState }) => workflowState)).toEqual(["RUN_STARTED", "RUN_CANCELED"]);
    const older = both[1]?.workflowRunCreatedAt ?? 0;
    const { runs: one } = await user.workflows.logs({
      filter: { workflowRunId: "wfr_same", workflowCreatedAt: older },
    });
    expect(one).toMatchObject([{ workflowState: "RUN_CANCELED" }]);
    // An id cannot be used twice within one request either.
    await user.workflows.trigger(
      ["twice", "twice"].map((workflowRunId) => ({ url: work.url, workflowRunId })),
    );
    expect(await waitForCount(work, 3)).toBe(3);
    expect(await user.workflows.cancel({ all: true })).toEqual({ cancelled: 2 });
  });

  test("a message to the endpoint starts a run as well, with one more call", async () => {
    const user = createUser();
    const work = user.serve(async (context) => [await echo(context), context.headers.get("x-mine")]);
    await user.client.publish({ url: work.url, body: "plain", headers: { "X-Mine": "m" } });
    const { runs: found } = await eventually(
      () => user.workflows.logs({ filter: { workflowUrl: work.url } }),
      ({ runs: [run] }) => run?.workflowState === "RUN_SUCCESS",
    );
    expect(found.map(({ workflowRunResponse }) => workflowRunResponse)).toEqual(['["plain","m"]']);
    expect(await waitForCount(work, 3)).toBe(3);
  });

  test("a schedule can be created for a workflow", async () => {
    const user = createUser();
    const work = user.serve(echo);
    const { scheduleId } = await user.client.schedules.create({
      destination: work.url,
      cron: "0 3 1 1 *",
      body: "tick",
    });
    expect(await user.client.schedules.get(scheduleId)).toMatchObject({
      destination: work.url,
      cron: "0 3 1 1 *",
      body: "tick",
    });
    await user.client.schedules.delete(scheduleId);
  });
}

function testSettings(createUser: () => WorkflowUser): void {
  test("labels are in the run, the log and the lists", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      await echo(context);
      return [context.label, context.labels];
    });
    const [one, two] = await user.workflows.trigger([
      { url: work.url, label: "red" },
      { url: work.url, label: ["green", "blue"] },
    ]);
    if (!one || !two) throw new Error("two runs");
    expect(await waitForResult(user, one)).toEqual(["red", ["red"]]);
    expect(await waitForResult(user, two)).toEqual(["green", ["green", "blue"]]);
    const found = async (label: string | string[]) =>
      new Set(
        (await user.workflows.logs({ filter: { label } })).runs.map(({ workflowRunId }) => workflowRunId),
      );
    expect(await found("red")).toEqual(new Set([one.workflowRunId]));
    expect(await found("blue")).toEqual(new Set([two.workflowRunId]));
    expect(await found(["red", "green"])).toEqual(new Set([one.workflowRunId, two.workflowRunId]));
    expect(await found("none")).toEqual(new Set());
    expect(await waitForEnd(user, two)).toMatchObject({ label: "green", labels: ["green", "blue"] });
  });

  test("a flow-control key limits the calls of all its runs", async () => {
    const user = createUser();
    let now = 0;
    let max = 0;
    const busy = async () => {
      max = Math.max(max, ++now);
      await new Promise((resolve) => setTimeout(resolve, 10));
      now--;
    };
    const work = user.serve(async (context) => {
      await context.run("one", busy);
      await Promise.all([context.run("two", busy), context.run("three", busy)]);
    });
    const flowControl = { key: "few", parallelism: 2 };
    const all = await user.workflows.trigger(
      Array.from({ length: 4 }, () => ({ url: work.url, flowControl })),
    );
    for (const run of all) await waitForResult(user, run);
    expect(max).toBeLessThanOrEqual(2);
    expect(await waitForCount(work, 4 * 6)).toBe(24);
    expect((await waitForEnd(user, all[0] ?? { workflowRunId: "" })) as object).toMatchObject({
      flowControlKey: "few",
    });
  });

  test("redacted parts are not shown and reach the workflow unchanged", async () => {
    const user = createUser();
    const seen: unknown[] = [];
    const work = user.serve(async (context: WorkflowContext<{ secret: string }>) => {
      const step = await context.run("step", () => context.requestPayload.secret);
      await context.run("fail", () => {
        seen.push(step, context.headers.get("x-key"));
        throw new Error("broken");
      });
    });
    const run = await user.workflows.trigger({
      url: work.url,
      body: { secret: "geheim" },
      headers: { "x-key": "schlange" },
      retries: 0,
      redact: { body: true, header: ["x-key"] },
    });
    const log = await waitForEnd(user, run);
    const { messages } = await user.workflows.dlq.list({ filter: { workflowRunId: run.workflowRunId } });
    expect(messages).toHaveLength(1);
    expect(seen).toEqual(["geheim", "schlange"]);
    for (const shown of [JSON.stringify(log), JSON.stringify(messages)]) {
      expect(shown).not.toContain("geheim");
      expect(shown).not.toContain(Buffer.from("geheim").toString("base64"));
      expect(shown).not.toContain("schlange");
    }
  });

  test("a delay or a time postpones the first call, and the run can be cancelled before", async () => {
    const user = createUser();
    const work = user.serve(echo);
    const began = Date.now();
    const [soon, later, never] = await user.workflows.trigger([
      { url: work.url, body: "soon", delay: 1 },
      { url: work.url, body: "later", notBefore: Math.ceil(Date.now() / 1000) + 3600 },
      { url: work.url, body: "never", delay: "1h" },
    ]);
    if (!soon || !later || !never) throw new Error("three runs");
    expect(await states(user, [later, never])).toEqual(["RUN_STARTED", "RUN_STARTED"]);
    expect(await user.workflows.cancel([later.workflowRunId, never.workflowRunId])).toEqual({ cancelled: 2 });
    expect(await waitForResult(user, soon)).toBe("soon");
    expect((work.calls[0]?.at ?? 0) - began).toBeGreaterThanOrEqual(1000);
    expect(await waitForCount(work, 2)).toBe(2);
  });
}

function testCancelling(createUser: () => WorkflowUser): void {
  test("a workflow that cancels itself has no failure, no dead letter and no further call", async () => {
    const user = createUser();
    const told: string[] = [];
    const work = user.serve(
      async (context) => {
        await context.run("one", () => 1);
        await context.cancel();
      },
      { failureFunction: ({ failResponse }) => void told.push(failResponse) },
    );
    const run = await user.workflows.trigger({ url: work.url });
    expect(await waitForEnd(user, run)).toMatchObject({
      workflowState: "RUN_CANCELED",
      workflowRunCompletedAt: expect.any(Number),
    });
    expect(await waitForCount(work, 2)).toBe(2);
    expect(await user.workflows.dlq.list()).toMatchObject({ messages: [] });
    expect(told).toEqual([]);
  });

  test("posts of a cancelled run are refused, and its endpoint treats that as the end", async () => {
    const user = createUser();
    const started = createGate();
    const go = createGate();
    const work = user.serve((context) => context.run("one", () => (started.resolve(), go.promise)));
    const run = await user.workflows.trigger({ url: work.url, retries: 0 });
    await started.promise;
    expect(await user.workflows.cancel(run.workflowRunId)).toEqual({ cancelled: 1 });
    go.resolve();
    await eventually(
      async () => work.calls[0]?.status,
      (status) => status === 200,
    );
    expect(await waitForCount(work, 1)).toBe(1);
    expect(await states(user, [run])).toEqual(["RUN_CANCELED"]);
    // The end may also be posted twice.
    expect(await ask(user, `DELETE workflows/runs/${run.workflowRunId}?cancel=false`)).toMatchObject({
      status: 200,
    });
  });

  test("active runs are cancelled by id, by URL, by URL prefix, by label, or all", async () => {
    const user = createUser();
    const { client, workflows } = user;
    const { one, two } = user.serveMany(() => ({ one: waitForever, two: waitForever }));
    const at = async (url: string, count: number, label: string) =>
      workflows.trigger(Array.from({ length: count }, () => ({ url, label })));
    // The cast selects one overload for all kinds of requests.
    const cancelledBy = async (...requests: (string | string[] | object)[]) => {
      const counts: number[] = [];
      for (const request of requests) counts.push((await workflows.cancel(request as string)).cancelled);
      return counts;
    };
    const [first, second, third] = await at(one.url, 3, "a");
    if (!first || !second || !third) throw new Error("three runs");
    expect(
      await cancelledBy(first.workflowRunId, [first.workflowRunId, second.workflowRunId], "wfr_none"),
    ).toEqual([1, 1, 0]);
    expect(
      await cancelledBy({ workflowRunIds: [third.workflowRunId] }, { ids: third.workflowRunId }, []),
    ).toEqual([1, 0, 0]);
    await Promise.all([at(one.url, 2, "a"), at(two.url, 2, "b")]);
    const folder = one.url.slice(0, -"one".length);
    expect(
      await cancelledBy({ filter: { workflowUrl: folder } }, { filter: { workflowUrl: one.url } }),
    ).toEqual([0, 2]);
    expect(
      await cancelledBy({ filter: { workflowUrlStartingWith: folder } }, { urlStartingWith: folder }),
    ).toEqual([2, 0]);
    await Promise.all([at(one.url, 2, "a"), at(two.url, 3, "b")]);
    expect(
      await cancelledBy(
        { filter: { label: "a" } },
        { filter: { label: ["a", "b"] }, count: 2 },
        { all: true },
      ),
    ).toEqual([2, 2, 1]);
    expect(await cancelledBy({ all: true }, { filter: { fromDate: 0 } })).toEqual([0, 0]);
    await expect(
      workflows.cancel({ filter: { labeel: "x" } as object as { label: string } }),
    ).rejects.toMatchObject({ status: 400 });
    // The older client can cancel as well.
    const [last] = await at(one.url, 1, "a");
    expect(await client.workflow.cancel(last?.workflowRunId ?? "")).toBe(true);
    expect(await states(user, last ? [last] : [])).toEqual(["RUN_CANCELED"]);
  });
}
