import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { eventually } from "../clientTestServer.ts";
import { ask, shareWorkflowServer, waitForCount } from "../workflowTestServer.ts";
import type { Qstash } from "./withClients.ts";
import { describeWithClients } from "./withClients.ts";

// The calls of products that use only messages: Papermark, Inbox Zero and Superset.

const house = shareWorkflowServer();

const enter = ({ Client }: Qstash) => {
  const user = house.createUser();
  return { ...user, qstash: new Client({ baseUrl: user.url, token: user.token }) };
};

describe("Papermark", () => {
  describeWithClients("2.9.1", (load) => {
    test("a webhook is signed by the product, hides the queue, and reports to one callback", async () => {
      const { qstash, answer } = enter(load());
      const sign = (body: string): string => createHmac("sha256", "whsec").update(body).digest("hex");
      const payload = { event: "document.viewed", data: { id: "d1", ü: "€" } };
      const receiver = answer(
        (request) => new Response("no", { status: request.method === "POST" ? 500 : 200 }),
      );
      const callback = answer(() => new Response("ok"));
      await qstash.publishJSON({
        url: receiver.url,
        body: payload,
        headers: { "X-Papermark-Signature": sign(JSON.stringify(payload)), "Upstash-Hide-Headers": "true" },
        callback: callback.url,
        failureCallback: callback.url,
        retries: 0,
      });
      await waitForCount(callback, 2);
      const [call] = receiver.calls;
      expect(call?.headers["x-papermark-signature"]).toBe(sign(call?.body ?? ""));
      expect(Object.keys(call?.headers ?? {}).filter((name) => name.startsWith("upstash-"))).toEqual([]);
      for (const { body } of callback.calls)
        expect(JSON.parse(body)).toMatchObject({
          status: 500,
          url: receiver.url,
          createdAt: expect.any(Number),
        });
    });
  });
});

describe("Inbox Zero", () => {
  describeWithClients("2.11.3", (load) => {
    test("messages have flow control and headers, and are verified", async () => {
      const { qstash, answer, receiver } = enter(load());
      const verified: boolean[] = [];
      const place = answer(async (request) => {
        const signature = request.headers.get("upstash-signature") ?? "";
        verified.push(await receiver.verify({ signature, body: await request.text() }));
        return new Response("ok");
      });
      const headers = new Headers({ "x-user": "u1" });
      headers.set("Retry-After", "10");
      await qstash.publishJSON({
        url: place.url,
        body: { id: 1 },
        flowControl: { key: "ai-u1", parallelism: 3 },
        retries: 3,
        headers,
      });
      expect(await waitForCount(place, 1)).toBe(1);
      expect(place.calls[0]?.headers).toMatchObject({ "x-user": "u1", "retry-after": "10" });
      expect(verified).toEqual([true]);
      expect(await qstash.batchJSON([1, 2, 3].map((id) => ({ url: place.url, body: { id } })))).toHaveLength(
        3,
      );
      expect(await waitForCount(place, 4)).toBe(4);
    });

    test("queues are made before each use, listed and deleted, and a message is cancelled", async () => {
      const { qstash, answer } = enter(load());
      const place = answer(() => new Response("ok"));
      for (const id of [1, 1, 2]) {
        const queue = qstash.queue({ queueName: "ai-categorize-u1" });
        await queue.upsert({ parallelism: 3 });
        await queue.enqueueJSON({ url: place.url, body: { id }, deduplicationId: `job-${id}` });
      }
      expect(await waitForCount(place, 2)).toBe(2);
      expect(await qstash.queue().list()).toMatchObject([{ name: "ai-categorize-u1", parallelism: 3 }]);
      await qstash.queue({ queueName: "ai-categorize-u1" }).delete();
      expect(await qstash.queue().list()).toEqual([]);
      const { messageId } = await qstash.publishJSON({ url: place.url, body: {}, delay: 600 });
      await qstash.messages.delete(messageId);
      expect(await ask({ url: house.url, token: "" }, "GET messages")).toMatchObject({ status: 401 });
      expect(await waitForCount(place, 2)).toBe(2);
    });
  });
});

describe("Superset", () => {
  describeWithClients("2.10.1", (load) => {
    test("jobs have deduplication ids and times, and their failures are reported", async () => {
      const { qstash, answer } = enter(load());
      const place = answer(
        (request) => new Response("x", { status: request.url.includes("fail") ? 400 : 200 }),
      );
      const failures = answer(() => new Response("ok"));
      const jobs = () =>
        [1, 2].map((n) => ({
          url: place.url,
          body: { n },
          deduplicationId: `automation-${n}-t1`,
          retries: 1,
        }));
      const made = await qstash.batchJSON(jobs());
      expect(await qstash.batchJSON(jobs())).toMatchObject(
        made.map((one) => ({ messageId: (one as { messageId: string }).messageId, deduplicated: true })),
      );
      expect(await waitForCount(place, 2)).toBe(2);
      const soon = Math.ceil(Date.now() / 1000) + 1;
      await qstash.publishJSON({
        url: `${place.url}?fail=1`,
        body: {},
        notBefore: soon,
        retries: 0,
        failureCallback: failures.url,
      });
      await waitForCount(failures, 1);
      expect(place.calls[2]?.at).toBeGreaterThanOrEqual(soon * 1000);
      expect(JSON.parse(failures.calls[0]?.body ?? "")).toMatchObject({ status: 400 });
    });

    test("its script finds schedules in the text of the list", async () => {
      const user = enter(load());
      const place = user.answer(() => new Response("ok"));
      const create = await ask(user, `POST schedules/${place.url}`, {
        headers: { "Upstash-Cron": "* * * * *", "Content-Type": "application/json" },
        body: "{}",
      });
      expect(create).toMatchObject({ status: 200 });
      const response = await eventually(
        () => fetch(`${user.url}/v2/schedules`, { headers: { authorization: `Bearer ${user.token}` } }),
        ({ ok }) => ok,
      );
      expect(await response.text()).toContain(`"destination":"${place.url}"`);
    });
  });
});
