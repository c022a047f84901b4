import { z } from "zod";
import type { Account } from "../../../core/model/message.ts";
import { cursorParameter, toFilter, logFilters, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { eventJson } from "../../views/messages.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { logEventSchema } from "../../views/schemas.ts";

const makeQuerySchema = (defaultCount: number) =>
  logFilters.extend({ order: orderParameter("latestFirst"), count: count({ max: 1_000, defaultCount }), cursor: cursorParameter });

const query = makeQuerySchema(100);

const cursor = z.string().optional().describe("Where the next page begins. Absent at the end.");
const about = "What happened to messages, one entry for each change of state. Bodies are in base64, and cut to 16 KiB.";

const events = route({
  method: "GET",
  path: "/v2/events",
  tag: "Log",
  summary: "Read the log",
  about,
  query: makeQuerySchema(1_000),
  answers: { 200: { about: "A page of the log.", schema: z.object({ events: z.array(logEventSchema), cursor }) } },
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
  summary: "Read the log, under its other name",
  about: `${about} The list is there under two names, because clients know it by either.`,
  query,
  answers: {
    200: { about: "A page of the log.", schema: z.object({ logs: z.array(logEventSchema), events: z.array(logEventSchema), cursor }) },
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

export const log = [events, logs];
