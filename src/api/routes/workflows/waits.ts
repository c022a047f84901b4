import { z } from "zod";
import { longestDuration, parseDuration } from "../../../engine/core/values/duration.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits, memory } from "../../../engine/core/values/limits.ts";
import type { AccountId, Bytes, Millis } from "../../../engine/core/values/basics.ts";
import type { WaitPost } from "../../../engine/core/commands/wait.ts";
import { readForwardedHeaders, headersSchema, toHeaderList } from "../../settings/forwardedHeaders.ts";
import { listHeaderSettings } from "../../settings/grammar.ts";
import { readFailureCallback } from "../../settings/message.ts";
import {
  listShownHeaders,
  withoutToken,
  notifiedWaiterJson,
  notifiedWaiterSchema,
  waiterJson,
  waiterSchema,
} from "../../views/waiters.ts";
import { readObject } from "../../route/readObject.ts";
import type { RouteResponse, IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { findCurrentRunId } from "../../publishing/currentRun.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { parseSegment } from "../../settings/segment.ts";
import { withStepRefusal } from "../../publishing/stepRefusal.ts";
import { assertUrl, shorten } from "../../http/target.ts";
import { day } from "../../../engine/core/values/time.ts";

const byEvent = z.object({ eventId: z.string().describe("The id of the event, chosen by the workflow.") });

const waitSchema = z.looseObject({
  url: z
    .string("is missing or not a string")
    .describe("The URL of the endpoint that is called when the event arrives."),
  timeout: z
    .union([z.string(), z.number()], "is neither a string nor a number")
    .default("7d")
    .describe(
      "How long the step waits: a duration such as 30s or 7d, or a number of seconds. Default: 7d. At most " +
        `${limits.delay / day} days.`,
    ),
  timeoutUrl: z
    .string("is not a string")
    .optional()
    .describe(
      "The URL of the endpoint that is called when the timeout ends first. Default: the value of url.",
    ),
  timeoutHeaders: headersSchema
    .optional()
    .describe(
      "Headers for the call after the timeout: names to lists of values. The headers of this request are " +
        "for the call with the event.",
    ),
  step: z
    .looseObject({
      stepId: z
        .int("is missing or not a whole number")
        .min(1, "must be at least 1")
        .describe("The number of the step in its run, from 1."),
      stepName: z.string("is missing or not a string").describe("The name of the step."),
      stepType: z
        .string("is missing or not a string")
        .describe("Wait for an event, or WaitForWebhook for a call to a webhook."),
    })
    .describe("The step that waits. Its result has these fields and the event or the timeout."),
});

const wait = route({
  method: "POST",
  path: "/v2/wait/{eventId}",
  operation: "step",
  unaudited: "continues a run, whose history records it",
  tag: "Events",
  needs: "publish",
  summary: "Make a step of a run wait for an event",
  about:
    "Endpoints send this request. The header Svc-Workflow-RunId names the run. Headers of the form " +
    "Svc-Forward-… are sent with the call that continues the run. If the run has kept such an event, the " +
    `step receives it at once. The step waits at most ${limits.delay / day} days and then continues ` +
    "without the event.",
  params: byEvent,
  body: {
    about: "The step that waits, and how long it waits.",
    contentType: "application/json",
    schema: waitSchema,
    required: true,
    maxBytes: 512 * 1024,
  },
  answers: {
    200: {
      about: "The step waits or has received its event.",
      schema: z.object({
        waits: z
          .boolean()
          .describe("false if the run had kept the event, or if the same step was already posted."),
      }),
    },
  },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "step-refused", "forbidden"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const runId = parseSegment("workflow-runid", runIdIn(incoming));
    const waiter = await withStepRefusal(true, () =>
      readWaiter(parseSegment("eventId", params.eventId), incoming),
    );
    return {
      status: 200,
      body: await store.execute("wait", { account: account.id, runId, waiter, ...readScope(incoming) }),
    };
  },
});

function runIdIn({ rawHeaders }: IncomingRequest): string {
  const [runId, ...others] = new Set(
    listHeaderSettings(rawHeaders).flatMap(({ name, value }) => (name === "workflow-runid" ? [value] : [])),
  );
  if (runId === undefined)
    throw new Refusal(
      "invalid",
      "workflow-runid: missing; send the id of the run in the header Svc-Workflow-RunId",
    );
  if (others.length > 0)
    throw new Refusal("invalid", "workflow-runid: given twice with different values; remove one");
  return runId;
}

function readWaiter(event: string, incoming: IncomingRequest): WaitPost {
  const { url, timeout, timeoutUrl = url, timeoutHeaders = {}, step } = readObject(waitSchema, incoming);
  assertUrl("url", url);
  assertUrl("timeoutUrl", timeoutUrl);
  const postedHeaders = listShownHeaders(incoming.rawHeaders, incoming.proof);
  const timeoutGiven = withoutToken(toHeaderList(timeoutHeaders), incoming.proof);
  const text = typeof timeout === "number" ? `${timeout}s` : timeout;
  // Only the server sets the result of a wait, so a result in the request is dropped.
  const { out: _, ...rest } = step;
  const failureCallback = readFailureCallback(listHeaderSettings(incoming.rawHeaders));
  return {
    kind: step.stepType === "WaitForWebhook" ? "webhook" : "event",
    event,
    url,
    given: postedHeaders,
    headers: readForwardedHeaders("headers", postedHeaders),
    timeout: text,
    wait: readTimeout(text),
    timeoutUrl,
    timeoutGiven,
    timeoutHeaders: readForwardedHeaders("timeoutHeaders", timeoutGiven),
    step: rest,
    ...(failureCallback && { failureCallback }),
  };
}

function readTimeout(text: string): Millis {
  const wait = parseDuration(text);
  if (wait !== null) return wait;
  throw new Refusal(
    "invalid",
    `timeout: ${JSON.stringify(shorten(text))} is not a duration of at most ${longestDuration}; ` +
      "use a value such as 30s, 10m, 2h or 7d",
  );
}

/** The maximum number of waiters that one transaction notifies. */
const maxWaitersPerRequest = 50;
/** The maximum number of bytes of events that one transaction stores. */
const portionBytes = 16 * 1024 * 1024;

const moreWaiters =
  "If more steps wait, the response has the header Waypost-More: true; repeat the request to notify them.";
const mebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const eventBody = {
  about: "The data of the event: any bytes.",
  contentType: "*/*",
  schema: z.string(),
  required: false,
  maxBytes: { messages: 1 },
};

const notifyAll = route({
  method: "POST",
  path: "/v2/notify/{eventId}",
  operation: "step",
  unaudited: "continues a run, whose history records it",
  tag: "Events",
  needs: "publish",
  summary: "Notify all runs of an event",
  about:
    "Ends the wait of all steps that wait for the event now, in any run. If no step waits, the event is " +
    `lost. One request notifies up to ${limits.waiters} steps and sends up to ` +
    `${mebibytes(limits.fanOutBytes)}. ${moreWaiters}`,
  params: byEvent,
  body: eventBody,
  answers: { 200: { about: "The steps that were notified.", schema: z.array(notifiedWaiterSchema) } },
  refusals: ["storage-quota-exceeded"],
  handle: async ({ account, params, incoming, context }) =>
    notifyWaiters(context, account.id, {
      event: parseSegment("eventId", params.eventId),
      body: incoming.body,
      mayRead: mayRead(incoming),
    }),
});

type EventNotice = { event: string; body: Bytes; mayRead: boolean };

/**
 * Notifies the waiters that exist at the start of the request. Waiters that are created later are left out.
 * Otherwise the request might never end, because a notified run may wait for the same event again.
 */
async function notifyWaiters(
  context: RouteContext,
  account: AccountId,
  { event, body, mayRead }: EventNotice,
): Promise<RouteResponse> {
  const size = Math.max(1, body.byteLength);
  const waiters = await listWaiterIds(context, account, {
    event,
    max: Math.min(limits.waiters, Math.ceil(limits.fanOutBytes / size)),
  });
  const together = Math.max(1, Math.min(maxWaitersPerRequest, Math.floor(portionBytes / size)));
  const texts: string[] = [];
  let bytes = 0;
  let at = 0;
  for (; at < waiters.ids.length && bytes < memory.page; at += together) {
    const waiterIds = waiters.ids.slice(at, at + together);
    const { notified } = await context.store.execute("notify", { account, event, body, waiterIds });
    for (const one of notified)
      bytes +=
        texts[texts.push(JSON.stringify(notifiedWaiterJson(one, mayRead ? null : { runId: "" }))) - 1]
          ?.length ?? 0;
  }
  return toListResponse(texts, waiters.more || at < waiters.ids.length);
}

/**
 * Returns a response with a JSON array. The elements are already JSON text, so no large object has to be
 * built.
 */
const toListResponse = (texts: readonly string[], isMore: boolean): RouteResponse => ({
  status: 200,
  body: `[${texts.join(",")}]`,
  headers: {
    "Content-Type": "application/json; charset=utf-8",
    ...(isMore ? { "Waypost-More": "true" } : {}),
  },
});

/** The number of waiters that one read returns. */
const pageSize = 500;

/** Returns the ids of at most `max` steps that wait for an event, and whether there are more. */
async function listWaiterIds(
  { store }: RouteContext,
  account: AccountId,
  { event, max }: { event: string; max: number },
) {
  const ids: string[] = [];
  for (let after: string | undefined; ;) {
    const limit = Math.min(pageSize, max + 1 - ids.length);
    const waiters = await store.read.listEventWaiters(account, event, {
      limit,
      ...(after === undefined ? {} : { after }),
    });
    ids.push(...waiters.flatMap(({ id, kind }) => (kind === "event" ? [id] : [])));
    after = waiters.at(-1)?.id;
    if (ids.length > max) return { ids: ids.slice(0, max), more: true };
    if (waiters.length < limit) return { ids, more: false };
  }
}

const notifyRun = route({
  method: "POST",
  path: "/v2/notify/{workflowRunId}/{eventId}",
  operation: "step",
  unaudited: "continues a run, whose history records it",
  tag: "Events",
  needs: "publish",
  summary: "Notify one run of an event",
  about:
    "Ends the wait of all steps of the run that wait for the event. If no step waits, the run keeps the " +
    "event, and the next step that waits for it receives it at once. If the run has failed and was " +
    "resumed, the run that continues it is notified. If another run has the same id by now, the run that " +
    `waits for the event is notified. A run keeps at most ${limits.notifications} events and ` +
    `${mebibytes(limits.notificationBytes)} of event data.`,
  params: z.object({ workflowRunId: z.string().describe("The id of the run."), ...byEvent.shape }),
  body: eventBody,
  answers: {
    200: {
      about: "The steps that were notified. If the run keeps the event, one entry without a waiter.",
      schema: z.array(notifiedWaiterSchema),
    },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const { body } = incoming;
    const requestedRunId = parseSegment("workflowRunId", params.workflowRunId);
    const event = parseSegment("eventId", params.eventId);
    const address = { account: account.id, event, kind: "event" } as const;
    const runId = (await findCurrentRunId(store, { ...address, runId: requestedRunId })) ?? requestedRunId;
    const { notified, stored } = await store.execute("notify", { ...address, body, runId });
    const shown = mayRead(incoming) ? null : { runId: requestedRunId };
    return {
      status: 200,
      body: stored
        ? [{ workflowRunId: shown?.runId ?? runId }]
        : notified.map((one) => notifiedWaiterJson(one, shown)),
    };
  },
});

const waiters = route({
  method: "GET",
  path: "/v2/waiters/{eventId}",
  tag: "Events",
  summary: "List the steps that wait for an event",
  about:
    `Lists at most ${limits.waiters} waiting steps of all runs, in at most ${mebibytes(memory.page)}. ` +
    "If there are more, the response has the header Waypost-More: true.",
  params: byEvent,
  answers: { 200: { about: "The waiting steps.", schema: z.array(waiterSchema) } },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const event = parseSegment("eventId", params.eventId);
    const texts: string[] = [];
    let bytes = 0;
    for (let after: string | undefined; texts.length < limits.waiters && bytes < memory.page;) {
      const found = await context.store.read.listEventWaiters(account.id, event, {
        limit: pageSize,
        ...(after === undefined ? {} : { after }),
      });
      for (const waiter of found)
        bytes += texts[texts.push(JSON.stringify(waiterJson(waiter))) - 1]?.length ?? 0;
      after = found.at(-1)?.id;
      if (found.length < pageSize) return toListResponse(texts, false);
    }
    return toListResponse(texts, true);
  },
});

/** The routes by which steps wait for events and are notified of them. */
export const waits = [wait, notifyAll, notifyRun, waiters];
