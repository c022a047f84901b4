import { z } from "zod";
import { parseDuration, parseGoDuration } from "../../../core/values/duration.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, memory } from "../../../core/values/limits.ts";
import type { AccountId, Bytes, Millis } from "../../../core/model/message.ts";
import type { WaitPost } from "../../../core/workflows/wait.ts";
import { readForwardedHeaders, headersSchema, toHeaderList } from "../../settings/forwardedHeaders.ts";
import { listHeaderSettings } from "../../settings/grammar.ts";
import { listShownHeaders, withoutToken, notifiedJson, notifiedSchema, waiterJson, waiterSchema } from "../../views/waiters.ts";
import { readObject } from "../../route/readObject.ts";
import type { RouteResponse, IncomingRequest, RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { findCurrentRunId } from "../../publishing/currentRun.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { checkSegment } from "../../settings/segment.ts";
import { readStep } from "../../publishing/stepRefusal.ts";
import { checkUrl, shorten } from "../../http/target.ts";
import { day } from "../../../core/values/time.ts";

const byEvent = z.object({ eventId: z.string() });

const waitSchema = z.looseObject({
  url: z.string("is missing, or not a text").describe("The endpoint that goes on when the event has come."),
  timeout: z
    .union([z.string(), z.number()], "is neither a text nor a number")
    .default("7d")
    .describe("How long it waits, such as 30s or 7d; a number is of seconds. Default: 7d."),
  timeoutUrl: z.string("is not a text").optional().describe("The endpoint that goes on when the time is over. Default: the same."),
  timeoutHeaders: headersSchema.optional().describe("What the headers of this request are for the event, for the end of the time."),
  step: z
    .looseObject({
      stepId: z.int("is missing, or not a whole number").min(1, "must be at least 1"),
      stepName: z.string("is missing, or not a text"),
      stepType: z.string("is missing, or not a text").describe("Wait, or WaitForWebhook."),
    })
    .describe("The step that waits. Its result is the step with what came of it."),
});

const wait = route({
  method: "POST",
  path: "/v2/wait/{eventId}",
  operation: "step",
  unaudited: "a run goes on with it, which its history tells",
  tag: "Events",
  needs: "publish",
  summary: "Let a step of a run wait for an event",
  about: `What endpoints ask for; the run is named by the header Svc-Workflow-RunId. Headers of the form Svc-Forward-… are sent along when it goes on. An event that was kept for the run is taken at once. It waits for ${limits.delay / day} days at most, and then goes on without the event.`,
  params: byEvent,
  body: {
    about: "What waits, and for how long.",
    contentType: "application/json",
    schema: waitSchema,
    required: true,
    maxBytes: 512 * 1024,
  },
  answers: {
    200: {
      about: "The step waits, or has what it waits for.",
      schema: z.object({ waits: z.boolean().describe("False when the event had come before, or the same was posted before.") }),
    },
  },
  refusals: ["limit-exceeded", "storage-quota-exceeded", "step-refused", "forbidden"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const runId = checkSegment("workflow-runid", runIdIn(incoming));
    const waiter = await readStep(true, () => readWaiter(checkSegment("eventId", params.eventId), incoming));
    return { status: 200, body: await store.execute("wait", { account: account.id, runId, waiter, ...readScope(incoming) }) };
  },
});

function runIdIn({ rawHeaders }: IncomingRequest): string {
  const [runId, ...others] = new Set(
    listHeaderSettings(rawHeaders).flatMap(({ name, value }) => (name === "workflow-runid" ? [value] : [])),
  );
  if (runId === undefined) throw new Refusal("invalid", "workflow-runid: missing; give the id of the run in the header Svc-Workflow-RunId");
  if (others.length > 0) throw new Refusal("invalid", "workflow-runid: given twice, with different values");
  return runId;
}

function readWaiter(event: string, incoming: IncomingRequest): WaitPost {
  const { url, timeout, timeoutUrl = url, timeoutHeaders = {}, step } = readObject(waitSchema, incoming);
  checkUrl("url", url);
  checkUrl("timeoutUrl", timeoutUrl);
  const given = listShownHeaders(incoming.rawHeaders, incoming.proof);
  const timeoutGiven = withoutToken(toHeaderList(timeoutHeaders), incoming.proof);
  const text = typeof timeout === "number" ? `${timeout}s` : timeout;
  // What came of the wait is said by nobody but us.
  const { out: _, ...rest } = step;
  return {
    kind: step.stepType === "WaitForWebhook" ? "webhook" : "event",
    event,
    url,
    given,
    headers: readForwardedHeaders("headers", given),
    timeout: text,
    wait: readTimeout(text),
    timeoutUrl,
    timeoutGiven,
    timeoutHeaders: readForwardedHeaders("timeoutHeaders", timeoutGiven),
    step: rest,
  };
}

function readTimeout(text: string): Millis {
  const wait = parseDuration(text) ?? parseGoDuration(text);
  if (wait !== null) return wait;
  throw new Refusal("invalid", `timeout: ${JSON.stringify(shorten(text))} is not a duration; write it like 30s, 10m, 2h or 7d`);
}

/** Told together in one transaction: so many, and so many bytes of what they are told. */
const portion = 50;
const portionBytes = 16 * 1024 * 1024;

const moreWaiters = "Where more than that wait, the answer has the header Waypost-More, and the same request tells the others.";
const mebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`;

const eventBody = {
  about: "What is told: any bytes.",
  contentType: "*/*",
  schema: z.string(),
  required: false,
  maxBytes: limits.messageBytes,
};

const notifyAll = route({
  method: "POST",
  path: "/v2/notify/{eventId}",
  operation: "step",
  unaudited: "a run goes on with it, which its history tells",
  tag: "Events",
  needs: "publish",
  summary: "Tell all runs of an event",
  about: `Ends the wait of all that waits for the event now, in any run. When nothing does, nobody learns of it. ${limits.waiters} are told by one request, and ${mebibytes(limits.fanOutBytes)} in all. ${moreWaiters}`,
  params: byEvent,
  body: eventBody,
  answers: { 200: { about: "Who was told.", schema: z.array(notifiedSchema) } },
  refusals: ["storage-quota-exceeded"],
  handle: async ({ account, params, incoming, context }) =>
    notifyWaiters(context, account.id, { event: checkSegment("eventId", params.eventId), body: incoming.body, mayRead: mayRead(incoming) }),
});

type EventNotice = { event: string; body: Bytes; mayRead: boolean };

/** Those that began to wait since the first of them was told are left alone, because one that is told may wait again. */
async function notifyWaiters(context: RouteContext, account: AccountId, { event, body, mayRead }: EventNotice): Promise<RouteResponse> {
  const size = Math.max(1, body.byteLength);
  const waiters = await listWaiterIds(context, account, { event, max: Math.min(limits.waiters, Math.ceil(limits.fanOutBytes / size)) });
  const together = Math.max(1, Math.min(portion, Math.floor(portionBytes / size)));
  const texts: string[] = [];
  let bytes = 0;
  let at = 0;
  for (; at < waiters.ids.length && bytes < memory.page; at += together) {
    const waiterIds = waiters.ids.slice(at, at + together);
    const { notified } = await context.store.execute("notify", { account, event, body, waiterIds });
    for (const one of notified)
      bytes += texts[texts.push(JSON.stringify(notifiedJson(one, mayRead ? null : { runId: "" }))) - 1]?.length ?? 0;
  }
  return toListResponse(texts, waiters.more || at < waiters.ids.length);
}

/** Texts of JSON as a list. Parsed again only by whoever asked. */
const toListResponse = (texts: readonly string[], isMore: boolean): RouteResponse => ({
  status: 200,
  body: `[${texts.join(",")}]`,
  headers: { "Content-Type": "application/json; charset=utf-8", ...(isMore ? { "Waypost-More": "true" } : {}) },
});

/** Rows of one read. */
const pageSize = 500;

async function listWaiterIds({ store }: RouteContext, account: AccountId, { event, max }: { event: string; max: number }) {
  const ids: string[] = [];
  for (let after: string | undefined; ;) {
    const limit = Math.min(pageSize, max + 1 - ids.length);
    const waiters = await store.read.listEventWaiters(account, event, { limit, ...(after === undefined ? {} : { after }) });
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
  unaudited: "a run goes on with it, which its history tells",
  tag: "Events",
  needs: "publish",
  summary: "Tell one run of an event",
  about: `Ends the wait of all that waits for the event in the run. When nothing does, the event is kept, and the next that waits for it has it at once. A run that has failed and was resumed is told as the run that goes on with it; where another run has its id by now, the one of them that waits for the event. A run keeps ${limits.notifications} events, and ${mebibytes(limits.notificationBytes)} of them, at most.`,
  params: z.object({ workflowRunId: z.string(), eventId: z.string() }),
  body: eventBody,
  answers: { 200: { about: "Who was told; when the event is kept, one entry without a waiter.", schema: z.array(notifiedSchema) } },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded"],
  handle: async ({ account, params, incoming, context: { store } }) => {
    const { body } = incoming;
    const requestedRunId = checkSegment("workflowRunId", params.workflowRunId);
    const event = checkSegment("eventId", params.eventId);
    const address = { account: account.id, event, kind: "event" } as const;
    const runId = (await findCurrentRunId(store, { ...address, runId: requestedRunId })) ?? requestedRunId;
    const { notified, stored } = await store.execute("notify", { ...address, body, runId });
    const shown = mayRead(incoming) ? null : { runId: requestedRunId };
    return {
      status: 200,
      body: stored ? [{ workflowRunId: shown?.runId ?? runId }] : notified.map((one) => notifiedJson(one, shown)),
    };
  },
});

const waiters = route({
  method: "GET",
  path: "/v2/waiters/{eventId}",
  tag: "Events",
  summary: "List what waits for an event",
  about: `In all runs, ${limits.waiters} and ${mebibytes(memory.page)} at most; where there are more, the answer has the header Waypost-More.`,
  params: byEvent,
  answers: { 200: { about: "What waits.", schema: z.array(waiterSchema) } },
  refusals: [],
  handle: async ({ account, params, context }) => {
    const event = checkSegment("eventId", params.eventId);
    const texts: string[] = [];
    let bytes = 0;
    for (let after: string | undefined; texts.length < limits.waiters && bytes < memory.page;) {
      const found = await context.store.read.listEventWaiters(account.id, event, {
        limit: pageSize,
        ...(after === undefined ? {} : { after }),
      });
      for (const waiter of found) bytes += texts[texts.push(JSON.stringify(waiterJson(waiter))) - 1]?.length ?? 0;
      after = found.at(-1)?.id;
      if (found.length < pageSize) return toListResponse(texts, false);
    }
    return toListResponse(texts, true);
  },
});

export const waits = [wait, notifyAll, notifyRun, waiters];
