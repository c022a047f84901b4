import { serve as serve1 } from "@upstash/workflow";
import type { RouteFunction } from "@upstash/workflow";
import { serve as serve2 } from "workflow-0.2";
import type { RouteFunction as RouteFunction2 } from "workflow-0.2";
import { afterAll, describe, expect, test, vi } from "vitest";
import type { RecordedUrl, WorkflowTestServer, WorkflowUser } from "./workflowTestServer.ts";
import { startWorkflowTestServer, waitForCount, waitForResult } from "./workflowTestServer.ts";

// A parallel group of N steps takes N + 2 calls if the client receives no call that it would discard, and
// 2N + 1 otherwise. Both published versions have the same results in both ways.

vi.spyOn(console, "warn").mockReturnValue(undefined);

type Context = {
  requestPayload: unknown;
  run<T>(name: string, work: () => T | Promise<T>): Promise<T>;
  sleep(name: string, seconds: number): Promise<void>;
  call(name: string, to: { url: string; method: "POST" }): Promise<{ body: unknown }>;
};
type Route = (context: Context) => Promise<unknown>;

const versions: Record<string, (user: WorkflowUser, route: Route, options?: object) => RecordedUrl> = {
  "1.x": ({ client, receiver, answer }, route, options) =>
    answer(
      serve1(route as RouteFunction<unknown>, { qstashClient: client, receiver, env: {}, ...options })
        .handler,
    ),
  "0.2": ({ client, receiver, answer }, route, options) =>
    answer(
      serve2(route as unknown as RouteFunction2<unknown>, {
        ...{ qstashClient: client, receiver, env: {} },
        ...options,
      }).handler,
    ),
};

const servers = new Map<string, Promise<WorkflowTestServer>>();
/** Returns a user of a server with this setting. */
const arrive = async (skipCalls: string): Promise<WorkflowUser> => {
  const started =
    servers.get(skipCalls) ?? startWorkflowTestServer("SQLite", { WAYPOST_SKIP_CALLS: skipCalls });
  servers.set(skipCalls, started);
  return (await started).createUser();
};
afterAll(async () => {
  for (const server of servers.values()) await (await server).close();
});

/** The calls of a group of four, before which and after which the workflow runs nothing. */
describe.each([
  ["0.2", "older", 4 + 2],
  ["0.2", "all", 4 + 2],
  ["0.2", "none", 2 * 4 + 1],
  ["1.x", "older", 2 * 4 + 1],
  ["1.x", "all", 4 + 2],
] as const)("client %s with --skip-calls %s", (version, skipCalls, calls) => {
  const serveWith = versions[version] as (typeof versions)[string];

  test(`calls the endpoint ${calls} times for four parallel steps`, async () => {
    const user = await arrive(skipCalls);
    const executed: number[] = [];
    const work = serveWith(user, (context) =>
      Promise.all([1, 2, 3, 4].map((n) => context.run(`step ${n}`, () => (executed.push(n), n * 10)))),
    );
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual([
      10, 20, 30, 40,
    ]);
    expect(executed.toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4]);
    expect(await waitForCount(work, calls)).toBe(calls);
  });

  test("returns the results of branches, sleeps and calls, and continues after them", async () => {
    const user = await arrive(skipCalls);
    const other = user.answer(() => Response.json({ called: true }));
    const began = Date.now();
    const work = serveWith(user, async (context) => {
      const before = await context.run("before", () => "b");
      const all = await Promise.all([
        context.call("call", { url: other.url, method: "POST" }),
        context.sleep("nap", 1),
        ...["x", "y"].map(async (name) => {
          const first = await context.run(`${name} 1`, () => before + name);
          return context.run(`${name} 2`, () => first + name);
        }),
      ]);
      return [...all.slice(2), all[0].body, await context.run("after", () => "a")];
    });
    expect(await waitForResult(user, await user.workflows.trigger({ url: work.url }))).toEqual([
      "bxx",
      "byy",
      { called: true },
      "a",
    ]);
    expect(Date.now() - began).toBeGreaterThanOrEqual(1_000);
  });
});
