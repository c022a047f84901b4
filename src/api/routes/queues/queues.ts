import { z } from "zod";
import { bulkActions } from "../../../engine/core/bulk/actions.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { formatGate, queueGate } from "../../../engine/core/admission/gate.ts";
import { limits, spans } from "../../../engine/core/values/limits.ts";
import { parseDuration } from "../../../engine/core/values/duration.ts";
import type { AccountId, Millis } from "../../../engine/core/values/basics.ts";
import type { Limiter } from "../../../engine/core/model/limiter.ts";
import type { Store } from "../../../engine/store/store.ts";
import { toJson } from "../../fields/field.ts";
import { queueFields } from "../../fields/queue.ts";
import { PagedList } from "../../http/pagedList.ts";
import { isAckTimeout } from "../../settings/settingTexts.ts";
import { readObject } from "../../route/readObject.ts";
import { route } from "../../route/route.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { parseName } from "../../http/target.ts";
import { listLimiterPages } from "./flowControl.ts";
import { day } from "../../../engine/core/values/time.ts";

const queueSchema = toSchema(queueFields);
const queueJson = (limiter: Limiter): Record<string, unknown> => toJson(queueFields, limiter);

const byName = z.object({ name: z.string() });
const queueNow = "The queue as it is now.";

const settingsSchema = z.strictObject({
  queueName: z
    .string("is missing or not a string")
    .describe(
      `Name of the queue: letters or digits, ".", "_" and "-", at most ${limits.nameLength} characters.`,
    ),
  parallelism: z
    .int("is not a whole number")
    .min(1, "must be at least 1")
    .optional()
    .describe(
      `Maximum number of messages that hold a slot at once, from 1 to ${limits.parallelism}. Default: 1.`,
    ),
  paused: z
    .boolean("is neither true nor false")
    .optional()
    .describe("Whether the queue is paused, so that it sends no messages. Default: false."),
  ackTimeout: z
    .string("is not a string")
    .refine((text) => text === "" || isAckTimeout(text), "must be from 1s to 12h, or empty")
    .optional()
    .describe(
      "The Ack-Timeout of messages that set none, from 1s to 12h, such as 2h. An empty text removes it. It " +
        "applies to messages that are published later. Default: none.",
    ),
});

const upsert = route({
  method: "POST",
  path: "/v2/queues",
  tag: "Queues",
  summary: "Create or change a queue",
  about:
    "A queue sends its messages in order of arrival. " +
    "A message holds a slot of the queue until it is delivered or has failed, including all its retries " +
    "and callbacks. With a parallelism of 1, the next message waits until then. " +
    "If the queue exists, omitted settings keep their values.",
  body: {
    about: "Name and settings of the queue.",
    contentType: "application/json",
    schema: settingsSchema,
    required: true,
    maxBytes: 64 * 1024,
  },
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["limit-exceeded"],
  handle: async ({ account, incoming, context }) => {
    const { queueName, parallelism, paused, ackTimeout } = readObject(settingsSchema, incoming);
    const name = parseName("queueName", queueName);
    const { maxQueues } = context;
    const limiter = await context.store.execute("upsertQueue", {
      account: account.id,
      name,
      parallelism,
      paused,
      ackTimeout: parseAckTimeout(ackTimeout),
      maxQueues,
    });
    return { status: 200, body: queueJson(limiter) };
  },
});

/** Null removes the setting, and undefined keeps it. */
const parseAckTimeout = (text: string | undefined): Millis | null | undefined =>
  text === undefined ? undefined : text === "" ? null : parseDuration(text);

/** The maximum number of queues in one response. */
const maxListed = 10_000;

const list = route({
  method: "GET",
  path: "/v2/queues",
  tag: "Queues",
  summary: "List queues",
  about: `Returns the first ${maxListed} queues, in the order of their names.`,
  answers: { 200: { about: "The queues.", schema: z.array(queueSchema) } },
  refusals: [],
  handle: async ({ account, context }) => {
    const pages = listLimiterPages(context.store, account.id, {
      kind: "queue",
      max: maxListed,
      isWanted: () => true,
      show: queueJson,
    });
    return { status: 200, body: new PagedList(pages) };
  },
});

const get = route({
  method: "GET",
  path: "/v2/queues/{name}",
  tag: "Queues",
  summary: "Read a queue",
  about:
    "A queue exists from its creation or its first message on. " +
    "A queue that was created by a request or is paused stays until it is deleted. " +
    `Any other queue is deleted after ${spans.idleQueue / day} days without messages to send; ` +
    "its next message creates it again.",
  params: byName,
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { name }, context }) => {
    const limiter = await context.store.read.findResource(
      "limiters",
      account.id,
      formatGate(queueGate(parseName("queue", name))),
    );
    if (limiter) return { status: 200, body: queueJson(limiter) };
    throw new Refusal(
      "not-found",
      `queue: there is no queue ${JSON.stringify(name.slice(0, 200))}; GET /v2/queues lists the queues`,
    );
  },
});

const pause = route({
  method: "POST",
  path: "/v2/queues/{name}/pause",
  tag: "Queues",
  summary: "Pause a queue",
  about:
    "The queue still accepts messages, but sends none until it is resumed. " +
    "Requests in flight and their callbacks are completed. " +
    "A message that must be retried waits, and continues within 10 seconds after the queue is resumed. " +
    "Creates the queue if it does not exist, so that it can be paused before its first message.",
  params: byName,
  answers: { 200: { about: queueNow, schema: queueSchema } },
  refusals: ["limit-exceeded"],
  handle: async ({ account, params, context }) => {
    const name = parseName("queue", params.name);
    const { maxQueues } = context;
    return {
      status: 200,
      body: queueJson(
        await context.store.execute("pauseLimiter", {
          account: account.id,
          id: formatGate(queueGate(name)),
          maxQueues,
        }),
      ),
    };
  },
});

const resume = route({
  method: "POST",
  path: "/v2/queues/{name}/resume",
  tag: "Queues",
  summary: "Resume a queue",
  about:
    "Continues to send the messages of the queue, oldest first. A queue that does not exist is not " +
    "created.",
  params: byName,
  answers: {
    200: { about: "The queue after the change. Empty if it does not exist.", schema: queueSchema.partial() },
  },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const id = formatGate(queueGate(parseName("queue", params.name)));
    const limiter = await context.store.execute("resumeLimiter", { account: account.id, id });
    return { status: 200, body: limiter ? queueJson(limiter) : {} };
  },
});

/** The maximum number of messages that one transaction cancels. */
const { together: portion } = bulkActions["messages.cancel"];
/** The maximum number of such transactions in one request. */
const maxPortions = 200;

const remove = route({
  method: "DELETE",
  path: "/v2/queues/{name}",
  runsManyBatches: true,
  tag: "Queues",
  summary: "Delete a queue",
  about:
    "Cancels the messages of the queue and deletes it. " +
    "The request of a message that is being sent is aborted, but may have reached the destination. " +
    "Callbacks of finished messages are still delivered. " +
    `One request cancels at most about ${portion * maxPortions} messages. ` +
    "If there are more, the response has status 503 and the queue stays paused; repeat the request to " +
    "continue. Deleting a queue that does not exist changes nothing.",
  params: byName,
  answers: {
    200: {
      about: "The queue no longer exists.",
      schema: z.object({ cancelled: z.int().min(0).describe("Number of messages that were cancelled.") }),
    },
  },
  refusals: ["busy"],
  handle: async ({ account, params, context }) => {
    const name = parseName("queue", params.name);
    const exists = await context.store.read.findResource("limiters", account.id, formatGate(queueGate(name)));
    const cancelled = exists ? await removeQueue(context.store, account.id, name) : 0;
    return { status: 200, body: { cancelled } };
  },
});

/**
 * Deletes a queue and cancels its messages. Returns how many were cancelled. Pauses the queue first.
 * Otherwise, cancelling one message would start the next one.
 */
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
    `queue: ${cancelled} messages were cancelled and more remain; the queue is paused; ` +
      "repeat the request to delete it",
  );
}

/** The routes of queues. */
export const queues = [upsert, list, get, pause, resume, remove];
