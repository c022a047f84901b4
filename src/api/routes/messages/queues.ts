import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { formatGate, parseGate, queueGate } from "../../../core/admission/gate.ts";
import { limits, spans } from "../../../core/values/limits.ts";
import type { AccountId, Limiter } from "../../../core/model/message.ts";
import type { Store } from "../../../store/store.ts";
import { PagedList } from "../../http/pagedList.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { checkName } from "../../http/target.ts";
import { listLimiterPages } from "./flowControl.ts";
import { day } from "../../../core/values/time.ts";

const queueSchema = z.object({
  name: z.string(),
  createdAt: z.int().describe("In unix milliseconds."),
  updatedAt: z.int().describe("When its settings were changed last, in unix milliseconds."),
  parallelism: z.int().describe("So many messages are under way at once."),
  paused: z.boolean(),
  lag: z
    .int()
    .describe(
      "Messages that are not finished: those that wait in line, and those under way, which are being sent, wait to be sent again, or have callbacks that are not finished. A cancelled one counts until its request has ended. A delayed message counts when its time has come.",
    ),
});

const queueJson = (limiter: Limiter): z.output<typeof queueSchema> => ({
  name: parseGate(limiter.id).name,
  createdAt: limiter.createdAt,
  updatedAt: limiter.updatedAt,
  parallelism: limiter.parallelism ?? 0,
  paused: limiter.paused,
  lag: limiter.waiting + limiter.running,
});

const byName = z.object({ name: z.string() });
const queueNow = "The queue as it is now.";

const settingsSchema = z.strictObject({
  queueName: z.string("is missing, or not a text").describe(`Letters, digits, ".", "_" and "-", ${limits.nameLength} at most.`),
  parallelism: z
    .int("is not a whole number")
    .min(1, "must be at least 1")
    .optional()
    .describe(`So many messages may be under way at once, ${limits.parallelism} at most. Default: 1.`),
  paused: z.boolean("is neither true nor false").optional().describe("Default: false."),
});

const upsert = route({
  method: "POST",
  path: "/v2/queues",
  tag: "Queues",
  summary: "Create or change a queue",
  about:
    "A queue sends its messages in order of arrival. A message is under way until it is delivered or has failed, all its retries and callbacks included; with a parallelism of 1 the next one waits for that. Of a queue that exists, what is left out stays as it is.",
  body: { about: "The queue.", contentType: "application/json", schema: settingsSchema, required: true, maxBytes: 64 * 1024 },
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const { queueName, parallelism, paused } = readObject(settingsSchema, incoming);
    const name = checkName("queueName", queueName);
    const { maxQueues } = context;
    const limiter = await context.store.execute("upsertQueue", { account: account.id, name, parallelism, paused, maxQueues });
    return { status: 200, body: queueJson(limiter) };
  },
});

/** In one answer. */
const maxListed = 10_000;

const list = route({
  method: "GET",
  path: "/v2/queues",
  tag: "Queues",
  summary: "List queues",
  about: `The first ${maxListed} queues, in the order of their names.`,
  answers: { 200: { about: "The queues.", schema: z.array(queueSchema) } },
  refusals: [],
  handle: async ({ account, context }) => {
    const pages = listLimiterPages(context.store, account.id, { kind: "queue", max: maxListed, isWanted: () => true, toJson: queueJson });
    return { status: 200, body: new PagedList(pages) };
  },
});

const get = route({
  method: "GET",
  path: "/v2/queues/{name}",
  tag: "Queues",
  summary: "Read a queue",
  about: `A queue exists from its first message on, or once it was created. One that was created, or is paused, stays until it is deleted. Any other is forgotten ${spans.idleQueue / day} days after nothing is left to be sent through it; its next message makes it again.`,
  params: byName,
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { name }, context }) => {
    const limiter = await context.store.read.findResource("limiters", account.id, formatGate(queueGate(checkName("queue", name))));
    if (limiter) return { status: 200, body: queueJson(limiter) };
    throw new Refusal("not-found", `queue: there is no queue ${JSON.stringify(name.slice(0, 200))}; GET /v2/queues lists those there are`);
  },
});

const pause = route({
  method: "POST",
  path: "/v2/queues/{name}/pause",
  tag: "Queues",
  summary: "Pause a queue",
  about:
    "It takes in messages, and sends none. A request that is under way ends, with its callbacks; a message that is to be sent again waits, and goes on within ten seconds of the queue being resumed. A queue that does not exist yet is made, so that it can be paused before its first message.",
  params: byName,
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["limit-exceeded"],
  handle: async ({ account, params, context }) => {
    const name = checkName("queue", params.name);
    const { maxQueues } = context;
    return {
      status: 200,
      body: queueJson(await context.store.execute("pauseLimiter", { account: account.id, id: formatGate(queueGate(name)), maxQueues })),
    };
  },
});

const resume = route({
  method: "POST",
  path: "/v2/queues/{name}/resume",
  tag: "Queues",
  summary: "Resume a queue",
  about: "It goes on with its oldest message. A queue that does not exist is not paused, and is not made.",
  params: byName,
  answers: { 200: { about: "The queue as it is now; empty when there is none.", schema: queueSchema.partial() } },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const id = formatGate(queueGate(checkName("queue", params.name)));
    const limiter = await context.store.execute("resumeLimiter", { account: account.id, id });
    return { status: 200, body: limiter ? queueJson(limiter) : {} };
  },
});

/** Cancelled together, and how often in one request. */
const portion = 500;
const maxPortions = 200;

const remove = route({
  method: "DELETE",
  path: "/v2/queues/{name}",
  tag: "Queues",
  summary: "Delete a queue",
  about: `Cancels the messages of the queue, and removes it. One that is being sent at this moment is cut off; it may have arrived. Callbacks of finished messages are still delivered. One request cancels about ${portion * maxPortions} messages at most; where there are more, it is answered with 503, the queue stays paused, and the request can be repeated. Deleting a queue that does not exist changes nothing.`,
  params: byName,
  answers: { 200: { about: "It is gone.", schema: z.object({ cancelled: z.int().describe("How many messages were cancelled.") }) } },
  refusals: ["busy"],
  handle: async ({ account, params, context }) => {
    const name = checkName("queue", params.name);
    const exists = await context.store.read.findResource("limiters", account.id, formatGate(queueGate(name)));
    const cancelled = exists ? await removeQueue(context.store, account.id, name) : 0;
    return { status: 200, body: { cancelled } };
  },
});

/** Paused first, so that none begins because the one before it was cancelled. Answers how many were. */
async function removeQueue(store: Store, account: AccountId, name: string): Promise<number> {
  await store.execute("pauseLimiter", { account, id: formatGate(queueGate(name)) });
  let cancelled = 0;
  for (let portions = 0; portions < maxPortions; portions++) {
    const messageIds = await store.read.listQueueMessages({ account, queue: name, limit: portion });
    if (messageIds.length > 0) {
      cancelled += (await store.execute("cancel", { account, messageIds })).cancelled;
    } else {
      const slots = await store.read.listQueueSlots(account, name);
      if ((await store.execute("deleteQueue", { account, name, slots })).deleted) return cancelled;
    }
  }
  throw new Refusal(
    "busy",
    `queue: ${cancelled} messages were cancelled, and there are still some; it is paused now; ask again to delete it`,
  );
}

export const queues = [upsert, list, get, pause, resume, remove];
