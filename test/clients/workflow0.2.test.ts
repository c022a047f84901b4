import { Client, serve, WorkflowContext, WorkflowNonRetryableError } from "workflow-0.2";
import type { PublicServeOptions, RouteFunction } from "workflow-0.2";
import { createWorkflow, serveMany } from "workflow-0.2/cloudflare";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { Methods } from "./methods.ts";
import { watchMethods } from "./methods.ts";
import type { WorkflowUser, RecordedUrl, WorkflowTestServer } from "./workflowTestServer.ts";
import { waitForEnd, waitForResult, startWorkflowTestServer } from "./workflowTestServer.ts";

// Version 0.2 of the workflow package, client and endpoints. Many applications are pinned to it.

type AnyRoute = RouteFunction<never>;

/** A user of version 0.2 with a new account. */
type User = WorkflowUser & {
  client2: Client;
  serve2(route: AnyRoute, options?: PublicServeOptions): RecordedUrl;
};

/** Methods that are not used below, and why. */
const exceptions: Readonly<Record<string, string>> = {
  "context.api": "calls the APIs of others through context.call",
  "context.agents": "calls language models through context.call",
  "context.cancel": "always throws; see the test of a workflow that cancels itself",
};

let house: WorkflowTestServer;
let methods: Methods;

beforeAll(async () => {
  const client = new Client({ baseUrl: "http://127.0.0.1:1", token: "none" });
  const context = Object.create(WorkflowContext.prototype) as object;
  methods = watchMethods(
    new Map<string, object>([
      ["client", client],
      ["dlq", client.dlq],
      ["context", context],
    ]),
  );
  for (const level of ["error", "warn"] as const) vi.spyOn(console, level).mockReturnValue(undefined);
  house = await startWorkflowTestServer("SQLite");
});

afterAll(async () => {
  methods.unwatch();
  vi.restoreAllMocks();
  await house.close();
});

function arrive(): User {
  const author = house.createUser();
  const given = { qstashClient: author.client, receiver: author.receiver, env: {} };
  return {
    ...author,
    client2: new Client({ baseUrl: author.url, token: author.token }),
    serve2: (route, options) =>
      author.answer(serve(route as RouteFunction<unknown>, { ...given, ...options }).handler),
  };
}

/** Returns the run from the log as version 0.2 reads it, once the run has the state. */
async function runIn({ client2 }: User, { workflowRunId }: { workflowRunId: string }, state: string) {
  const { runs } = await eventually(
    () => client2.logs({ workflowRunId }),
    ({ runs: [run] }) => run?.workflowState === state,
  );
  return runs[0];
}

/** A workflow that fails until `mend` is called, after a step that succeeds. */
function broken(user: User, options: PublicServeOptions = {}) {
  const executed: string[] = [];
  let isBroken = true;
  const work = user.serve2(
    async (context) => {
      await context.run("fine", () => void executed.push("fine"));
      await context.run("broken", () => {
        if (isBroken) throw new Error("sorry");
        executed.push("mended");
      });
      return "done";
    },
    // The retries of a trigger apply only to the start.
    { retries: 0, ...options },
  );
  return { work, executed, mend: () => void (isBroken = false) };
}

describe.concurrent("steps", () => {
  test("steps run alone and in parallel, with sleeps, and return their results", async () => {
    const user = arrive();
    const executed: string[] = [];
    const work = user.serve2(async (context: WorkflowContext<{ n: number }>) => {
      const first = await context.run("first", () => (executed.push("first"), context.requestPayload.n + 1));
      await context.sleep("nap", 1);
      await context.sleepUntil("past", new Date(1_700_000_000_000));
      const all = await Promise.all([
        context.run("left", () => (executed.push("left"), first + 1)),
        context.sleep("right", "0s"),
        context.run("middle", async () => (executed.push("middle"), { first, ü: "€" })),
      ]);
      return [...all, context.headers.get("x-mine"), context.workflowRunId];
    });
    const { workflowRunId } = await user.client2.trigger({
      url: work.url,
      body: { n: 1 },
      headers: { "x-mine": "m" },
      label: "old",
    });
    expect(await waitForResult(user, { workflowRunId })).toEqual([
      3,
      null,
      { first: 2, ü: "€" },
      "m",
      workflowRunId,
    ]);
    expect(executed.toSorted()).toEqual(["first", "left", "middle"]);
    expect(await runIn(user, { workflowRunId }, "RUN_SUCCESS")).toMatchObject({
      workflowUrl: work.url,
      label: "old",
    });
  });

  test("a publish to the endpoint starts a run", async () => {
    const user = arrive();
    const results: unknown[] = [];
    const work = user.serve2(async (context) =>
      context.run("only", () => void results.push(context.requestPayload)),
    );
    await user.client.publishJSON({ url: work.url, body: { n: 1 } });
    await eventually(
      () => user.client2.logs({ workflowUrl: work.url, state: "RUN_SUCCESS" }),
      ({ runs }) => runs.length === 1,
    );
    expect(results).toEqual([{ n: 1 }]);
  });

  test("many runs are triggered at once with chosen ids and found by their properties", async () => {
    const user = arrive();
    const work = user.serve2(async (context) => context.run("only", () => context.requestPayload));
    const all = await user.client2.trigger(
      ["a", "b"].map((id) => ({ url: work.url, body: id, workflowRunId: id, label: `of-${id}` })),
    );
    expect(all).toEqual([{ workflowRunId: "wfr_a" }, { workflowRunId: "wfr_b" }]);
    expect(await Promise.all(all.map((run) => waitForResult(user, run)))).toEqual(["a", "b"]);
    expect((await user.client2.logs({ label: "of-b" })).runs).toMatchObject([{ workflowRunId: "wfr_b" }]);
    const page = await user.client2.logs({ count: 1 });
    const rest = await user.client2.logs({ cursor: page.cursor });
    expect([...page.runs, ...rest.runs].map(({ workflowRunId }) => workflowRunId).toSorted()).toEqual([
      "wfr_a",
      "wfr_b",
    ]);
  });
});

describe.concurrent("others", () => {
  test("a third party gets a string, an object and headers, and its failure is a result", async () => {
    const user = arrive();
    const other = user.answer(async (request) =>
      request.method === "PUT"
        ? new Response("no", { status: 404 })
        : Response.json({ got: await request.text() }, { status: 201 }),
    );
    const work = user.serve2(async (context) => {
      const headers = { "x-call": "c" };
      const object = await context.call("object", {
        url: other.url,
        method: "POST",
        body: { ask: [1] },
        headers,
      });
      const text = await context.call("text", {
        url: other.url,
        method: "POST",
        body: "plain",
        stringifyBody: false,
        timeout: 10,
      });
      const failed = await context.call("failed", {
        url: other.url,
        method: "PUT",
        body: "x",
        retries: 1,
        retryDelay: "10",
      });
      return [object, text, failed].map(({ status, body }) => [status, body]);
    });
    expect(await waitForResult(user, await user.client2.trigger({ url: work.url }))).toEqual([
      [201, { got: '{"ask":[1]}' }],
      [201, { got: "plain" }],
      [404, "no"],
    ]);
    expect(other.calls.map(({ method }) => method)).toEqual(["POST", "POST", "PUT", "PUT"]);
    expect(other.calls[0]?.headers).toMatchObject({ "x-call": "c" });
  });

  test("a run is woken by an event of the client, an event of another run, or its timeout", async () => {
    const user = arrive();
    const waiter = user.serve2(async (context: WorkflowContext<string>) =>
      context.waitForEvent("wait", context.requestPayload, { timeout: 100 }),
    );
    const late = user.serve2(async (context) => context.waitForEvent("wait", "never", { timeout: 1 }));
    const notifier = user.serve2(async (context) => {
      const { notifyResponse } = await context.notify("notify", "second", { n: 1 });
      return notifyResponse.length;
    });
    const [one, two] = await user.client2.trigger(
      ["first", "second"].map((body) => ({ url: waiter.url, body })),
    );
    const third = await user.client2.trigger({ url: late.url });
    for (const eventId of ["first", "second"]) {
      await eventually(
        () => user.client2.getWaiters({ eventId }),
        ({ length }) => length === 1,
      );
    }
    const told = await user.client2.notify({ eventId: "first", eventData: "paid" });
    expect(told).toMatchObject([{ messageId: expect.any(String), waiter: { url: waiter.url } }]);
    expect(await waitForResult(user, await user.client2.trigger({ url: notifier.url }))).toBe(1);
    expect(await waitForResult(user, one ?? { workflowRunId: "" })).toEqual({
      timeout: false,
      eventData: "paid",
    });
    expect(await waitForResult(user, two ?? { workflowRunId: "" })).toEqual({
      timeout: false,
      eventData: { n: 1 },
    });
    expect(await waitForResult(user, third)).toMatchObject({ timeout: true });
  });

  test("a webhook wakes the run that created it", async () => {
    const user = arrive();
    const urls: string[] = [];
    const work = user.serve2(async (context) => {
      const webhook = await context.createWebhook("make");
      await context.run("tell", () => void urls.push(webhook.webhookUrl));
      const { timeout, request } = await context.waitForWebhook("wait", webhook, "100s");
      return [timeout, await request?.text()];
    });
    const run = await user.client2.trigger({ url: work.url });
    await eventually(
      async () => urls,
      ({ length }) => length > 0,
    );
    await fetch(urls[0] ?? "", { method: "POST", body: "called" });
    expect(await waitForResult(user, run)).toEqual([false, "called"]);
  });

  test("a workflow invokes another one and gets its result or its failure", async () => {
    const user = arrive();
    const child = createWorkflow(async (context: WorkflowContext<string>) => {
      const payload = await context.run("look", () => context.requestPayload);
      if (payload === "fail") throw new WorkflowNonRetryableError("no way");
      return `got ${payload}`;
    });
    const parent = createWorkflow(async (context: WorkflowContext<string>) => {
      const fine = await context.invoke("fine", { workflow: child, body: "fine" });
      const failed = await context.invoke("failed", { workflow: child, body: "fail" });
      return [fine.body, fine.isFailed, failed.isFailed, failed.isCanceled];
    });
    const options = { qstashClient: user.client, receiver: user.receiver, env: {} };
    const { fetch: answer } = serveMany({ "old-parent": parent, "old-child": child }, options);
    const folder = crypto.randomUUID();
    const places = ["old-parent", "old-child"].map((name) =>
      user.at(`/${folder}/${name}`, (request) => answer(request, {})),
    );
    const run = await user.client2.trigger({ url: places[0]?.url ?? "", body: "p" });
    expect(await waitForResult(user, run)).toEqual(["got fine", false, true, false]);
  });
});

describe.concurrent("ends", () => {
  test("a failure function gets the failure, and its return value is kept", async () => {
    const user = arrive();
    const told: unknown[] = [];
    const { work } = broken(user, {
      failureFunction: ({ context, failStatus, failResponse }) => {
        told.push([context.requestPayload, failStatus, failResponse]);
        return "noted";
      },
    });
    const run = await user.client2.trigger({
      url: work.url,
      body: { n: 1 },
      retries: 0,
      useFailureFunction: true,
    });
    const { failureFunction } = (await runIn(user, run, "RUN_FAILED")) ?? {};
    expect(failureFunction).toMatchObject({ url: work.url, failStatus: 500 });
    await eventually(
      async () => told,
      ({ length }) => length > 0,
    );
    expect(told).toEqual([[{ n: 1 }, 500, "sorry"]]);
  });

  test("a failure URL is called, and a run that failed for good is not retried", async () => {
    const user = arrive();
    const other = user.answer(() => new Response("fine"));
    const work = user.serve2(async (context) =>
      context.run("give up", () => {
        throw new WorkflowNonRetryableError("give up");
      }),
    );
    const run = await user.client2.trigger({ url: work.url, failureUrl: other.url });
    await runIn(user, run, "RUN_FAILED");
    await eventually(
      async () => other.calls,
      ({ length }) => length > 0,
    );
    expect(JSON.parse(other.calls[0]?.body ?? "")).toMatchObject({
      status: 489,
      workflowRunId: run.workflowRunId,
    });
    expect(work.calls.map(({ status }) => status)).toEqual([489]);
  });

  test("a run is cancelled by itself, by its id, by its URL, or with all runs", async () => {
    const user = arrive();
    const itself = user.serve2((context) => context.cancel());
    expect(await waitForEnd(user, await user.client2.trigger({ url: itself.url }))).toMatchObject({
      workflowState: "RUN_CANCELED",
    });
    const work = user.serve2((context) => context.sleep("long", 1000));
    const start = () => user.client2.trigger({ url: work.url });
    const one = await start();
    expect(await user.client2.cancel({ ids: one.workflowRunId })).toEqual({ cancelled: 1 });
    await start();
    expect(await user.client2.cancel({ urlStartingWith: work.url })).toEqual({ cancelled: 1 });
    await start();
    expect(await user.client2.cancel({ all: true })).toEqual({ cancelled: 1 });
    expect(await runIn(user, one, "RUN_CANCELED")).toMatchObject({ workflowUrl: work.url });
  });

  test("a failed run is resumed after its last successful step, or restarted", async () => {
    const user = arrive();
    const { work, executed, mend } = broken(user);
    const run = await user.client2.trigger({ url: work.url, retries: 0 });
    const other = await user.client2.trigger({ url: work.url, retries: 0 });
    await Promise.all([run, other].map((one) => runIn(user, one, "RUN_FAILED")));
    const idOf = async ({ workflowRunId }: { workflowRunId: string }) => {
      const { messages } = await user.client2.dlq.list({ filter: { workflowRunId } });
      return messages[0]?.dlqId ?? "";
    };
    mend();
    const resumed = await user.client2.dlq.resume({ dlqId: await idOf(run), retries: 1 });
    expect(await waitForResult(user, resumed)).toBe("done");
    expect(executed).toEqual(["fine", "fine", "mended"]);
    const [restarted] = await user.client2.dlq.restart({ dlqId: [await idOf(other)] });
    expect(await waitForResult(user, restarted ?? { workflowRunId: "" })).toBe("done");
    expect(executed).toEqual(["fine", "fine", "mended", "fine", "mended"]);
    expect((await user.client2.dlq.list()).messages).toEqual([]);
  });

  test("a failed failure function can be called again", async () => {
    const user = arrive();
    let calls = 0;
    const { work } = broken(user, {
      failureFunction: () => {
        calls++;
        if (calls === 1) throw new Error("not yet");
      },
    });
    const run = await user.client2.trigger({ url: work.url, retries: 0, useFailureFunction: true });
    const { messages } = await eventually(
      () => user.client2.dlq.list({ filter: { workflowRunId: run.workflowRunId } }),
      ({ messages: [first] }) => first?.failureCallbackInfo?.state === "CALLBACK_FAIL",
    );
    await user.client2.dlq.retryFailureFunction({ dlqId: messages[0]?.dlqId ?? "" });
    await eventually(
      async () => calls,
      (count) => count > 1,
    );
    expect(calls).toBe(2);
  });
});

describe("the package as a whole", () => {
  test("has no untested method except those that never return or need a language model", () => {
    expect(methods.offered).toEqual(
      expect.arrayContaining(["client.trigger", "dlq.retryFailureFunction", "context.waitForWebhook"]),
    );
    expect(methods.offered.filter((name) => !methods.answered.has(name)).toSorted()).toEqual(
      Object.keys(exceptions).toSorted(),
    );
  });
});
