import { Client } from "workflow-0.2";
import type { WorkflowContext } from "workflow-0.2";
import { createWorkflow, serveMany } from "workflow-0.2/cloudflare";
import { describe, expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { findDeadLetter, shareWorkflowServer, waitForEnd, waitForResult } from "./workflowTestServer.ts";

// Clients before version 1 put the failure callback into every post of a step. A failure function that is
// given only to `serve` is therefore not known to the run, but to the message that fails.

const house = shareWorkflowServer();

type Route = (context: WorkflowContext<string>) => Promise<unknown>;

/** Serves a workflow that breaks after `before`, and has a failure function only there. */
function arrive(before: (context: WorkflowContext<string>, user: WorkflowUser) => Promise<unknown>) {
  const user = house.createUser();
  const told: unknown[] = [];
  let isBroken = true;
  const route: Route = async (context) => {
    await before(context, user);
    if (isBroken) throw new Error("sorry");
    return "mended";
  };
  const options = {
    qstashClient: user.client,
    receiver: user.receiver,
    env: {},
    retries: 0,
    failureFunction: ({ context, failStatus, failResponse }: Told) =>
      void told.push([context.requestPayload, failStatus, failResponse]),
  };
  const workflow = createWorkflow(route, options);
  const child = createWorkflow(async (context: WorkflowContext<string>) => context.run("child", () => "c"));
  children.set(user, child);
  const { fetch: answer } = serveMany({ broken: workflow, child }, options);
  const folder = crypto.randomUUID();
  const [work] = ["broken", "child"].map((name) =>
    user.at(`/${folder}/${name}`, (request) => answer(request, {})),
  );
  const client = new Client({ baseUrl: user.url, token: user.token });
  return { user, client, told, url: work?.url ?? "", mend: () => void (isBroken = false) };
}

type Told = { context: { requestPayload: unknown }; failStatus: number; failResponse: string };
type Child = ReturnType<typeof createWorkflow<string, string>>;
const children = new Map<WorkflowUser, Child>();

async function triggerAndFail({ user, client, url }: ReturnType<typeof arrive>) {
  const run = await client.trigger({ url, body: "payload", retries: 0 });
  expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
  // The failure callback is created in the same transaction as the dead letter.
  await findDeadLetter(user, run);
  return run;
}

describe.concurrent("a failure function that is given only to serve", () => {
  test.each<[string, (context: WorkflowContext<string>, user: WorkflowUser) => Promise<unknown>]>([
    ["a step", (context) => context.run("step", () => 1)],
    ["parallel steps", (context) => Promise.all([context.run("a", () => 1), context.run("b", () => 2)])],
    ["a sleep", (context) => context.sleep("nap", 1)],
    ["a call", (context, user) => context.call("call", { url: `${user.url}/health`, method: "GET" })],
    ["a wait", (context) => context.waitForEvent("wait", "never", { timeout: 1 })],
    [
      "an invocation",
      (context, user) => context.invoke("invoke", { workflow: children.get(user) as never, body: "b" }),
    ],
  ])("is called for a failure after %s", async (_, before) => {
    const server = arrive(before);
    await triggerAndFail(server);
    await eventually(
      async () => server.told,
      ({ length }) => length > 0,
    );
    expect(server.told).toEqual([["payload", 500, "sorry"]]);
  });

  test("is called again for a resumed run that fails again, and not for one that succeeds", async () => {
    const server = arrive((context) => context.run("step", () => 1));
    const run = await triggerAndFail(server);
    const { dlqId } = await findDeadLetter(server.user, run);
    const again = await server.client.dlq.resume({ dlqId });
    expect(await waitForEnd(server.user, again)).toMatchObject({ workflowState: "RUN_FAILED" });
    await eventually(
      async () => server.told,
      ({ length }) => length > 1,
    );
    const last = await findDeadLetter(server.user, again);
    server.mend();
    const third = await server.client.dlq.resume({ dlqId: last.dlqId });
    expect(await waitForResult(server.user, third)).toBe("mended");
    expect(server.told).toHaveLength(2);
  });

  test("is not known before the first step, because the trigger does not name it", async () => {
    const server = arrive(async () => undefined);
    const run = await triggerAndFail(server);
    expect((await findDeadLetter(server.user, run)).failureCallback).toBeUndefined();
    expect(server.told).toEqual([]);
  });
});
