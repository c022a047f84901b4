import { z } from "zod";
import { count } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { parseSegment } from "../../settings/segment.ts";
import { omitMissing, toJson } from "../../fields/field.ts";
import { waitedEventFields } from "../../fields/waitedEvent.ts";
import { toSchema } from "../../views/fieldSchema.ts";
import { cursorParameter } from "../lists/filters.ts";
import { nextPage } from "./failedRunEntries.ts";

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
        events: z.array(toSchema(waitedEventFields)).describe("The events, in the order of their ids."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query: { count, cursor }, context: { store } }) => {
    const after = cursor === undefined ? "" : parseSegment("cursor", cursor);
    const page = await store.read.listWaitedEvents({ account: account.id, after, count });
    return {
      status: 200,
      body: omitMissing({
        events: page.events.map((event) => toJson(waitedEventFields, event)),
        cursor: page.cursor,
      }),
    };
  },
});
