import { z } from "zod";
import type { Account } from "../../../core/model/message.ts";
import { cursorParameter, toFilter, logFilters, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { eventJson } from "../../views/messages.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { logEventSchema } from "../../views/schemas.ts";

const makeQuerySchema = (defaultCount: number) =>
  logFilters.extend({
    order: orderParameter("latestFirst"),
    count: count({ max: 1_000, defaultCount }),
    cursor: cursorParameter,
  });

const query = makeQuerySchema(100);

const cursor = z
  .string()
  .optional()
  .describe("Cursor of the next page, for the parameter `cursor`. Absent on the last page.");
const about =
  "Returns what happened to messages, with one entry for each change of state. " +
  "Bodies are in base64 and cut to 16 KiB.";
const entries = z.array(logEventSchema).describe("Log entries, in the requested order.");

const events = route({
  method: "GET",
  path: "/v2/events",
  tag: "Log",
  summary: "Read the log",
  about,
  query: makeQuerySchema(1_000),
  answers: {
    200: { about: "A page of the log.", schema: z.object({ events: entries, cursor }) },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { events, cursor } = await readPage(context, account, query);
    return { status: 200, body: { events, ...cursor } };
  },
});

const logs = route({
  method: "GET",
  path: "/v2/logs",
  tag: "Log",
  summary: "Read the log (other name)",
  about:
    `${about} The response has the list under two names, \`logs\` and \`events\`, because clients use ` +
    "either.",
  query,
  answers: {
    200: {
      about: "A page of the log.",
      schema: z.object({ logs: entries, events: entries, cursor }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { events, cursor } = await readPage(context, account, query);
    return { status: 200, body: { logs: events, events, ...cursor } };
  },
});

async function readPage({ store }: RouteContext, account: Account, asked: z.output<typeof query>) {
  const { order, count, cursor = null } = asked;
  const page = await store.read.log({ account: account.id, filter: toFilter(asked), order, cursor, count });
  return { events: page.events.map(eventJson), cursor: page.cursor === null ? {} : { cursor: page.cursor } };
}

/** The routes of the log of messages. */
export const log = [events, logs];
