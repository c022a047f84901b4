import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./house.ts";
import type { Author } from "./workflowHouse.ts";
import { ask, countOf, ended, gate, resultOf } from "./workflowHouse.ts";

/** Waiting for events and for calls to webhooks. */
export function events(arrive: () => Author): void {
  waiting(arrive);
  lookingBack(arrive);
  webhooks(arrive);
}

/** A workflow that waits for the event that its payload names, and returns what it got. */
const waiter = (author: Author, timeout: `${bigint}s` | number = "30s") =>
  author.serve(async (context: WorkflowContext<string>) => context.waitForEvent("wait", context.requestPayload, { timeout }));

const waits = (author: Author, eventId: string, count = 1) =>
  eventually(
    () => author.workflows.getWaiters({ eventId }),
    ({ length }) => length === count,
  );

function waiting(arrive: () => Author): void {
  const data = [
    ["an object", { paid: true, ü: "€" }],
    ["a text", "plain"],
    ["a number", 7],
    ["nothing", undefined],
  ] as const;
  test("an event wakes the run that waits for it, with whatever data", async () => {
    const author = arrive();
    const work = waiter(author);
    for (const [what, eventData] of data) {
      const eventId = `event-${what.replace(" ", "-")}`;
      const run = await author.workflows.trigger({ url: work.url, body: eventId });
      const [found] = await waits(author, eventId);
      expect(found).toMatchObject({ url: work.url, timeoutUrl: work.url, deadline: expect.any(Number) });
      expect((found?.deadline ?? 0) - Date.now() / 1000).toBeLessThan(31);
      const told = await author.workflows.notify({ eventId, eventData });
      expect(told).toMatchObject([
        { waiter: { url: work.url }, messageId: expect.stringMatching(/^msg_/), workflowRunId: run.workflowRunId },
      ]);
      expect(await resultOf(author, run)).toEqual({ timeout: false, ...(eventData === undefined ? {} : { eventData }) });
      expect(await author.workflows.getWaiters({ eventId })).toEqual([]);
    }
    // A wait costs one call more.
    expect(await countOf(work, 2 * data.length)).toBe(2 * data.length);
  });

  test("an event wakes all runs that wait for it, once, and nobody after", async () => {
    const author = arrive();
    const work = waiter(author);
    const runs = await author.workflows.trigger([1, 2, 3].map(() => ({ url: work.url, body: "everybody" })));
    const alone = await author.workflows.trigger({ url: work.url, body: "somebody" });
    await waits(author, "everybody", 3);
    await waits(author, "somebody");
    const told = await author.workflows.notify({ eventId: "everybody", eventData: "now" });
    expect(new Set(told.map((one) => (one as { workflowRunId?: string }).workflowRunId))).toEqual(
      new Set(runs.map((run) => run.workflowRunId)),
    );
    expect(told).toHaveLength(3);
    for (const run of runs) expect(await resultOf(author, run)).toEqual({ timeout: false, eventData: "now" });
    expect(await author.workflows.notify({ eventId: "everybody", eventData: "again" })).toEqual([]);
    expect(await author.workflows.getWaiters({ eventId: "somebody" })).toHaveLength(1);
    expect(await author.workflows.cancel(alone.workflowRunId)).toEqual({ cancelled: 1 });
    expect(await author.workflows.getWaiters({ eventId: "somebody" })).toEqual([]);
  });

  test("a wait that is over says so, and an event after it finds nobody", async () => {
    const author = arrive();
    const work = waiter(author, 1);
    const run = await author.workflows.trigger({ url: work.url, body: "too-late" });
    const began = Date.now();
    expect(await resultOf(author, run)).toEqual({ timeout: true });
    expect(Date.now() - began).toBeGreaterThanOrEqual(900);
    expect(await author.workflows.notify({ eventId: "too-late" })).toEqual([]);
    expect(await countOf(work, 2)).toBe(2);
  });

  test("a workflow can notify another one, and learns whom it woke", async () => {
    const author = arrive();
    const work = waiter(author);
    const teller = author.serve(async (context) => context.notify("tell", "from-a-workflow", { n: 1 }));
    const run = await author.workflows.trigger({ url: work.url, body: "from-a-workflow" });
    await waits(author, "from-a-workflow");
    expect(await resultOf(author, await author.workflows.trigger({ url: teller.url }))).toEqual({
      ...{ eventId: "from-a-workflow", eventData: { n: 1 } },
      notifyResponse: [expect.objectContaining({ waiter: expect.objectContaining({ url: work.url }), workflowRunId: run.workflowRunId })],
    });
    expect(await resultOf(author, run)).toEqual({ timeout: false, eventData: { n: 1 } });
  });

  test("run, sleep, call and wait go side by side", async () => {
    const author = arrive();
    const other = author.answer(() => Response.json("called"));
    const work = author.serve(async (context) => {
      const [ran, slept, called, woken] = await Promise.all([
        context.run("run", () => "ran"),
        context.sleep("sleep", 1),
        context.call("call", { url: other.url }),
        context.waitForEvent("wait", "beside", { timeout: "30s" }),
      ]);
      return { ran, slept: slept ?? null, called: called.body, woken };
    });
    const run = await author.workflows.trigger({ url: work.url });
    await waits(author, "beside");
    await author.workflows.notify({ eventId: "beside", eventData: "e" });
    expect(await resultOf(author, run)).toEqual({ ran: "ran", slept: null, called: "called", woken: { timeout: false, eventData: "e" } });
    // The beginning, four plans, four results, and the answer of the call.
    expect(await countOf(work, 10)).toBe(10);
  });
}

function lookingBack(arrive: () => Author): void {
  test("events for a run that came before it waits are kept, in order", async () => {
    const author = arrive();
    const [begun, go] = [gate(), gate()];
    const work = author.serve(async (context) => {
      await context.run("begin", () => (begun.resolve(), go.promise));
      const first = await context.waitForEvent("first", "early");
      const second = await context.waitForEvent("second", "early", { timeout: "30s" });
      return [first, second];
    });
    const { workflowRunId } = await author.workflows.trigger({ url: work.url });
    await begun.promise;
    expect(await author.workflows.notify({ eventId: "early" })).toEqual([]);
    for (const eventData of ["one", "two"]) {
      expect(await author.workflows.notify({ eventId: "early", eventData, workflowRunId })).toEqual(expect.any(Array));
    }
    go.resolve();
    expect(await resultOf(author, { workflowRunId })).toEqual([
      { timeout: false, eventData: "one" },
      { timeout: false, eventData: "two" },
    ]);
  });

  test("an event for one run leaves the others waiting", async () => {
    const author = arrive();
    const work = waiter(author);
    const [mine, other] = await author.workflows.trigger([1, 2].map(() => ({ url: work.url, body: "shared" })));
    if (!mine || !other) throw new Error("two runs");
    await waits(author, "shared", 2);
    expect(await author.workflows.notify({ eventId: "shared", eventData: 1, workflowRunId: mine.workflowRunId })).toHaveLength(1);
    expect(await resultOf(author, mine)).toEqual({ timeout: false, eventData: 1 });
    expect(await author.workflows.getWaiters({ eventId: "shared" })).toHaveLength(1);
    await author.workflows.cancel([other.workflowRunId]);
    await expect(author.workflows.notify({ eventId: "shared", workflowRunId: other.workflowRunId })).rejects.toMatchObject({ status: 404 });
  });
}

function webhooks(arrive: () => Author): void {
  test("calls to a webhook come in order, as the requests that they were", async () => {
    const author = arrive();
    const urls: string[] = [];
    const work = author.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      await context.run("tell", () => void urls.push(webhook.webhookUrl));
      const results = [];
      for (const name of ["first", "second"]) {
        const { request, timeout } = await context.waitForWebhook(name, webhook, "30s");
        // A request can only be read once, also by a step that is executed again.
        const body = await request?.clone().text();
        results.push({ timeout, url: request?.url, method: request?.method, header: request?.headers.get("x-theirs"), body });
      }
      return results;
    });
    const run = await author.workflows.trigger({ url: work.url });
    await eventually(
      async () => urls.length,
      (count) => count === 1,
    );
    const [url = ""] = urls;
    const first = await fetch(url, { method: "POST", body: "ü one", headers: { "x-theirs": "1" } });
    const second = await fetch(`${url}?q=a%20b`, { method: "PUT", body: "two", headers: { "x-theirs": "2" } });
    expect([first.ok, second.ok]).toEqual([true, true]);
    expect(await resultOf(author, run)).toEqual([
      { timeout: false, url, method: "POST", header: "1", body: "ü one" },
      { timeout: false, url: `${url}?q=a%20b`, method: "PUT", header: "2", body: "two" },
    ]);
    expect((await fetch(url.replace(/wfr_[^/]+/, "wfr_unknown"), { method: "POST" })).status).toBe(404);
    // The beginning, two steps, two waits.
    expect(await countOf(work, 5)).toBe(5);
  });

  test("a webhook that is not called in time says so, and one that is called with GET has no body", async () => {
    const author = arrive();
    const work = author.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      const late = await context.waitForWebhook("late", webhook, 1 as unknown as "1s");
      await context.call("itself", { url: webhook.webhookUrl });
      const { request } = await context.waitForWebhook("wait", webhook, "30s");
      return { late: late.timeout, method: request?.method, body: await request?.clone().text() };
    });
    expect(await resultOf(author, await author.workflows.trigger({ url: work.url }))).toEqual({ late: true, method: "GET", body: "" });
  });

  test("one that waits has ended when its run is cancelled", async () => {
    const author = arrive();
    const work = author.serve(async (context) => {
      const webhook = await context.createWebhook("make");
      await context.waitForWebhook("wait", webhook, "30s");
    });
    const run = await author.workflows.trigger({ url: work.url });
    await countOf(work, 2);
    expect(await ask(author, "DELETE", `workflows/runs/${run.workflowRunId}?cancel=true`)).toMatchObject({ status: 200 });
    expect(await ended(author, run)).toMatchObject({ workflowState: "RUN_CANCELED" });
  });
}
