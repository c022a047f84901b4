import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits, memory } from "../../../engine/core/values/limits.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import { isName } from "../../../engine/core/values/name.ts";
import { noSchedule } from "../../../engine/core/sending/scheduleChecks.ts";
import type { Store } from "../../../engine/store/store.ts";
import { PagedList } from "../../http/pagedList.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import { scheduleJson, scheduleSchema, scheduleWithTimesJson } from "../../views/schedules.ts";
import {
  listDestinations,
  makeHostWarnings,
  showWarnings,
  warningsField,
} from "../../publishing/refusedHosts.ts";
import type { IncomingRequest } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { mayRead, readScope } from "../../route/scope.ts";
import { changeSchedule } from "./scheduleChange.ts";
import { readMessageStates } from "./scheduleStates.ts";

/** The maximum number of messages whose states one list contains. */
const maxStates = 1_000;

const tag = "Schedules";
const byId = z.object({ scheduleId: z.string() });
const scheduleId = z.string().describe("Id of the schedule.");
const createdSchema = z.object({
  scheduleId,
  deduplicated: z
    .literal(true)
    .optional()
    .describe(
      "Present if the schedule is a duplicate of an earlier one. The id is that of the earlier schedule.",
    ),
  ...warningsField,
});

const create = route({
  method: "POST",
  path: "/v2/schedules/{destination}",
  tag,
  summary: "Create a schedule",
  about:
    "Publishes the body to the destination, with the settings of this request, at the times of Svc-Cron. " +
    "For a URL group, each firing uses the endpoints at that time, and the default headers at the time of " +
    "this request. Svc-Schedule-Id replaces the whole schedule with that id and sets a new createdAt. " +
    "If the cron expression does not change, a firing that is due but has not happened yet is kept. " +
    "If firings were missed while the server was down, the schedule fires once, late, and then at its next " +
    "time. Deduplication applies to the creation of schedules, not to the messages that they publish.",
  settings: "all",
  needs: "publish",
  looksAtScope: true,
  body: {
    about: "Body to deliver: any bytes.",
    contentType: "*/*",
    schema: z.string(),
    required: false,
    maxBytes: { messages: 1 },
  },
  answers: {
    200: { about: "The schedule was created or replaced.", schema: createdSchema },
    202: { about: "The schedule is a duplicate, so nothing was changed.", schema: createdSchema },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
  handle: async ({ account: owner, incoming, context }) => {
    const { store } = context;
    const { id: account } = owner;
    const destination = readDestinationPath(incoming);
    const { input, settings, ignored, group } = await readPublishRequest(incoming, {
      destination,
      account,
      store,
      brand: context.brand,
      purpose: "schedules",
    });
    const { cron, "schedule-id": id = null } = settings.values;
    if (cron === undefined)
      throw new Refusal("invalid", 'cron: missing; give Svc-Cron, for example "0 9 * * 1-5"');
    const { body, ...rest } = input;
    const { scheduleId, deduplicated } = await store.execute("createSchedule", {
      account,
      id,
      cron,
      messageInput: rest,
      body,
      ...readScope(incoming),
    });
    const endpoints = group?.endpoints.map(({ url }) => url) ?? [];
    const destinations = listDestinations(input, endpoints);
    const { field, headers } = showWarnings(makeHostWarnings({ incoming, context }, destinations));
    return {
      status: deduplicated ? 202 : 200,
      body: { scheduleId, ...(deduplicated ? { deduplicated } : {}), ...field },
      ignored,
      headers,
    };
  },
});

const list = route({
  method: "GET",
  path: "/v2/schedules",
  tag,
  summary: "List the schedules",
  about:
    "Returns all schedules, in the order of their ids. " +
    `Bodies are left out after the first ${memory.page / 1024 / 1024} MiB, ` +
    `and states of messages after the first ${maxStates}. A schedule that is read by its id has both.`,
  answers: { 200: { about: "All schedules.", schema: z.array(scheduleSchema) } },
  refusals: [],
  handle: async ({ account, context: { store } }) => ({
    status: 200,
    body: new PagedList(listSchedulePages(store, account.id)),
  }),
});

const get = route({
  method: "GET",
  path: "/v2/schedules/{scheduleId}",
  tag,
  summary: "Read a schedule",
  params: byId,
  answers: { 200: { about: "The schedule.", schema: scheduleSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { scheduleId }, context: { store, now } }) => {
    const schedule = await store.read.findResource("schedules", account.id, parseScheduleId(scheduleId));
    if (!schedule) throw noSchedule(scheduleId);
    return {
      status: 200,
      body: scheduleWithTimesJson(
        schedule,
        await readMessageStates(store, account.id, schedule.lastMessages),
        now(),
      ),
    };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/schedules/{scheduleId}",
  tag,
  summary: "Delete a schedule",
  about: "Messages that it has already published are still delivered.",
  params: byId,
  answers: {
    200: {
      about: "The schedule no longer exists.",
      schema: z.object({
        deleted: z.int().describe("1 if the schedule was deleted, 0 if it did not exist."),
      }),
    },
  },
  refusals: [],
  handle: async ({ account, params: { scheduleId: id }, context }) => {
    const { deleted } = isName(id)
      ? await context.store.execute("deleteSchedule", { account: account.id, id })
      : { deleted: false };
    return { status: 200, body: { deleted: deleted ? 1 : 0 } };
  },
});

/** Returns the rest of the path after `/v2/schedules/` or `/v2/publish/`, as received. */
const readDestinationPath = ({ target: { path } }: IncomingRequest): string =>
  path.slice(path.indexOf("/", "/v2/".length) + 1);

type StateChange = { action: "pause" | "resume"; command: "pauseSchedule" | "resumeSchedule"; about: string };

const makeStateRoute = (method: "PATCH" | "POST", { action, command, about }: StateChange) =>
  route({
    method,
    path: `/v2/schedules/{scheduleId}/${action}`,
    tag,
    summary: `${action === "pause" ? "Pause" : "Resume"} a schedule`,
    about,
    params: byId,
    answers: {
      200: {
        about: `The schedule is ${action === "pause" ? "paused" : "active"}, whether or not it was before.`,
        schema: z.object({
          scheduleId,
          isPaused: z.boolean().describe("Whether the schedule is paused, so that it does not fire."),
        }),
      },
    },
    refusals: ["not-found"],
    handle: async ({ account, params: { scheduleId }, context }) => {
      await context.store.execute(command, { account: account.id, id: parseScheduleId(scheduleId) });
      return { status: 200, body: { scheduleId, isPaused: action === "pause" } };
    },
  });

const run = route({
  method: "POST",
  path: "/v2/schedules/{scheduleId}/run",
  tag,
  summary: "Run a schedule now",
  about:
    "Publishes the messages of the schedule now, with the same settings as at its times. Its next time, " +
    "its last firing and its pause do not change: a paused schedule runs once and stays paused.",
  params: byId,
  answers: {
    200: {
      about: "The messages were published.",
      schema: z.object({
        scheduleId,
        messages: z
          .array(
            z.object({
              messageId: z.string().describe("The id of the message."),
              url: z
                .string()
                .optional()
                .describe("The URL that it is sent to. Absent if the token may not read."),
            }),
          )
          .describe("The messages: one, or one for each endpoint of the URL group."),
      }),
    },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low"],
  handle: async ({ account, params: { scheduleId: id }, context, incoming }) => {
    const { scheduleId, messages } = await context.store.execute("runSchedule", {
      account: account.id,
      id: parseScheduleId(id),
    });
    const shown = mayRead(incoming) ? messages : messages.map(({ messageId }) => ({ messageId }));
    return { status: 200, body: { scheduleId, messages: shown } };
  },
});

const changes: readonly StateChange[] = [
  { action: "pause", command: "pauseSchedule", about: "The schedule does not fire until it is resumed." },
  {
    action: "resume",
    command: "resumeSchedule",
    about: "The schedule fires again at its next time. Times that passed while it was paused are skipped.",
  },
];

/** Returns a valid id. If a string cannot be an id, throws the same `Refusal` as for an unknown schedule. */
function parseScheduleId(id: string): string {
  if (!isName(id)) throw noSchedule(id);
  return id;
}

/**
 * The maximum number of schedules that are read at once. The store returns fewer if their bodies are large.
 */
const limit = 500;

/** The last id and the totals of the pages so far. */
type PageTotals = { last: string | null; count: number; bodyBytes: number; states: number };

/**
 * Returns the pages of all schedules, as the API shows them. No row is kept in memory while a page is being
 * sent.
 */
async function* listSchedulePages(
  store: Store,
  account: AccountId,
): AsyncGenerator<readonly unknown[], void> {
  const totals: PageTotals = { last: null, count: 0, bodyBytes: 0, states: 0 };
  for (;;) {
    const before = totals.count;
    const page = await readPageAfter(store, account, totals);
    if (totals.count === before) return;
    yield page;
    if (totals.count >= limits.schedules) return;
  }
}

async function readPageAfter(store: Store, account: AccountId, totals: PageTotals): Promise<unknown[]> {
  const isFull = totals.bodyBytes >= memory.page;
  const range = {
    account,
    limit,
    ...(totals.last === null ? {} : { after: totals.last }),
    ...(isFull ? { bodies: false as const } : {}),
  };
  const rows = await store.read.listResources("schedules", range);
  const ids = rows.flatMap(({ lastMessages }) => lastMessages).slice(0, maxStates - totals.states);
  const states = await readMessageStates(store, account, ids);
  totals.last = rows.at(-1)?.id ?? totals.last;
  totals.count += rows.length;
  totals.states += ids.length;
  for (const { body } of rows) totals.bodyBytes += body.byteLength;
  return rows.map((schedule) => scheduleJson(schedule, states));
}

/** The routes of schedules. */
export const schedules = [
  create,
  list,
  get,
  changeSchedule,
  remove,
  run,
  ...changes.flatMap((change) => [makeStateRoute("PATCH", change), makeStateRoute("POST", change)]),
];
