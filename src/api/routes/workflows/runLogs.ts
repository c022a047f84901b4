import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { memory } from "../../../engine/core/values/limits.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { RunState } from "../../../engine/core/model/run.ts";
import { hasAnyState } from "../../../engine/core/workflows/log/log.ts";
import type { KnownRun } from "../../../engine/core/workflows/log/view.ts";
import type { RunEvent } from "../../../engine/core/workflows/log/events.ts";
import { listRunEvents } from "../../../engine/core/workflows/log/events.ts";
import { choice, count, singleText } from "../../http/parameters.ts";
import { runEventJson, runJson } from "../../views/runs.ts";
import type { RouteContext } from "../../route/route.ts";
import { makePageWarning, route, withWarnings } from "../../route/route.ts";
import { runStates } from "../../fields/run.ts";
import { eventStates, runSchema, runEventSchema, stepStates } from "../../views/runSchemas.ts";
import type { RunFilterParameters } from "./runFilters.ts";
import { makeStateParameter, runFilters, toMessageFilter, toRunFilter } from "./runFilters.ts";

const maxRuns = 10;
const maxEvents = 1_000;

/** The size to which bodies are cut. */
const trimBody = singleText()
  .pipe(
    z
      .string()
      .regex(/^(-1|\d{1,9})$/, "is neither a number of bytes nor -1")
      .transform(Number),
  )
  .optional()
  .describe(
    "The size in bytes to which each body is cut. -1 omits bodies. Without it, bodies are shown in full.",
  );

const groupedFields = {
  ...runFilters,
  trimBody,
  state: makeStateParameter([...runStates, ...stepStates]).describe(
    "The state of the run, or of any of its steps. Several values match any of them.",
  ),
  count: count({ max: maxRuns, defaultCount: maxRuns, about: "A page has fewer if bodies are large." }),
};

const flatState = makeStateParameter([...eventStates, ...stepStates]).describe(
  "The kind of event, or the state of the step that it belongs to. Several values match any of them.",
);
const flatFields = {
  ...runFilters,
  trimBody,
  state: flatState,
  count: count({ max: maxEvents, defaultCount: maxEvents, about: "A page has fewer if bodies are large." }),
};

const byRun = choice(["workflowRunId"]).optional();

const runList = z.array(runSchema).describe("The runs, newest first.");
const eventList = z.array(runEventSchema).describe("The events, grouped by run, the newest run first.");
const cursor = z
  .string()
  .optional()
  .describe("The cursor to pass for the next page. Absent on the last page.");
const aboutRuns =
  "Returns runs with the log of their steps, newest first. Bodies that the run hides (redact-fields) " +
  "appear as REDACTED and a hash. Active runs are always shown. Runs that have ended are shown until the " +
  "log retention ends, and failed runs also as long as they can be resumed.";
const aboutEvents =
  "Returns the events of runs, grouped by run. The newest run comes first, with its events from the " +
  "oldest to the newest.";

const logs = route({
  method: "GET",
  path: "/v2/workflows/logs",
  tag: "Workflow runs",
  summary: "Read the logs of runs",
  about: aboutRuns,
  query: z.object({
    ...groupedFields,
    groupBy: byRun.describe("Has no effect: this list always shows runs."),
  }),
  answers: { 200: { about: "A page of runs.", schema: z.object({ runs: runList, cursor }) } },
  refusals: [],
  handle: async ({ account, query, context }) => ({
    status: 200,
    body: await readRunPage(context, account, query),
  }),
});

const messageLogs = route({
  method: "GET",
  path: "/v2/workflows/messageLogs",
  tag: "Workflow runs",
  summary: "Read the events of runs",
  about: aboutEvents,
  query: z.object(flatFields),
  answers: {
    200: { about: "A page of events.", schema: z.object({ events: eventList, cursor }) },
  },
  refusals: [],
  handle: async ({ account, query, context }) => ({
    status: 200,
    body: await readEventPage(context, account, query),
  }),
});

const events = route({
  method: "GET",
  path: "/v2/workflows/events",
  tag: "Workflow runs",
  summary: "Read the logs or the events of runs",
  about: `With groupBy=workflowRunId, returns the same as /v2/workflows/logs. Without it: ${aboutEvents}`,
  query: z.object({
    ...flatFields,
    groupBy: byRun.describe("Lists runs instead of events."),
    count: singleText()
      .optional()
      .describe(
        `The page size: up to ${maxRuns} runs with groupBy, or up to ${maxEvents} events without it.`,
      ),
  }),
  answers: {
    200: {
      about: "A page of runs or of events.",
      schema: z.union([z.object({ runs: runList, cursor }), z.object({ events: eventList, cursor })]),
    },
  },
  refusals: [],
  handle: async ({ account, query: { groupBy, ...logQuery }, context }) => {
    const max = groupBy ? maxRuns : maxEvents;
    const counted = { ...logQuery, count: readCount(logQuery.count, max) };
    const body = groupBy
      ? await readRunPage(context, account, counted)
      : await readEventPage(context, account, counted);
    return withWarnings(
      { status: 200, body },
      Number(logQuery.count) > max ? [makePageWarning(Number(logQuery.count), max)] : [],
    );
  },
});

/**
 * Returns the page size for a list of runs or of events. Throws `Refusal` if `countText` is not a positive
 * number.
 */
function readCount(countText: string | undefined, max: number): number {
  if (countText === undefined) return max;
  if (!/^\d{1,15}$/.test(countText)) throw new Refusal("invalid", "count: is not a whole number");
  const requested = Number(countText);
  if (requested < 1) throw new Refusal("invalid", "count: must be at least 1");
  return Math.min(requested, max);
}

/**
 * Returns the given states if all of them are states of runs. Returns null if some are states of steps,
 * because the store has no index for those. Throws `Refusal` for an unknown state.
 */
function toRunStates(states: readonly string[]): RunState[] | null {
  const possible: readonly string[] = [...runStates, ...stepStates];
  if (!states.every((state) => possible.includes(state)))
    throw new Refusal("invalid", `state: must be one of ${possible.join(", ")}`);
  const ofRuns = runStates.filter((state) => states.includes(state));
  return states.every((state) => ofRuns.some((one) => one === state)) ? ofRuns : null;
}

type LogQuery = RunFilterParameters & {
  count: number;
  trimBody?: number | undefined;
  state?: readonly string[] | undefined;
};

async function readRunPage(
  { store, now }: RouteContext,
  { id: account }: Account,
  logQuery: LogQuery,
): Promise<Record<string, unknown>> {
  const wantedStates = logQuery.workflowRuns ? null : (logQuery.state ?? null);
  const states = wantedStates && toRunStates(wantedStates);
  const filter = { ...toRunFilter(logQuery), ...(states ? { states } : {}) };
  const shown = { now: now(), trim: logQuery.trimBody ?? null };
  const isWanted = (known: KnownRun): boolean =>
    wantedStates === null || states !== null || hasAnyState(new Set(wantedStates), known, shown.now);
  const runs: Record<string, unknown>[] = [];
  let { before } = parseCursor(logQuery.cursor);
  let byteLimit: number = memory.page;
  for (let examined = 0; examined < maxExaminedRuns; examined += maxRuns) {
    const count = logQuery.count - runs.length;
    const page = await store.read.runLog({
      account,
      filter,
      cursor: before,
      count,
      byteLimit,
      ...toMessageFilter(logQuery),
    });
    for (const known of page.runs) if (isWanted(known)) runs.push(runJson(known, shown));
    before = page.cursor;
    byteLimit -= page.bytes;
    // If every run of the page passed the filter, the page is short only because its bodies are large.
    if (
      before === null ||
      runs.length === logQuery.count ||
      runs.length === page.runs.length ||
      byteLimit < memory.page / 2
    )
      break;
  }
  return { runs, ...(before === null ? {} : { cursor: before }) };
}

/**
 * The maximum number of runs that one request examines. If few of them pass the filter, the response has a
 * short page and a cursor with which to continue.
 */
const maxExaminedRuns = 200;

async function readEventPage(
  { store, now }: RouteContext,
  { id: account }: Account,
  logQuery: LogQuery,
): Promise<Record<string, unknown>> {
  const position = parseCursor(logQuery.cursor);
  const passes = createEventFilter(logQuery);
  const shown: Record<string, unknown>[] = [];
  const toPage = (cursor: string | null): Record<string, unknown> => ({
    events: shown,
    ...(cursor === null ? {} : { cursor }),
  });
  let { before, skip } = position;
  let byteLimit: number = memory.page;
  for (let examined = 0; examined < maxExaminedRuns; examined += maxRuns) {
    const page = await store.read.runLog({
      account,
      filter: toRunFilter(logQuery),
      cursor: before,
      count: maxRuns,
      byteLimit,
      ...toMessageFilter(logQuery),
    });
    for (const known of page.runs) {
      // Only a part of this run fits behind the events already on the page. All of it fits on the next page.
      if (known.cut.size > 0 && shown.length > 0) return toPage(before);
      const all = listRunEvents(known, now());
      for (const [index, event] of all.entries()) {
        if (index < skip || !passes(event)) continue;
        if (shown.length === logQuery.count) return toPage(`${known.run.id}:${index}`);
        shown.push(runEventJson({ ...event, known }, logQuery.trimBody ?? null));
      }
      before = known.run.id;
      skip = 0;
    }
    byteLimit -= page.bytes;
    before = page.cursor;
    if (before === null || shown.length === logQuery.count || byteLimit < memory.page / 2) break;
  }
  return toPage(before);
}

function createEventFilter({ state, messageId }: LogQuery): (event: RunEvent) => boolean {
  const states: ReadonlySet<string> | null = state ? new Set(state) : null;
  return (event) =>
    (messageId === undefined || event.messageId === messageId) &&
    (states === null || states.has(event.state) || (event.item !== null && states.has(event.item.state)));
}

/**
 * Returns where a page begins: after a run, or within a run after `skip` of the run's events. Throws
 * `Refusal`.
 */
function parseCursor(cursorText: string | undefined): { before: string | null; skip: number } {
  if (cursorText === undefined) return { before: null, skip: 0 };
  const [, key, skip] = /^(run_[1-9A-Za-z]{20})(?::(\d{1,7}))?$/.exec(cursorText) ?? [];
  if (key === undefined) throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  // The character ~ sorts after all characters of ids, so the page includes the run itself.
  return skip === undefined ? { before: key, skip: 0 } : { before: `${key}~`, skip: Number(skip) };
}

/** The routes that read the logs of runs. */
export const runLogs = [logs, events, messageLogs];
