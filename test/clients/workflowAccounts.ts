import { expect, test } from "vitest";
import { eventually } from "./clientTestServer.ts";
import type { WorkflowUser } from "./workflowTestServer.ts";
import { ask, findDeadLetter, waitForEnd, waitForResult } from "./workflowTestServer.ts";

/** Tests that objects of one account are unknown to all others. */
export function accounts(createUser: () => WorkflowUser): void {
  test("runs, events, webhooks and dead letters are unknown to other accounts", async () => {
    const mine = createUser();
    const other = createUser();
    const urls: string[] = [];
    const route = (user: WorkflowUser) =>
      user.serve(async (context) => {
        const webhook = await context.createWebhook("make");
        await context.run("tell", () => void urls.push(webhook.webhookUrl));
        const event = await context.waitForEvent("wait", "shared", { timeout: "1h" });
        await context.waitForWebhook("hook", webhook, "1h");
        return event.eventData;
      });
    const work = route(mine);
    const theirs = route(other);
    const broken = mine.serve((context) =>
      context.run("fail", () => {
        throw new Error("broken");
      }),
    );
    const failed = await mine.workflows.trigger({ url: broken.url, retries: 0 });
    const { dlqId } = await findDeadLetter(mine, failed);
    const run = await mine.workflows.trigger({ url: work.url, workflowRunId: "shared" });
    const waiters = ({ workflows }: WorkflowUser) => workflows.getWaiters({ eventId: "shared" });
    await eventually(
      () => waiters(mine),
      ({ length }) => length === 1,
    );

    expect((await other.workflows.logs()).runs).toEqual([]);
    expect((await other.workflows.dlq.list()).messages).toEqual([]);
    expect(await waiters(other)).toEqual([]);
    expect(await other.workflows.notify({ eventId: "shared", eventData: "theirs" })).toEqual([]);
    expect(await other.workflows.cancel({ all: true })).toEqual({ cancelled: 0 });
    expect(await other.workflows.cancel(run.workflowRunId)).toEqual({ cancelled: 0 });
    expect(await other.workflows.dlq.delete({ all: true })).toMatchObject({ deleted: 0 });
    const unknown = { workflowRunId: run.workflowRunId, eventId: "shared" };
    await expect(other.workflows.notify(unknown)).rejects.toMatchObject({ status: 404 });
    await expect(other.workflows.dlq.retryFailureFunction({ dlqId })).rejects.toMatchObject({ status: 404 });
    expect(await ask(other, `GET workflows/runs/${run.workflowRunId}`)).toMatchObject({ status: 404 });
    expect(await ask(other, `POST workflows/dlq/resume/${dlqId}`)).toMatchObject({ status: 404 });

    // A run of the same name in another account is a different run.
    const same = await other.workflows.trigger({ url: theirs.url, workflowRunId: "shared" });
    expect(same).toEqual(run);
    await eventually(
      () => waiters(other),
      ({ length }) => length === 1,
    );
    expect(await mine.workflows.notify({ eventId: "shared", eventData: "mine" })).toHaveLength(1);
    expect(await waiters(other)).toHaveLength(1);
    const [hook = "", otherHook = ""] = urls;
    expect((await fetch(hook, { method: "POST" })).ok).toBe(true);
    expect(await waitForResult(mine, run)).toBe("mine");
    expect(await other.workflows.notify({ eventId: "shared", eventData: "theirs" })).toHaveLength(1);
    expect((await other.workflows.logs()).runs).toMatchObject([{ workflowState: "RUN_STARTED" }]);
    expect((await fetch(otherHook, { method: "POST" })).ok).toBe(true);
    expect(await waitForResult(other, same)).toBe("theirs");
    expect(await waitForEnd(mine, run)).toMatchObject({ workflowUrl: work.url });
  });

  test("an endpoint needs only a token with publish and read for everything that it posts", async () => {
    const user = createUser();
    const made = await ask(user, "POST tokens", { body: JSON.stringify({ verbs: ["publish", "read"] }) });
    expect(made.status).toBe(201);
    const place = user.answer(async () => new Response("answered"));
    const work = user.serve(
      async (context) => {
        const [one, two] = await Promise.all([context.run("one", () => 1), context.run("two", () => 2)]);
        const { body } = await context.call("call", { url: place.url });
        const { eventData } = await context.waitForEvent("wait", "go", { timeout: "1h" });
        return [one, two, body, eventData];
      },
      { qstashClient: user.clientWith({ token: made.body.token }) },
    );
    const run = await user.workflows.trigger({ url: work.url });
    await eventually(
      () => user.workflows.getWaiters({ eventId: "go" }),
      ({ length }) => length === 1,
    );
    await user.workflows.notify({ eventId: "go", eventData: "gone" });
    expect(await waitForResult(user, run)).toEqual([1, 2, "answered", "gone"]);
  });
}
