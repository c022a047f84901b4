import { z } from "zod";
import type { Waiter } from "../../../engine/core/model/run.ts";
import type { WaitedEvent } from "../../../engine/store/queries/waitedEvents.ts";
import { maxCountedWaiters } from "../../../engine/store/queries/waitedEvents.ts";
import { count } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { checkSegment } from "../../settings/segment.ts";
import { omitMissing } from "../../views/messages.ts";
import { cursorParameter } from "../lists/filters.ts";
import { nextPage } from "./failedRunEntries.ts";

const waitedEventSchema = z.object({
  eventId: z.string().describe("The id of the event."),
  waiting: z.int().min(0).describe(`The number of steps that wait, counted up to ${maxCountedWaiters}.`),
  more: z.literal(true).optional().describe("Present if more steps wait than `waiting` says."),
  oldestRun: z
    .object({
      workflowRunId: z.string().describe("The id of the run."),
      kind: z
        .enum(["event", "webhook"])
        .describe("event: its step waits for a notification. webhook: for a call to its webhook."),
      since: z.int().describe("When its step began to wait, in Unix milliseconds."),
      timeoutAt: z.int().optional().describe("When its wait times out, in Unix milliseconds."),
    })
    .optional()
    .describe("The oldest run that waits. Absent if its wait has just ended."),
});

const oldestRunJson = ({ runId, kind, createdAt, dueAt }: Waiter): Record<string, unknown> =>
  omitMissing({ workflowRunId: runId, kind, since: createdAt, timeoutAt: dueAt });

const waitedEventJson = (event: WaitedEvent): Record<string, unknown> =>
  omitMissing({
    eventId: event.event,
    waiting: event.count,
    more: event.more ? true : null,
    oldestRun: event.oldest && oldestRunJson(event.oldest),
  });

/** The route that lists the events that runs wait for. */
export const waitedEvents = route({
  method: "GET",
  path: "/v2/waiters",
  tag: "Events",
  summary: "List the events that runs wait for",
  about:
    "Lists the events that steps of active runs wait for, in the order of their ids, with the number of " +
    "waiting steps. GET /v2/waiters/{eventId} lists the steps that wait for one event.",
  query: z.object({ count: count({ max: 100, defaultCount: 100 }), cursor: cursorParameter }),
  answers: {
    200: {
      about: "A page of events.",
      schema: z.object({
        events: z.array(waitedEventSchema).describe("The events, in the order of their ids."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query: { count, cursor }, context: { store } }) => {
    const after = cursor === undefined ? "" : checkSegment("cursor", cursor);
    const page = await store.read.listWaitedEvents({ account: account.id, after, count });
    return {
      status: 200,
      body: omitMissing({ events: page.events.map(waitedEventJson), cursor: page.cursor }),
    };
  },
});
