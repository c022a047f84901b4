import { randomUUID } from "node:crypto";
import type { Client as Messages } from "@upstash/qstash";
import { describe, expect, test } from "vitest";
import type { RouteFunction, WorkflowContext } from "workflow-0.2";
import { Client, WorkflowAbort, WorkflowNonRetryableError, serve } from "workflow-0.2";
import { createWorkflow, serveMany } from "workflow-0.2/cloudflare";
import { eventually } from "../clientTestServer.ts";
import type { WorkflowUser } from "../workflowTestServer.ts";
import { ask, shareWorkflowServer, waitForEnd, waitForResult } from "../workflowTestServer.ts";

// The calls that LobeHub 2.2 makes with @upstash/workflow 0.2.23 and @upstash/qstash 2.12.0.

const house = shareWorkflowServer();

/** A client of the product: it adds the headers of its settings to every trigger. */
class ProductClient extends Client {
  start(parameters: Parameters<Client["trigger"]>[0][number]) {
    return this.trigger({ ...parameters, headers: { "x-product": "lobe" } });
  }
}

const optionsOf = (user: WorkflowUser) => ({ qstashClient: user.client, receiver: user.receiver, env: {} });

type Options = Parameters<typeof serve>[1];

/** Serves a workflow under a path of several segments. */
function serveAt<Payload>(
  user: WorkflowUser,
  { path, ...options }: { path: string } & Options,
  route: RouteFunction<Payload>,
) {
  const { handler } = serve<Payload>(route, { ...optionsOf(user), ...options } as never);
  return user.at(`/api/workflows/${randomUUID()}/${path}`, handler);
}

const clientOf = (user: WorkflowUser): ProductClient =>
  new ProductClient({ baseUrl: user.url, token: user.token });

const ended = (user: WorkflowUser, workflowRunId: string) => waitForEnd(user, { workflowRunId });

describe.concurrent("memory workflows", () => {
  test("trigger others in parallel steps of one name, with own run ids and flow control", async () => {
    const user = house.createUser();
    const client = clientOf(user);
    const seen: string[] = [];
    const topics = serveAt<{ topic: string }>(
      user,
      { path: "pipelines/chat-topic/process-topic" },
      async (context) => {
        await context.run("extract", () => {
          seen.push(`${context.requestPayload.topic} ${context.headers.get("x-product")}`);
        });
      },
    );
    const users = serveAt<{ user: string }>(
      user,
      { path: "pipelines/chat-topic/process-user-topics" },
      async (context) => {
        const name = context.requestPayload.user;
        const list = await context.run("list", () => [1, 2, 3].map((topic) => `${name}-${topic}`));
        const started = await Promise.all(
          list.map((topic) =>
            context.run("trigger-topic", () =>
              client.start({
                url: topics.url,
                body: { topic },
                workflowRunId: `topic-${topic}-${user.token.slice(-6)}`,
                flowControl: { key: `topics-${name}`, parallelism: 2 },
                retries: 1,
              }),
            ),
          ),
        );
        return started.map(({ workflowRunId }) => workflowRunId);
      },
    );
    const all = serveAt<{ users: string[] }>(user, { path: "process-users" }, async (context) =>
      Promise.all(
        context.requestPayload.users.map((name) =>
          context.run("trigger-user", () => client.start({ url: users.url, body: { user: name } })),
        ),
      ),
    );
    const { workflowRunId } = await client.start({ url: all.url, body: { users: ["ada", "bob"] } });
    const second = (await waitForResult(user, { workflowRunId })) as { workflowRunId: string }[];
    const third = (await Promise.all(second.map((one) => waitForResult(user, one)))) as string[][];
    expect(third.flat()).toHaveLength(6);
    expect(third.flat()[0]).toMatch(/^wfr_topic-ada-1-/);
    for (const id of third.flat())
      expect(await ended(user, id)).toMatchObject({ workflowState: "RUN_SUCCESS" });
    expect(seen.toSorted()).toEqual(
      ["ada", "bob"].flatMap((name) => [1, 2, 3].map((topic) => `${name}-${topic} lobe`)),
    );
  });

  test("invoke others in parallel, with flow control and headers", async () => {
    const user = house.createUser();
    let now = 0;
    let most = 0;
    const child = createWorkflow(async (context: WorkflowContext<{ topic: number }>) => {
      const [topic, header] = await context.run("extract", async () => {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 20));
        now--;
        return [context.requestPayload.topic, context.headers.get("x-mine")] as const;
      });
      return `${topic} ${header}`;
    });
    const parent = createWorkflow(async (context: WorkflowContext<{ topics: number }>) => {
      const list = Array.from({ length: context.requestPayload.topics }, (_, topic) => topic);
      const results = await Promise.all(
        list.map((topic) =>
          context.invoke(`topic:${topic}`, {
            workflow: child,
            body: { topic },
            headers: { "x-mine": "m" },
            flowControl: { key: "extract", parallelism: 2 },
            retries: 2,
          }),
        ),
      );
      return results.map(({ body, isFailed }) => (isFailed ? "failed" : body));
    });
    const { fetch: answer } = serveMany({ parent, child } as never, optionsOf(user));
    const folder = `/api/workflows/${randomUUID()}/memory`;
    const [place] = ["parent", "child"].map((name) =>
      user.at(`${folder}/${name}`, (request) => answer(request, {})),
    );
    const run = await clientOf(user).start({ url: place?.url ?? "", body: { topics: 6 } });
    expect(await waitForResult(user, run)).toEqual([0, 1, 2, 3, 4, 5].map((topic) => `${topic} m`));
    expect(most).toBeLessThanOrEqual(2);
  });

  test("call a failure function that only the endpoint names", async () => {
    const user = house.createUser();
    const told: unknown[] = [];
    const caught: boolean[] = [];
    const work = serveAt<{ task: string }>(
      user,
      {
        path: "fails",
        retries: 0,
        failureFunction: ({ context, failStatus, failResponse }) =>
          void told.push([(context.requestPayload as { task: string }).task, failStatus, failResponse]),
      },
      async (context) => {
        await context.run("first", () => 1);
        try {
          await context.run("second", () => {
            throw new WorkflowNonRetryableError("no such model");
          });
        } catch (error) {
          // The client leaves a route with an error, which the product rethrows.
          caught.push(error instanceof WorkflowAbort);
          throw error;
        }
      },
    );
    const run = await clientOf(user).start({ url: work.url, body: { task: "t1" } });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
    await expect.poll(() => told).toEqual([["t1", 489, "no such model"]]);
    expect(caught).toContain(true);
  });

  test("cancel a run by its own id", async () => {
    const user = house.createUser();
    const work = serveAt(user, { path: "waits" }, (context) => context.sleep("long", 1000));
    const workflowRunId = `memory-${randomUUID()}`;
    const run = await clientOf(user).start({ url: work.url, workflowRunId });
    expect(run.workflowRunId).toBe(`wfr_${workflowRunId}`);
    expect(await clientOf(user).cancel({ ids: [run.workflowRunId] })).toMatchObject({ cancelled: 1 });
    expect(await waitForEnd(user, run)).toMatchObject({ workflowState: "RUN_CANCELED" });
  });
});

describe.concurrent("agent steps", () => {
  const publishStep = (client: Messages, url: string, step: number) =>
    client.publishJSON({
      url,
      body: { step },
      headers: { "Upstash-Delay": "50ms" },
      deduplicationId: `${url}-${step}`,
      retries: 3,
      retryDelay: "1000 * (1 + retried)",
    });

  test("wait 50 ms, not a second", async () => {
    const user = house.createUser();
    const published: number[] = [];
    const arrived: number[] = [];
    const place = user.answer(async (request) => {
      const { step } = (await request.json()) as { step: number };
      arrived.push(Date.now());
      if (step < 20) {
        published.push(Date.now());
        await publishStep(user.client, place.url, step + 1);
      }
      return new Response("ok");
    });
    published.push(Date.now());
    await publishStep(user.client, place.url, 1);
    await eventually(
      async () => arrived,
      ({ length }) => length === 20,
    );
    // Each delay of a whole second would take longer.
    const spans = arrived.map((time, at) => time - (published[at] ?? 0));
    expect(Math.min(...spans)).toBeLessThan(900);
    expect(Math.min(...spans)).toBeGreaterThanOrEqual(50);
  });

  test("have bodies of 9 MiB", async () => {
    const user = house.createUser();
    const text = "x".repeat(9 * 1024 * 1024);
    const lengths: number[] = [];
    const place = user.answer(async (request) => {
      lengths.push(((await request.json()) as { text: string }).text.length);
      return new Response("ok");
    });
    await user.client.publishJSON({ url: place.url, body: { text } });
    await eventually(
      async () => lengths,
      ({ length }) => length > 0,
    );
    expect(lengths).toEqual([text.length]);
  });
});

test("the schedule of tasks has a fixed id, and is created at each start", async () => {
  const user = house.createUser();
  const place = user.answer(() => new Response("ok"));
  const create = () =>
    ask(user, `POST schedules/${place.url}`, {
      headers: {
        "Content-Type": "application/json",
        "Upstash-Cron": "*/10 * * * *",
        "Upstash-Schedule-Id": "lobe-task-schedule-dispatch",
      },
      body: "{}",
    });
  for (let start = 0; start < 2; start++)
    expect(await create()).toEqual({ status: 200, body: { scheduleId: "lobe-task-schedule-dispatch" } });
  expect(await user.client.schedules.list()).toMatchObject([
    { scheduleId: "lobe-task-schedule-dispatch", cron: "*/10 * * * *", destination: place.url },
  ]);
});
