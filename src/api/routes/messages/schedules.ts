import { z } from "zod";
import { Refusal } from "../../../core/values/errors.ts";
import { limits, memory } from "../../../core/values/limits.ts";
import type { AccountId } from "../../../core/model/message.ts";
import { isName } from "../../../core/values/name.ts";
import { noSchedule } from "../../../core/commands/schedule.ts";
import type { Store } from "../../../store/store.ts";
import { PagedList } from "../../http/pagedList.ts";
import { readPublishRequest } from "../../publishing/read.ts";
import type { ScheduleState } from "../../views/schedules.ts";
import { scheduleJson, scheduleSchema } from "../../views/schedules.ts";
import { listDestinations, makeHostWarnings } from "../../publishing/refusedHosts.ts";
import { warningHeader } from "../../http/warnings.ts";
import type { IncomingRequest } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";

/** A list tells the states of so many messages in all. */
const maxStates = 1_000;

const tag = "Schedules";
const byId = z.object({ scheduleId: z.string() });
const createdSchema = z.object({
  scheduleId: z.string(),
  deduplicated: z.literal(true).optional().describe("An older schedule is the same as this one; the id is that of the older one."),
});

const create = route({
  method: "POST",
  path: "/v2/schedules/{destination}",
  tag,
  summary: "Make a schedule",
  about:
    "Publishes the body to the destination, with its settings, at the times of Svc-Cron. The endpoints of a URL group are those that it has at each firing; its default headers are those that it has now. Svc-Schedule-Id replaces the schedule of that id as a whole, with a new createdAt; a time that is due and has not fired yet is kept when the expression is the same. A firing that was missed while the server was down is made up for once, late; the next one is at its time again. Deduplication holds for the making of schedules, not for what they publish.",
  settings: "all",
  needs: "publish",
  looksAtScope: true,
  body: { about: "What is delivered. Any bytes.", contentType: "*/*", schema: z.string(), required: false, maxBytes: limits.messageBytes },
  answers: {
    200: { about: "The schedule is there.", schema: createdSchema },
    202: { about: "The same schedule was made before, so nothing was changed.", schema: createdSchema },
  },
  refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "forbidden"],
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
    if (cron === undefined) throw new Refusal("invalid", 'cron: missing; say with Svc-Cron when to publish, as in "0 9 * * 1-5"');
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
    const headers = warningHeader(makeHostWarnings({ incoming, context }, listDestinations(input, endpoints)));
    return { status: deduplicated ? 202 : 200, body: { scheduleId, ...(deduplicated ? { deduplicated } : {}) }, ignored, headers };
  },
});

const list = route({
  method: "GET",
  path: "/v2/schedules",
  tag,
  summary: "List the schedules",
  about: `In the order of their ids. Bodies are left out once there are more than ${memory.page / 1024 / 1024} MiB of them, and states of messages after the first ${maxStates}; a schedule that is read by its id has both.`,
  answers: { 200: { about: "All schedules.", schema: z.array(scheduleSchema) } },
  refusals: [],
  handle: async ({ account, context: { store } }) => ({ status: 200, body: new PagedList(listSchedulePages(store, account.id)) }),
});

const get = route({
  method: "GET",
  path: "/v2/schedules/{scheduleId}",
  tag,
  summary: "Read a schedule",
  params: byId,
  answers: { 200: { about: "The schedule.", schema: scheduleSchema } },
  refusals: ["not-found"],
  handle: async ({ account, params: { scheduleId }, context: { store } }) => {
    const schedule = await store.read.findResource("schedules", account.id, checkScheduleId(scheduleId));
    if (!schedule) throw noSchedule(scheduleId);
    return { status: 200, body: scheduleJson(schedule, await readMessageStates(store, account.id, schedule.lastMessages)) };
  },
});

const remove = route({
  method: "DELETE",
  path: "/v2/schedules/{scheduleId}",
  tag,
  summary: "Delete a schedule",
  about: "What it has published already goes its way.",
  params: byId,
  answers: {
    200: { about: "It is gone.", schema: z.object({ deleted: z.int().describe("0 when there was none.") }) },
  },
  refusals: [],
  handle: async ({ account, params: { scheduleId: id }, context }) => {
    const { deleted } = isName(id) ? await context.store.execute("deleteSchedule", { account: account.id, id }) : { deleted: false };
    return { status: 200, body: { deleted: deleted ? 1 : 0 } };
  },
});

/** Returns the path behind `/v2/schedules/` or `/v2/publish/`, as it came. */
const readDestinationPath = ({ target: { path } }: IncomingRequest): string => path.slice(path.indexOf("/", "/v2/".length) + 1);

type StateChange = { action: "pause" | "resume"; command: "pauseSchedule" | "resumeSchedule"; about: string };

const makeStateRoute = (method: "PATCH" | "POST", { action, command, about }: StateChange) =>
  route({
    method,
    path: `/v2/schedules/{scheduleId}/${action}`,
    tag,
    summary: `${action === "pause" ? "Pause" : "Resume"} a schedule`,
    about,
    params: byId,
    answers: { 200: { about: "Done, or it was so already.", schema: z.object({ scheduleId: z.string(), isPaused: z.boolean() }) } },
    refusals: ["not-found"],
    handle: async ({ account, params: { scheduleId }, context }) => {
      await context.store.execute(command, { account: account.id, id: checkScheduleId(scheduleId) });
      return { status: 200, body: { scheduleId, isPaused: action === "pause" } };
    },
  });

const changes: readonly StateChange[] = [
  { action: "pause", command: "pauseSchedule", about: "Its times are passed over until it is resumed." },
  {
    action: "resume",
    command: "resumeSchedule",
    about: "It fires at the next of its times; those that were passed over are not made up for.",
  },
];

/** What cannot be an id needs no look into the store. */
function checkScheduleId(id: string): string {
  if (!isName(id)) throw noSchedule(id);
  return id;
}

/** Read at once, where their bodies are not too large for that. */
const limit = 500;

/** Totals of the pages so far. */
type PageTotals = { last: string | null; count: number; bodyBytes: number; states: number };

/** All schedules, as they are shown. No row is kept while a page is on its way. */
async function* listSchedulePages(store: Store, account: AccountId): AsyncGenerator<readonly unknown[], void> {
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
  const range = { account, limit, ...(totals.last === null ? {} : { after: totals.last }), ...(isFull ? { bodies: false as const } : {}) };
  const rows = await store.read.listResources("schedules", range);
  const ids = rows.flatMap(({ lastMessages }) => lastMessages).slice(0, maxStates - totals.states);
  const states = await readMessageStates(store, account, ids);
  totals.last = rows.at(-1)?.id ?? totals.last;
  totals.count += rows.length;
  totals.states += ids.length;
  for (const { body } of rows) totals.bodyBytes += body.byteLength;
  return rows.map((schedule) => scheduleJson(schedule, states));
}

/** How the messages stand of which anything is known. */
async function readMessageStates(store: Store, account: AccountId, ids: readonly string[]): Promise<ReadonlyMap<string, ScheduleState>> {
  const states = new Map<string, ScheduleState>();
  if (ids.length === 0) return states;
  const { messageIds } = await store.read.unfinished({ account, filter: { messageIds: ids }, cursor: null, count: ids.length });
  for (const id of messageIds) states.set(id, "IN_PROGRESS");
  const finished = ids.filter((id) => !states.has(id));
  for (let at = 0; at < finished.length; at += 50) {
    for (const [id, state] of await readOutcomes(store, account, finished.slice(at, at + 50))) states.set(id, state);
  }
  return states;
}

async function readOutcomes(store: Store, account: AccountId, ids: readonly string[]): Promise<[id: string, state: ScheduleState][]> {
  const outcomes: [string, ScheduleState][] = [];
  let cursor: string | null = null;
  do {
    const filter = { messageIds: ids, states: ["DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELLED"] } as const;
    const page: Awaited<ReturnType<Store["read"]["log"]>> = await store.read.log({
      account,
      filter,
      order: "earliestFirst",
      cursor,
      count: 50,
    });
    for (const { message, state } of page.events) outcomes.push([message.id, state === "DELIVERED" ? "SUCCESS" : "FAIL"]);
    ({ cursor } = page);
  } while (cursor !== null);
  return outcomes;
}

export const schedules = [
  create,
  list,
  get,
  remove,
  ...changes.flatMap((change) => [makeStateRoute("PATCH", change), makeStateRoute("POST", change)]),
];
