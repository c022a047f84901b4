// @module-tag long
import type * as qstash from "@upstash/qstash";
import type * as qstashWorkflow from "@upstash/qstash/workflow";
import type { WorkflowContext } from "@upstash/qstash/workflow";
import { expect } from "vitest";
import { eventually } from "../clientTestServer.ts";
import { waitForCount } from "../workflowTestServer.ts";
import type { Feature, Trial } from "./matrix.ts";
import { describeMatrix } from "./matrix.ts";
import type { Published } from "./published.ts";

type Qstash = typeof qstash;
type Workflow = typeof qstashWorkflow;

const enter = ({ published, user }: Trial) => {
  const { Client, Receiver } = published.load<Qstash>("@upstash/qstash");
  return { Receiver, client: new Client({ baseUrl: user.url, token: user.token }) };
};

/** Reports whether the client of a version has a part, such as `dlq.retry`. */
const hasPart =
  (path: string) =>
  (published: Published): boolean => {
    const { Client } = published.load<Qstash>("@upstash/qstash");
    const client: unknown = new Client({ baseUrl: "http://127.0.0.1:1", token: "none" });
    return (
      path.split(".").reduce((part, name) => Reflect.get(Object(part), name) as unknown, client) !== undefined
    );
  };

const features: readonly Feature[] = [
  {
    name: "publish, and verify the signature",
    check: async (trial) => {
      const { client } = enter(trial);
      const bodies: unknown[] = [];
      const { receiver, answer } = trial.user;
      const place = answer(async (request) => {
        const body = await request.text();
        const signature = request.headers.get("upstash-signature") ?? "";
        bodies.push(await receiver.verify({ signature, body }), body, request.headers.get("x-mine"));
        return new Response("ok");
      });
      await client.publishJSON({ url: place.url, body: { n: 1 }, headers: { "x-mine": "m" }, retries: 1 });
      await waitForCount(place, 1);
      expect(bodies).toEqual([true, '{"n":1}', "m"]);
    },
  },
  {
    name: "batch",
    check: async (trial) => {
      const place = trial.user.answer(() => new Response("ok"));
      const jobs = [1, 2, 3].map((n) => ({ url: place.url, body: { n } }));
      expect(await enter(trial).client.batchJSON(jobs)).toHaveLength(3);
      expect(await waitForCount(place, 3)).toBe(3);
    },
  },
  {
    name: "deduplication and delay",
    check: async (trial) => {
      const { client } = enter(trial);
      const place = trial.user.answer(() => new Response("ok"));
      const publish = () => client.publishJSON({ url: place.url, body: {}, deduplicationId: "d1", delay: 1 });
      const { messageId } = await publish();
      expect(await publish()).toMatchObject({ messageId, deduplicated: true });
      expect(await waitForCount(place, 1)).toBe(1);
    },
  },
  {
    name: "callback and failure callback",
    check: async (trial) => {
      const { client } = enter(trial);
      const place = trial.user.answer(() => new Response("no", { status: 500 }));
      const told = trial.user.answer(() => new Response("ok"));
      await client.publishJSON({
        url: place.url,
        body: {},
        retries: 0,
        callback: told.url,
        failureCallback: told.url,
      });
      await waitForCount(told, 2);
      for (const { body } of told.calls) expect(JSON.parse(body)).toMatchObject({ status: 500, retried: 0 });
    },
  },
  {
    name: "queues",
    check: async (trial) => {
      const { client } = enter(trial);
      const place = trial.user.answer(() => new Response("ok"));
      const queue = client.queue({ queueName: "orders" });
      await queue.upsert({ parallelism: 2 });
      await queue.enqueueJSON({ url: place.url, body: { n: 1 } });
      expect(await waitForCount(place, 1)).toBe(1);
      expect(await queue.get()).toMatchObject({ name: "orders", parallelism: 2 });
      await queue.pause();
      expect(await client.queue().list()).toMatchObject([{ name: "orders", paused: true }]);
      await queue.resume();
      await queue.delete();
      expect(await client.queue().list()).toEqual([]);
    },
  },
  {
    name: "schedules",
    check: async (trial) => {
      const { schedules } = enter(trial).client;
      const { scheduleId } = await schedules.create({
        destination: "https://example.com/",
        cron: "0 9 * * *",
        scheduleId: "daily",
        body: "x",
      });
      expect(scheduleId).toBe("daily");
      await schedules.pause({ schedule: scheduleId });
      expect(await schedules.get(scheduleId)).toMatchObject({ cron: "0 9 * * *", isPaused: true });
      await schedules.resume({ schedule: scheduleId });
      expect(await schedules.list()).toMatchObject([{ scheduleId, isPaused: false }]);
      await schedules.delete(scheduleId);
      expect(await schedules.list()).toEqual([]);
    },
  },
  {
    name: "URL groups",
    check: async (trial) => {
      const { client } = enter(trial);
      const places = [1, 2].map(() => trial.user.answer(() => new Response("ok")));
      const endpoints = places.map(({ url }, at) => ({ name: `e${at}`, url }));
      await client.urlGroups.addEndpoints({ name: "all", endpoints });
      expect(await client.urlGroups.list()).toMatchObject([{ name: "all", endpoints }]);
      await client.publishJSON({ urlGroup: "all", body: {} });
      for (const place of places) expect(await waitForCount(place, 1)).toBe(1);
      await client.urlGroups.removeEndpoints({ name: "all", endpoints: [{ name: "e0" }] });
      expect((await client.urlGroups.get("all")).endpoints).toHaveLength(1);
      await client.urlGroups.delete("all");
    },
  },
  {
    name: "messages and the log",
    check: async (trial) => {
      const { client } = enter(trial);
      const { messageId } = await client.publishJSON({ url: "https://example.com/", body: {}, delay: 600 });
      expect(await client.messages.get(messageId)).toMatchObject({ messageId, url: "https://example.com/" });
      await client.messages.delete(messageId);
      const { logs } = await eventually(
        () => client.logs({ filter: { messageId } }),
        (page) => page.logs.some(({ state }) => state.startsWith("CANCEL")),
      );
      expect(logs.every((entry) => entry.messageId === messageId)).toBe(true);
    },
  },
  {
    name: "dead letters",
    check: async (trial) => {
      const { client } = enter(trial);
      const place = trial.user.answer(() => new Response("no", { status: 500 }));
      await client.publishJSON({ url: place.url, body: {}, retries: 0 });
      const list = () => client.dlq.listMessages();
      const { messages } = await eventually(list, (page) => page.messages.length === 1);
      expect(messages[0]).toMatchObject({ url: place.url, responseStatus: 500 });
      await client.dlq.delete(messages[0]?.dlqId ?? "");
      expect((await list()).messages).toEqual([]);
    },
  },
  {
    name: "retry of dead letters",
    has: hasPart("dlq.retry"),
    check: async (trial) => {
      const { client } = enter(trial);
      let status = 500;
      const place = trial.user.answer(() => new Response("x", { status }));
      await client.publishJSON({ url: place.url, body: {}, retries: 0 });
      const { messages } = await eventually(
        () => client.dlq.listMessages(),
        (page) => page.messages.length === 1,
      );
      status = 200;
      await client.dlq.retry(messages[0]?.dlqId ?? "");
      expect(await waitForCount(place, 2)).toBe(2);
    },
  },
  {
    name: "flow control of messages",
    check: async (trial) => {
      const { client } = enter(trial);
      let now = 0;
      let most = 0;
      const place = trial.user.answer(async () => {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 20));
        now--;
        return new Response("ok");
      });
      const flowControl = { key: "k", parallelism: 1 };
      for (const n of [1, 2, 3]) await client.publishJSON({ url: place.url, body: { n }, flowControl });
      await waitForCount(place, 3);
      expect(most).toBe(1);
    },
  },
  {
    name: "flow-control keys",
    has: hasPart("flowControl"),
    check: async (trial) => {
      const { client } = enter(trial);
      const flowControl = { key: "k", parallelism: 2 };
      await client.publishJSON({ url: "https://example.com/", body: {}, delay: 600, flowControl });
      expect(await client.flowControl.get("k")).toMatchObject({ flowControlKey: "k" });
    },
  },
  {
    name: "workflows of this package",
    check: async ({ published, user }) => {
      const { serve } = published.load<Workflow>("@upstash/qstash/workflow");
      const { client } = enter({ published, user });
      const results: unknown[] = [];
      const handler = serve<{ n: number }>(
        async (context: WorkflowContext<{ n: number }>) => {
          const first = await context.run("first", () => context.requestPayload.n + 1);
          await context.sleep("nap", 1);
          const both = await Promise.all([
            context.run("left", () => first + 1),
            context.run("right", () => first + 2),
          ]);
          await context.run("last", () => void results.push(both));
        },
        { qstashClient: client, receiver: user.receiver, env: {} },
      );
      const work = user.answer(handler);
      await client.publishJSON({ url: work.url, body: { n: 1 } });
      await expect.poll(() => results).toEqual([[3, 4]]);
    },
  },
];

describeMatrix("@upstash/qstash", features);
