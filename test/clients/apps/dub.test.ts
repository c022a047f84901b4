import { createHmac, randomUUID } from "node:crypto";
import { WorkflowRetryAfterError } from "@upstash/workflow";
import type { WorkflowContext } from "@upstash/workflow";
import { expect, test } from "vitest";
import { z } from "zod";
import { findFreePort } from "../../freePort.ts";
import { eventually } from "../clientTestServer.ts";
import type { RecordedUrl } from "../workflowTestServer.ts";
import { shareWorkflowServer, waitForCount, waitForResult } from "../workflowTestServer.ts";
import { describeWithClients } from "./withClients.ts";

// The calls that Dub makes with @upstash/qstash 2.11 and @upstash/workflow 1.3.

const house = shareWorkflowServer();

/** The product refuses a callback whose fields have other types. */
const callbackSchema = z.object({
  status: z.number().int(),
  url: z.url(),
  createdAt: z.number().int(),
  body: z.string().optional(),
  retried: z.number().optional(),
  sourceMessageId: z.string(),
  sourceBody: z.string(),
});

const readCallback = async (place: RecordedUrl) => {
  await waitForCount(place, 1);
  const [call] = place.calls;
  return { query: call?.path.split("?")[1], ...callbackSchema.parse(JSON.parse(call?.body ?? "")) };
};

const sign = (body: string): string => createHmac("sha256", "secret").update(body).digest("hex");

describeWithClients("2.11.3", (load) => {
  const enter = () => {
    const user = house.createUser();
    const { Client } = load();
    return { ...user, qstash: new Client({ baseUrl: user.url, token: user.token }) };
  };

  test("a webhook arrives without headers of the queue, and its callback has numbers", async () => {
    const { qstash, answer } = enter();
    const receiver = answer(() => new Response("thanks"));
    const callback = answer(() => new Response("ok"));
    const body = { event: "lead.created", id: 7 };
    const { messageId } = await qstash.publishJSON({
      url: receiver.url,
      body,
      headers: { "Dub-Signature": sign(JSON.stringify(body)), "Upstash-Hide-Headers": "true" },
      callback: `${callback.url}?webhookId=wh_1&event=lead.created`,
      failureCallback: `${callback.url}?webhookId=wh_1&failed=1`,
    });
    expect(await readCallback(callback)).toMatchObject({
      query: "webhookId=wh_1&event=lead.created",
      status: 200,
      createdAt: expect.any(Number),
      sourceMessageId: messageId,
      sourceBody: Buffer.from(JSON.stringify(body)).toString("base64"),
    });
    const [call] = receiver.calls;
    expect(call?.headers["dub-signature"]).toBe(sign(call?.body ?? ""));
    expect(
      Object.keys(call?.headers ?? {}).filter((name) => /upstash|svc|webhook-|trace/.test(name)),
    ).toEqual([]);
  });

  test("a webhook without a response fails with the status -1", async () => {
    const { qstash, answer } = enter();
    const failed = answer(() => new Response("ok"));
    await qstash.publishJSON({
      url: `http://127.0.0.1:${await findFreePort()}/`,
      body: {},
      retries: 0,
      failureCallback: `${failed.url}?webhookId=wh_2`,
    });
    expect(await readCallback(failed)).toMatchObject({ query: "webhookId=wh_2", status: -1 });
  });

  test("a batch of 100 runs through its queues in order", async () => {
    const { qstash, answer } = enter();
    const queues = ["ban-partner", "send-summary", "delete-code"];
    const seen: Record<string, number[]> = {};
    const job = answer(async (request) => {
      const { queue, n } = (await request.json()) as { queue: string; n: number };
      (seen[queue] ??= []).push(n);
      return new Response("ok");
    });
    // The client replaces the bodies of the list that it is given.
    const makeJobs = () =>
      Array.from({ length: 100 }, (_, n) => ({
        queueName: queues[n % 3] ?? "",
        url: job.url,
        body: { queue: queues[n % 3] ?? "", n },
        deduplicationId: `job-${n}`,
        label: "batch",
      }));
    const made = (await qstash.batchJSON(makeJobs())) as { messageId: string }[];
    expect(new Set(made.map(({ messageId }) => messageId)).size).toBe(100);
    await waitForCount(job, 100);
    for (const [at, queue] of queues.entries())
      expect(seen[queue]).toEqual(
        makeJobs()
          .map(({ body }) => body.n)
          .filter((n) => n % 3 === at),
      );
    // The product repeats a batch that seems to have failed.
    expect(await qstash.batchJSON(makeJobs())).toMatchObject(made.map(({ messageId }) => ({ messageId })));
    expect(await waitForCount(job, 100)).toBe(100);
  });

  test("jobs are deduplicated by content, wait for their time, and are found", async () => {
    const { qstash, answer } = enter();
    const job = answer(() => new Response("ok"));
    const publish = (more: object) => qstash.publishJSON({ url: job.url, body: { n: 1 }, ...more });
    const first = await publish({ contentBasedDeduplication: true });
    expect(await publish({ contentBasedDeduplication: true })).toMatchObject({
      messageId: first.messageId,
      deduplicated: true,
    });
    const later = await publish({ notBefore: Math.floor(Date.now() / 1000) + 3600, label: "later" });
    // The product keeps the id of a message as its claim of a job.
    expect(await qstash.messages.get(later.messageId)).toMatchObject({
      messageId: later.messageId,
      url: job.url,
    });
    const queue = qstash.queue({ queueName: "emails" });
    expect(await queue.enqueueJSON({ url: job.url, body: { n: 2 } })).toHaveProperty("messageId");
    expect(await waitForCount(job, 2)).toBe(2);
  });

  test("a callback has its own headers", async () => {
    const { qstash, answer } = enter();
    const job = answer(() => new Response("ok"));
    const callback = answer(() => new Response("ok"));
    await qstash.publishJSON({
      url: job.url,
      body: {},
      callback: callback.url,
      headers: { "Upstash-Callback-Forward-X-Claim": "c1", "Upstash-Callback-Retries": "1" },
    });
    await waitForCount(callback, 1);
    expect(callback.calls[0]?.headers["x-claim"]).toBe("c1");
  });
});

test("many workflow runs are triggered at once, and each route runs to its end", async () => {
  const user = house.createUser();
  let isBusy = true;
  const steps: string[] = [];
  const work = user.serve(async (context: WorkflowContext<{ partner: string }>) => {
    const { partner } = context.requestPayload;
    const email = await context.run("find-partner", () => `${partner}@example.com`);
    await context.run("send-email", () => {
      if (partner === "p0" && isBusy) {
        isBusy = false;
        throw new WorkflowRetryAfterError("busy", 1);
      }
      steps.push(email);
    });
    await context.sleep("pause", 1);
    return context.run("finish", () => partner);
  });
  const runs = await user.workflows.trigger(
    Array.from({ length: 10 }, (_, n) => ({
      url: work.url,
      body: { partner: `p${n}` },
      retries: 3,
      label: `partner-approved-${n}`,
      workflowRunId: randomUUID(),
      flowControl: { key: "partner-approved", parallelism: 20 },
    })),
  );
  expect(await Promise.all(runs.map((run) => waitForResult(user, run)))).toEqual(
    Array.from({ length: 10 }, (_, n) => `p${n}`),
  );
  expect(steps.toSorted()).toEqual(Array.from({ length: 10 }, (_, n) => `p${n}@example.com`));
  await eventually(
    () => user.workflows.logs({ filter: { label: "partner-approved-3" } }),
    ({ runs: { length } }) => length === 1,
  );
});
