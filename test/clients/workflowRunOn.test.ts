import { serve as serve1, WorkflowMiddleware } from "@upstash/workflow";
import type { RouteFunction } from "@upstash/workflow";
import { serve as serve2 } from "workflow-0.2";
import type { RouteFunction as RouteFunction2 } from "workflow-0.2";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { runOn, type RunOnOptions } from "../../launch/workflow.js";
import type { RecordedUrl, WorkflowTestServer, WorkflowUser } from "./workflowTestServer.ts";
import { startWorkflowTestServer, waitForCount, waitForEnd, waitForResult } from "./workflowTestServer.ts";

// Both published versions of the client, unmodified, with the wrapper around the route.

for (const level of ["error", "warn"] as const) vi.spyOn(console, level).mockReturnValue(undefined);

type Context = {
  requestPayload: unknown;
  headers: Headers;
  run<T>(name: string, work: () => T | Promise<T>): Promise<T>;
  sleep(name: string, seconds: number): Promise<void>;
  call(name: string, to: { url: string; method: "POST" }): Promise<{ body: unknown }>;
  waitForEvent(name: string, event: string, options: { timeout: number }): Promise<{ timeout: boolean }>;
  cancel(): Promise<void>;
};
type Route = (context: Context) => Promise<unknown>;
type Serve = (
  user: WorkflowUser,
  route: Route,
  options?: RunOnOptions & { middlewares?: never[] },
) => RecordedUrl;

const versions: [string, Serve][] = [
  [
    "1.x",
    ({ client, receiver, answer }, route, options) =>
      answer(
        serve1(runOn(route, options) as RouteFunction<unknown>, {
          ...{ qstashClient: client, receiver, env: {} },
          ...(options?.middlewares ? { middlewares: options.middlewares } : {}),
        }).handler,
      ),
  ],
  [
    "0.2",
    ({ client, receiver, answer }, route, options) =>
      answer(
        serve2(runOn(route, options) as unknown as RouteFunction2<unknown>, {
          ...{ qstashClient: client, receiver, env: {}, retries: 0 },
        }).handler,
      ),
  ],
];

let house: WorkflowTestServer;
beforeAll(async () => {
  house = await startWorkflowTestServer("SQLite");
});
afterAll(() => house.close());

describe.each(versions)("client %s", (_, serveWith) => {
  const trigger = (user: WorkflowUser, work: RecordedUrl, more: object = {}) =>
    user.workflows.trigger({ url: work.url, retries: 0, ...more });

  test("all steps of a sequence run in one call, once each, with the values of a later call", async () => {
    const user = house.createUser();
    const executed: string[] = [];
    const outside: string[] = [];
    const work = serveWith(user, async (context) => {
      outside.push("begin");
      const one = await context.run("one", () => (executed.push("one"), { at: new Date(0), n: Number.NaN }));
      const two = await context.run("two", async () => (executed.push("two"), [one, "ü €", null]));
      const three = await context.run("three", () => void executed.push("three"));
      const text = await context.run("text", () => "plain");
      return { two, three: three === undefined, text };
    });
    expect(await waitForResult(user, await trigger(user, work))).toEqual({
      two: [{ at: "1970-01-01T00:00:00.000Z", n: null }, "ü €", null],
      ...{ three: true, text: "plain" },
    });
    expect(executed).toEqual(["one", "two", "three"]);
    // To check the authorization, the client first runs the route up to the first step.
    expect(outside).toEqual(["begin", "begin"]);
    expect(await waitForCount(work, 1)).toBe(1);
  });

  test("other steps and groups end a call, and the next one runs on", async () => {
    const user = house.createUser();
    const other = user.answer(() => Response.json({ called: true }));
    const work = serveWith(user, async (context) => {
      const one = await context.run("one", () => 1);
      const two = await context.run("two", () => one + 1);
      await context.sleep("nap", 1);
      const three = await context.run("three", () => two + 1);
      const { body } = await context.call("call", { url: other.url, method: "POST" });
      const four = await context.run("four", () => three + 1);
      const all = await Promise.all([
        context.run("left", () => four + 1),
        context.run("right", () => four + 2),
      ]);
      const five = await context.run("five", () => all);
      const { timeout } = await context.waitForEvent("wait", `never ${Math.random()}`, { timeout: 1 });
      return [five, timeout, body, await context.run("six", () => "six")];
    });
    expect(await waitForResult(user, await trigger(user, work))).toEqual([
      [5, 6],
      true,
      { called: true },
      "six",
    ]);
    // One, two and the sleep; three and the call; its response; four and the plans; two plans; their results
    // (in 1.x, also the result that is discarded); the wait; six and the end.
    await expect.poll(() => work.calls.every(({ status }) => status === 200)).toBe(true);
    expect(work.calls.length).toBeLessThanOrEqual(9);
  });

  test("a failing step is retried alone, with the stored results", async () => {
    const user = house.createUser();
    const executed: string[] = [];
    const work = serveWith(user, async (context) => {
      await context.run("one", () => void executed.push("one"));
      await context.run("two", () => {
        executed.push("two");
        if (executed.length < 4) throw new Error("not yet");
      });
      return context.run("three", () => executed.length);
    });
    const run = await trigger(user, work, { retries: 3, retryDelay: "10" });
    expect(await waitForResult(user, run)).toBe(4);
    expect(executed).toEqual(["one", "two", "two", "two"]);
  });

  test("maxDuration 0 makes a call for each step", async () => {
    const user = house.createUser();
    const work = serveWith(
      user,
      async (context) => {
        await context.run("one", () => 1);
        return context.run("two", () => 2);
      },
      { maxDuration: 0 },
    );
    expect(await waitForResult(user, await trigger(user, work))).toBe(2);
    expect(await waitForCount(work, 3)).toBe(3);
  });

  test("a cancel within the route ends the run", async () => {
    const user = house.createUser();
    const executed: string[] = [];
    const work = serveWith(user, async (context) => {
      await context.run("one", () => void executed.push("one"));
      await context.cancel();
      await context.run("two", () => void executed.push("two"));
    });
    expect(await waitForEnd(user, await trigger(user, work))).toMatchObject({
      workflowState: "RUN_CANCELED",
    });
    expect(executed).toEqual(["one"]);
  });

  test("the log of the run shows each step", async () => {
    const user = house.createUser();
    const work = serveWith(user, async (context) => {
      for (const name of ["one", "two", "three"]) await context.run(name, () => name);
      throw new Error("sorry");
    });
    const { workflowRunId } = await trigger(user, work);
    const read = async () => (await user.workflows.logs({ filter: { workflowRunId } })).runs[0];
    await expect.poll(async () => (await read())?.workflowState).toBe("RUN_FAILED");
    const steps = (await read())?.steps.flatMap((group) => group.steps.map((step) => ({ ...step }))) ?? [];
    expect(steps).toMatchObject([
      { stepName: "init", state: "STEP_SUCCESS" },
      ...["one", "two", "three"].map((stepName) => ({
        stepName,
        state: "STEP_SUCCESS",
        out: `"${stepName}"`,
      })),
      { state: "STEP_FAILED" },
    ]);
  });
});

test("middlewares hear the end of each step if the wrapper has them", async () => {
  const user = house.createUser();
  const heard: string[] = [];
  const middleware = new WorkflowMiddleware({
    name: "test",
    callbacks: {
      beforeExecution: ({ stepName }) => void heard.push(`before ${stepName}`),
      afterExecution: ({ stepName, result }) =>
        void heard.push(`after ${stepName} ${JSON.stringify(result)}`),
    },
  });
  const [, serveWith] = versions[0] as (typeof versions)[number];
  const work = serveWith(
    user,
    async (context) => {
      await context.run("one", () => 1);
      await context.run("two", () => 2);
    },
    { middlewares: [middleware] as unknown as never[] },
  );
  await waitForEnd(user, await user.workflows.trigger({ url: work.url }));
  expect(heard).toEqual(["before one", "after one 1", "before two", "after two 2"]);
});

test("the route gets what an adapter passes behind the context", async () => {
  const route = runOn(async (context: { headers: Headers }, ...more: unknown[]) => [context, ...more]);
  const context = { headers: new Headers() };
  expect(await route(context, "event", 2)).toEqual([context, "event", 2]);
});

test("clients that keep the settings of the start use the short form from the second step on", async () => {
  const user = house.createUser();
  const posted: string[] = [];
  const watching = {
    ...user,
    client: Object.create(user.client, {
      batch: { value: (items: never[]) => (posted.push("batch"), user.client.batch(items)) },
      http: {
        value: {
          request: (request: { path: string[]; method: "POST"; body: string }) => {
            if (request.path.includes("run-on")) posted.push("short");
            return user.client.http.request(request);
          },
        },
      },
    }) as typeof user.client,
  };
  for (const [index, [, serveWith]] of versions.entries()) {
    posted.splice(0);
    const work = serveWith(watching, async (context) => {
      for (const name of ["one", "two", "three"]) await context.run(name, () => name);
      await context.sleep("nap", 1);
      return context.run("four", () => 4);
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(4);
    const steps = index === 0 ? ["batch", "short", "short"] : ["batch", "batch", "batch"];
    expect(posted).toEqual([...steps, "batch", "batch"]);
  }
});

test.each([
  ["is refused", () => ({ runOn: false })],
  ["fails", () => Promise.reject(new Error("404"))],
])("a step whose short form %s is posted in the ordinary way", async (_, answer) => {
  const user = house.createUser();
  const [, serveWith] = versions[0] as (typeof versions)[number];
  let asked = 0;
  const refusing = {
    ...user,
    client: Object.create(user.client, {
      http: {
        value: {
          request: (request: { path: string[] }) =>
            request.path.includes("run-on") ? (asked++, answer()) : user.client.http.request(request),
        },
      },
      batch: { value: (items: never[]) => user.client.batch(items) },
    }) as typeof user.client,
  };
  const work = serveWith(refusing, async (context) => {
    await context.run("one", () => 1);
    await context.run("two", () => 2);
    return context.run("three", () => 3);
  });
  expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(3);
  expect(asked).toBeGreaterThan(0);
});

test("a server that ignores the question is called for each step", async () => {
  const user = house.createUser();
  const [, serveWith] = versions[0] as (typeof versions)[number];
  const ignoring = {
    ...user,
    client: Object.create(user.client, {
      batch: {
        value: async (items: { headers: Record<string, string> }[]) => {
          for (const item of items) delete item.headers["Upstash-Workflow-Run-On"];
          return user.client.batch(items);
        },
      },
    }) as typeof user.client,
  };
  const work = serveWith(ignoring, async (context) => {
    await context.run("one", () => 1);
    return context.run("two", () => 2);
  });
  expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toBe(2);
  expect(await waitForCount(work, 3)).toBe(3);
});
