import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { ask, waitForCount, waitForEnd, createGate, waitForResult } from "./workflowTestServer.ts";

/** Tests of waits for events and for calls to webhooks. */
export function events(createUser: () => WorkflowUser): void {
  testWaiting(createUser);
  testEarlierEvents(createUser);
  testWebhooks(createUser);
}

/** A workflow that waits for the event named in its payload and returns its data. */
const serveWaiter = (user: WorkflowUser, timeout: `${bigint}s` | number = "3600s") =>
  user.serve(async (context: WorkflowContext<string>) =>
    context.waitForEvent("wait", context.requestPayload, { timeout }),
  );

const listWaiters = (user: WorkflowUser, eventId: string, count = 1) =>
  eventually(
    () => user.workflows.getWaiters({ eventId }),
    ({ length }) => length === count,
  );

function testWaiting(createUser: () => WorkflowUser): void {
  const data = [
    ["an object", { paid: true, ü: "€" }],
    ["a text", "plain"],
    ["a number", 7],
    ["nothing", undefined],
  ] as const;
  test("an event wakes the run that waits for it, with any data", async () => {
    const user = createUser();
    const work = serveWaiter(user);
    for (const [what, eventData] of data) {
      const eventId = `event-${what.replace(" ", "-")}`;
      const run = await user.workflows.trigger({ url: work.url, body: eventId });
      const [found] = await listWaiters(user, eventId);
      expect(found).toMatchObject({ url: work.url, timeoutUrl: work.url, deadline: expect.any(Number) });
      expect((found?.deadline ?? 0) - Date.now() / 1000).toBeLessThan(3_601);
      const told = await user.workflows.notify({ eventId, eventData });
      expect(told).toMatchObject([
        {
          waiter: { url: work.url },
          messageId: expect.stringMatching(/^msg_/),
          workflowRunId: run.workflowRunId,
        },
      ]);
      expect(await waitForResult(user, run)).toEqual({
        timeout: false,
        ...(eventData === undefined ? {} : { eventData }),
      });
      expect(await user.workflows.getWaiters({ eventId })).toEqual([]);
    }
    // A wait costs one more call.
    expect(await waitForCount(work, 2 * data.length)).toBe(2 * data.length);
  });

  test("an event wakes all runs that wait for it once, and none later", async () => {
    const user = createUser();
    const work = serveWaiter(user);
    const runs = await user.workflows.trigger([1, 2, 3].map(() => ({ url: work.url, body: "everybody" })));
    const alone = await user.workflows.trigger({ url: work.url, body: "somebody" });
    await listWaiters(user, "everybody", 3);
    await listWaiters(user, "somebody");
    const told = await user.workflows.notify({ eventId: "everybody", eventData: "now" });
    expect(new Set(told.map((one) => (one as { workflowRunId?: string }).workflowRunId))).toEqual(
      new Set(runs.map((run) => run.workflowRunId)),
    );
    expect(told).toHaveLength(3);
    for (const run of runs)
      expect(await waitForResult(user, run)).toEqual({ timeout: false, eventData: "now" });
    expect(await user.workflows.notify({ eventId: "everybody", eventData: "again" })).toEqual([]);
    expect(await user.workflows.getWaiters({ eventId: "somebody" })).toHaveLength(1);
    expect(await user.workflows.cancel(alone.workflowRunId)).toEqual({ cancelled: 1 });
    expect(await user.workflows.getWaiters({ eventId: "somebody" })).toEqual([]);
  });

  test("a wait reports its timeout, and a later event wakes no run", async () => {
    const user = createUser();
    const work = serveWaiter(user, 1);
    const run = await user.workflows.trigger({ url: work.url, body: "too-late" });
    const began = Date.now();
    expect(await waitForResult(user, run)).toEqual({ timeout: true });
    expect(Date.now() - began).toBeGreaterThanOrEqual(900);
    expect(await user.workflows.notify({ eventId: "too-late" })).toEqual([]);
    expect(await waitForCount(work, 2)).toBe(2);
  });

  test("a workflow can notify another one and gets the runs that it woke", async () => {
    const user = createUser();
    const work = serveWaiter(user);
    const teller = user.serve(async (context) => context.notify("tell", "from-a-workflow", { n: 1 }));
    const run = await user.workflows.trigger({ url: work.url, body: "from-a-workflow" });
    await listWaiters(user, "from-a-workflow");
    expect(await waitForResult(user, await user.workflows.trigger({ url: teller.url }))).toEqual({
      eventId: "from-a-workflow",
      eventData: { n: 1 },
      notifyResponse: [
        expect.objectContaining({
          waiter: expect.objectContaining({ url: work.url }),
          workflowRunId: run.workflowRunId,
        }),
      ],
    });
    expect(await waitForResult(user, run)).toEqual({ timeout: false, eventData: { n: 1 } });
  });

  test("run, sleep, call and wait can be parallel", async () => {
    const user = createUser();
    const other = user.answer(() => Response.json("called"));
    const work = user.serve(async (context) => {
      const [ran, slept, called, woken] = await Promise.all([
        context.run("run", () => "ran"),
        context.sleep("sleep", 1),
        context.call("call", { url: other.url }),
        context.waitForEvent("wait", "beside", { timeout: "1h" }),
      ]);
      return { ran, slept: slept ?? null, called: called.body, woken };
    });
    const run = await user.workflows.trigger({ url: work.url });
    await listWaiters(user, "beside");
    await user.workflows.notify({ eventId: "beside", eventData: "e" });
    expect(await waitForResult(user, run)).toEqual({
      ran: "ran",
      slept: null,
      called: "called",
      woken: { timeout: false, eventData: "e" },
    });
    // The start, four plans, four results, and the response of the call.
    expect(await waitForCount(work, 10)).toBe(10);
  });
}

function testEarlierEvents(createUser: () => WorkflowUser): void {
  test("events for a run are kept in order until the run waits", async () => {
    const user = createUser();
    const started = createGate();
    const go = createGate();
    const work = user.serve(async (context) => {
      await context.run("begin", () => (started.resolve(), go.promise));
      const first = await context.waitForEvent("first", "early");
      const second = await context.waitForEvent("second", "early", { timeout: "1h" });
      return [first, second];
    });
    const { workflowRunId } = await user.workflows.trigger({ url: work.url });
    await started.promise;
    expect(await user.workflows.notify({ eventId: "early" })).toEqual([]);
    for (const eventData of ["one", "two"]) {
      expect(await user.workflows.notify({ eventId: "early", eventData, workflowRunId })).toEqual(
        expect.any(Array),
      );
    }
    go.resolve();
    expect(await waitForResult(user, { workflowRunId })).toEqual([
      { timeout: false, eventData: "one" },
      { timeout: false, eventData: "two" },
    ]);
  });

  test("an event for one run does not wake others", async () => {
    const user = createUser();
    const work = serveWaiter(user);
    const [mine, other] = await user.workflows.trigger([1, 2].map(() => ({ url: work.url, body: "shared" })));
    if (!mine || !other) throw new Error("two runs");
    await listWaiters(user, "shared", 2);
    expect(
      await user.workflows.notify({ eventId: "shared", eventData: 1, workflowRunId: mine.workflowRunId }),
    ).toHaveLength(1);
    expect(await waitForResult(user, mine)).toEqual({ timeout: false, eventData: 1 });
    expect(await user.workflows.getWaiters({ eventId: "shared" })).toHaveLength(1);
    await user.workflows.cancel([other.workflowRunId]);
    await expect(
      user.workflows.notify({ eventId: "shared", workflowRunId: other.workflowRunId }),
    ).rejects.toMatchObject({ status: 404 });
  });
}

function testWebhooks(createUser: () => WorkflowUser): void {
  test("calls to a webhook arrive in order, as complete requests", async () => {
    const user = createUser();
    const urls: string[] = [];
    const work = user.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      await context.run("tell", () => void urls.push(webhook.webhookUrl));
      const results = [];
      for (const name of ["first", "second"]) {
        const { request, timeout } = await context.waitForWebhook(name, webhook, "1h");
        // A request can only be read once, also by a step that is executed again.
        const body = await request?.clone().text();
        results.push({
          timeout,
          url: request?.url,
          method: request?.method,
          header: request?.headers.get("x-theirs"),
          body,
        });
      }
      return results;
    });
    const run = await user.workflows.trigger({ url: work.url });
    await eventually(
      async () => urls.length,
      (count) => count === 1,
    );
    const [url = ""] = urls;
    const first = await fetch(url, { method: "POST", body: "ü one", headers: { "x-theirs": "1" } });
    const second = await fetch(`${url}?q=a%20b`, {
      method: "PUT",
      body: "two",
      headers: { "x-theirs": "2" },
    });
    expect([first.ok, second.ok]).toEqual([true, true]);
    expect(await waitForResult(user, run)).toEqual([
      { timeout: false, url, method: "POST", header: "1", body: "ü one" },
      { timeout: false, url: `${url}?q=a%20b`, method: "PUT", header: "2", body: "two" },
    ]);
    expect((await fetch(url.replace(/wfr_[^/]+/, "wfr_unknown"), { method: "POST" })).status).toBe(404);
    // The start, two steps and two waits.
    expect(await waitForCount(work, 5)).toBe(5);
  });

  test("a webhook reports its timeout, and a call with GET has no body", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      const late = await context.waitForWebhook("late", webhook, 1 as unknown as "1s");
      await context.call("itself", { url: webhook.webhookUrl });
      const { request } = await context.waitForWebhook("wait", webhook, "1h");
      return { late: late.timeout, method: request?.method, body: await request?.clone().text() };
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual({
      late: true,
      method: "GET",
      body: "",
    });
  });

  test("a wait ends when its run is cancelled", async () => {
    const user = createUser();
    const work = user.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      await context.waitForWebhook("wait", webhook, "1h");
    });
    const run = await user.workflows.trigger({ url: work.url });
    await waitForCount(work, 2);
    expect(await ask(user, `DELETE workflows/runs/${run.workflowRunId}?cancel=true`)).toMatchObject({
      status: 200,
    });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_CANCELED" });
  });
}
