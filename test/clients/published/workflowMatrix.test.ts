// @module-tag long
import type * as qstash from "@upstash/qstash";
import type * as workflow from "@upstash/workflow";
import type { RouteFunction, WorkflowContext } from "@upstash/workflow";
import type * as cloudflare from "@upstash/workflow/cloudflare";
import { expect } from "vitest";
import { eventually } from "../clientTestServer.ts";
import type { RecordedUrl } from "../workflowTestServer.ts";
import { findDeadLetter, waitForCount, waitForEnd, waitForResult } from "../workflowTestServer.ts";
import type { Feature, Trial } from "./matrix.ts";
import { describeMatrix } from "./matrix.ts";
import type { Published } from "./published.ts";

type Qstash = typeof qstash;
type Workflow = typeof workflow;
type Cloudflare = typeof cloudflare;

/** Returns the client of a version, and functions that serve workflows with it. */
const enter = ({ published, user }: Trial) => {
  const { Client: Messages } = published.load<Qstash>("@upstash/qstash");
  const { Client, serve } = published.load<Workflow>("@upstash/workflow");
  const place = { baseUrl: user.url, token: user.token };
  const given = { qstashClient: new Messages(place), receiver: user.receiver, env: {} };
  return {
    client: new Client(place),
    given,
    serve: <Payload>(route: RouteFunction<Payload>, options: object = {}): RecordedUrl =>
      user.answer(serve<Payload>(route, { ...given, ...options }).handler),
  };
};

/** Reports whether the context of a version has a method. */
const hasMethod =
  (name: string) =>
  (published: Published): boolean =>
    name in published.load<Workflow>("@upstash/workflow").WorkflowContext.prototype;

/** Reports whether the client of a version has a part. */
const hasPart =
  (name: string) =>
  (published: Published): boolean => {
    const { Client } = published.load<Workflow>("@upstash/workflow");
    return name in new Client({ baseUrl: "http://127.0.0.1:1", token: "none" });
  };

/** Reports whether a version has the parameters of before 0.2. */
const isOldest = ({ published }: Trial): boolean => published.version.startsWith("0.1.");

const fails: RouteFunction<{ n: number }> = async (context) => {
  await context.run("fine", () => 1);
  await context.run("broken", () => {
    throw new Error("sorry");
  });
};

const features: readonly Feature[] = [
  {
    name: "steps, sleeps, parallel steps",
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const results: unknown[] = [];
      const work = serve(async (context: WorkflowContext<{ n: number }>) => {
        const first = await context.run("first", () => context.requestPayload.n + 1);
        await context.sleep("nap", 1);
        await context.sleepUntil("past", new Date(1_700_000_000_000));
        const all = await Promise.all([
          context.run("left", () => first + 1),
          context.sleep("right", "1s"),
          context.run("middle", async () => ({ first, ü: "€" })),
        ]);
        results.push([...all, context.headers.get("x-mine")]);
      });
      const run = await client.trigger({ url: work.url, body: { n: 1 }, headers: { "x-mine": "m" } });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_SUCCESS" });
      expect(results.at(-1)).toEqual([3, undefined, { first: 2, ü: "€" }, "m"]);
    },
  },
  {
    name: "calls of other services",
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const other = trial.user.answer(async (request) =>
        Response.json({ got: await request.text() }, { status: 201 }),
      );
      const results: unknown[] = [];
      const work = serve(async (context) => {
        const { status, body } = await context.call("call", {
          url: other.url,
          method: "POST",
          body: '{"a":1}',
        });
        results.push([status, body]);
      });
      const run = await client.trigger({ url: work.url });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_SUCCESS" });
      expect(results.at(-1)).toEqual([201, { got: expect.stringMatching(/a/) }]);
    },
  },
  {
    name: "events",
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const results: unknown[] = [];
      const span = (isOldest(trial) ? 100 : { timeout: 100 }) as { timeout: number };
      const work = serve(async (context) => {
        const { eventData, timeout } = await context.waitForEvent("wait", "paid", span);
        results.push([eventData, timeout]);
      });
      const run = await client.trigger({ url: work.url });
      await eventually(
        () => client.getWaiters({ eventId: "paid" }),
        ({ length }) => length === 1,
      );
      await client.notify({ eventId: "paid", eventData: { n: 1 } });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_SUCCESS" });
      expect(results.at(-1)).toEqual([{ n: 1 }, false]);
    },
  },
  {
    name: "webhooks",
    has: hasMethod("createWebhook"),
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const urls: string[] = [];
      const work = serve(async (context) => {
        const webhook = await context.createWebhook("make");
        await context.run("tell", () => void urls.push(webhook.webhookUrl));
        const { request } = await context.waitForWebhook("wait", webhook, "100s");
        return request?.text();
      });
      const run = await client.trigger({ url: work.url });
      await eventually(
        async () => urls,
        ({ length }) => length > 0,
      );
      await fetch(urls[0] ?? "", { method: "POST", body: "called" });
      expect(await waitForResult(trial.user, run)).toBe("called");
    },
  },
  {
    name: "invoke",
    has: hasMethod("invoke"),
    check: async (trial) => {
      const { client, given } = enter(trial);
      const { createWorkflow, serveMany } = trial.published.load<Cloudflare>("@upstash/workflow/cloudflare");
      const child = createWorkflow(async (context: WorkflowContext<string>) =>
        context.run("look", () => `got ${JSON.stringify(context.requestPayload)}`),
      );
      const parent = createWorkflow(async (context) => {
        const all = await Promise.all(
          ["a", "b"].map((body) => context.invoke(`invoke-${body}`, { workflow: child, body })),
        );
        return all.map(({ body, isFailed }) => [body, isFailed]);
      });
      const { fetch: answer } = serveMany({ parent, child } as never, given);
      const folder = `/${crypto.randomUUID()}`;
      const [place] = ["parent", "child"].map((name) =>
        trial.user.at(`${folder}/${name}`, (request) => answer(request, {})),
      );
      const run = await client.trigger({ url: place?.url ?? "" });
      expect(await waitForResult(trial.user, run)).toEqual([
        ['got "a"', false],
        ['got "b"', false],
      ]);
    },
  },
  {
    name: "failure function",
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const told: unknown[] = [];
      // Version 0.1 passes four arguments, and later versions one object.
      const failureFunction = (first: object, status: unknown, response: unknown) =>
        void told.push(
          "failStatus" in first
            ? [Reflect.get(first, "failStatus"), Reflect.get(first, "failResponse")]
            : [status, response],
        );
      const work = serve(fails, { failureFunction, retries: 0 });
      const run = await client.trigger({ url: work.url, body: { n: 1 }, retries: 0 });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
      await expect.poll(() => told).toEqual([[500, "sorry"]]);
    },
  },
  {
    name: "own run ids, cancel",
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const work = serve((context) => context.sleep("long", 1000));
      const run = await client.trigger({ url: work.url, workflowRunId: "mine" });
      expect(run.workflowRunId).toBe("wfr_mine");
      const { workflowRunId } = run;
      await client.cancel(isOldest(trial) ? ({ workflowRunId } as never) : { ids: workflowRunId });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_CANCELED" });
    },
  },
  {
    name: "log of runs",
    has: hasPart("logs"),
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const work = serve((context) => context.run("only", () => 1));
      const { workflowRunId } = await client.trigger({ url: work.url });
      await waitForResult(trial.user, { workflowRunId });
      expect((await client.logs()).runs).toMatchObject([{ workflowRunId, workflowState: "RUN_SUCCESS" }]);
    },
  },
  {
    name: "resume of failed runs",
    has: hasPart("dlq"),
    check: async (trial) => {
      const { client, serve } = enter(trial);
      let isBroken = true;
      const work = serve(
        async (context) => {
          const first = await context.run("fine", () => "a");
          return context.run("broken", () => {
            if (isBroken) throw new Error("sorry");
            return `${first}b`;
          });
        },
        { retries: 0 },
      );
      const run = await client.trigger({ url: work.url, retries: 0 });
      await waitForEnd(trial.user, run);
      const { dlqId } = await findDeadLetter(trial.user, run);
      isBroken = false;
      const resumed = await client.dlq.resume({ dlqId });
      expect(await waitForResult(trial.user, resumed)).toBe("ab");
    },
  },
  {
    name: "error that is not retried",
    has: (published) => "WorkflowNonRetryableError" in published.load<object>("@upstash/workflow"),
    check: async (trial) => {
      const { client, serve } = enter(trial);
      const { WorkflowNonRetryableError } = trial.published.load<Workflow>("@upstash/workflow");
      const work = serve(async (context) => {
        await context.run("give up", () => {
          throw new WorkflowNonRetryableError("no");
        });
      });
      const run = await client.trigger({ url: work.url });
      expect(await waitForEnd(trial.user, run)).toMatchObject({ workflowState: "RUN_FAILED" });
      // Versions that report the failure to the endpoint also call it with the failure.
      await waitForCount(work, 1);
      expect(work.calls.filter(({ status }) => status !== 200).map(({ status }) => status)).toEqual([489]);
    },
  },
];

describeMatrix("@upstash/workflow", features);
