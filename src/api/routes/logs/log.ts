import { z } from "zod";
import type { Account } from "../../../engine/core/model/account.ts";
import { cursorParameter, toFilter, logFilters, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { toJson } from "../../fields/field.ts";
import { eventFields } from "../../fields/logEvent.ts";
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

const tailLine = z.union([
  logEventSchema,
  z.object({
    heartbeat: z.int().describe("All entries up to this time were sent, in Unix milliseconds."),
  }),
  z.object({
    dropped: z
      .int()
      .nullable()
      .describe("The number of entries that were left out. Null if the server fell behind and skipped them."),
    fromDate: z.int().describe("The time of the first entry that was left out, in Unix milliseconds."),
    toDate: z.int().describe("The time of the last entry that was left out, in Unix milliseconds."),
  }),
  z.object({
    ended: z.string().describe("Why the stream ends. No line follows."),
    code: z.string().describe("The code of the error that ends the stream."),
  }),
]);

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

const tail = route({
  method: "GET",
  path: "/v2/logs/tail",
  tag: "Log",
  summary: "Follow the log",
  about:
    "Returns the entries that are written from now on, one JSON object per line, about 2 seconds after " +
    "they were written. The response has no end. The first line, and a line after 15 seconds without " +
    "entries, has `heartbeat`. If the client reads too slowly, entries are left out, and a line has " +
    "`dropped`. If the token is revoked or expires, its session ends, the account is disabled or the " +
    "server stops, the last line has `ended`. An account may have 10 open tails on a server.",
  query: logFilters.omit({ fromDate: true, toDate: true }),
  streams: true,
  answers: {
    200: { about: "The lines.", contentType: "application/x-ndjson", schema: tailLine },
  },
  refusals: ["busy"],
  handle: async ({ account, query, context }) => ({
    status: 200,
    body: await context.logTails.open(account.id, toFilter(query)),
    headers: {
      "Content-Type": "application/x-ndjson; charset=utf-8",
      "Cache-Control": "no-store",
      // Without this, a proxy such as nginx would collect the lines.
      "X-Accel-Buffering": "no",
    },
  }),
});

async function readPage({ store }: RouteContext, account: Account, logQuery: z.output<typeof query>) {
  const { order, count, cursor = null } = logQuery;
  const page = await store.read.log({
    account: account.id,
    filter: toFilter(logQuery),
    order,
    cursor,
    count,
  });
  return {
    events: page.events.map((event) => toJson(eventFields, event)),
    cursor: page.cursor === null ? {} : { cursor: page.cursor },
  };
}

/** The routes of the log of messages. */
export const log = [events, logs, tail];
