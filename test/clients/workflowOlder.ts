import type { WorkflowContext } from "@upstash/qstash/workflow";
import { serve } from "@upstash/qstash/workflow";
import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { waitForCount, findDeadLetter } from "./workflowTestServer.ts";

/** Tests of the older workflow package, which is still part of the client for messages. */
export function older(createUser: () => WorkflowUser): void {
  const served = (
    user: WorkflowUser,
    route: (context: WorkflowContext<{ n: number }>) => Promise<void>,
    more: object = {},
  ) =>
    user.answer(
      serve<{ n: number }>(route, { qstashClient: user.client, receiver: user.receiver, env: {}, ...more }),
    );

  const runOf = async (user: WorkflowUser, state: string): Promise<{ workflowRunId: string }> => {
    const { runs } = await eventually(
      () => user.workflows.logs(),
      ({ runs: [run] }) => run?.workflowState === state,
    );
    expect(runs).toHaveLength(1);
    return runs[0] ?? { workflowRunId: "" };
  };

  test("steps, sleeps, parallel steps and calls of the older package succeed", async () => {
    const user = createUser();
    const results: unknown[] = [];
    const other = user.answer(() => Response.json({ called: true }));
    const work = served(user, async (context) => {
      const first = await context.run("first", () => context.requestPayload.n + 1);
      await context.sleep("nap", 1);
      const all = await Promise.all([
        context.run("left", () => first + 1),
        context.run("right", () => ({ first })),
      ]);
      const called = await context.call("call", other.url, "POST", { ask: true }, { "x-call": "c" });
      await context.run("last", () => void results.push([...all, called, context.headers.get("x-mine")]));
    });
    await user.client.publishJSON({ url: work.url, body: { n: 1 }, headers: { "x-mine": "m" } });
    await runOf(user, "RUN_SUCCESS");
    expect(results).toEqual([[3, { first: 2 }, { called: true }, "m"]]);
    expect(other.calls).toMatchObject([{ method: "POST", body: '{"ask":true}', headers: { "x-call": "c" } }]);
    // Two starts, two single steps, four calls for two parallel steps, two for the call, and the last step.
    expect(await waitForCount(work, 11)).toBe(11);
  });

  test("the failure function of the older package gets the history", async () => {
    const user = createUser();
    const told: unknown[] = [];
    const failureFunction = (context: WorkflowContext<{ n: number }>, status: number, message: string) =>
      void told.push([context.requestPayload, status, message]);
    const work = served(
      user,
      // The retries that this package receives apply only to the start.
      async (context) => {
        await context.run("fail", () => {
          throw new Error("sorry");
        });
      },
      { failureFunction, retries: 0 },
    );
    await user.client.publishJSON({ url: work.url, body: { n: 1 } });
    const run = await runOf(user, "RUN_FAILED");
    expect(await waitForCount(work, 3)).toBe(3);
    expect(told).toEqual([[{ n: 1 }, 500, "sorry"]]);
    expect(await findDeadLetter(user, run)).toMatchObject({ workflowUrl: work.url });
  });
}
