import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { memory } from "../../../core/values/limits.ts";
import type { Account } from "../../../core/model/message.ts";
import type { RunState } from "../../../core/model/run.ts";
import type { RunFilter } from "../../../core/search/runFilter.ts";
import { isIn } from "../../../core/workflows/log/log.ts";
import type { KnownRun } from "../../../core/workflows/log/view.ts";
import type { RunEvent } from "../../../core/workflows/log/events.ts";
import { eventsOf } from "../../../core/workflows/log/events.ts";
import { cursorParameter } from "../lists/filters.ts";
import { choice, count, moment, one, several } from "../../http/parameters.ts";
import { runEventJson, runJson } from "../../views/runs.ts";
import type { Parts } from "../../route/route.ts";
import { pageWarning, route, withWarnings } from "../../route/route.ts";
import { eventStates, run, runEvent, runStates, stepStates } from "../../views/runShapes.ts";
import { checkSegment } from "../../settings/segment.ts";

const [mostRuns, mostEvents] = [10, 1_000];

const stateOf = (states: readonly string[]) =>
  several()
    .pipe(z.array(z.enum(states, { error: `is none of ${states.join(", ")}` })))
    .optional();

const filters = {
  cursor: cursorParameter,
  workflowRunId: one().optional().describe("The id of the run. Several runs may have had it, one after another."),
  workflowUrl: several("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: moment().optional().describe("The moment the run was created, in unix milliseconds."),
  workflowRuns: several().optional().describe("These runs: id@createdAt, id@createdAt, … Other filters do not count then."),
  messageId: one().optional().describe("The run that this message belongs to; without groupBy, what happened to the message."),
  host: several().optional().describe("The host of the URL of the workflow."),
  path: several("/").optional().describe("The path of that URL."),
  label: several().optional().describe("One of its labels."),
  flowControlKey: several().optional().describe("Its flow control key."),
  callerIp: several().optional().describe("The IP address of whoever triggered it."),
  callerIP: several().optional().describe("Another spelling of callerIp."),
  fromDate: moment().optional().describe("Not created before this moment, in unix milliseconds, inclusive."),
  toDate: moment().optional().describe("Not created after this moment, in unix milliseconds, inclusive."),
  trimBody: one()
    .pipe(
      z
        .string()
        .regex(/^(-1|\d{1,9})$/, "is neither a number of bytes nor -1")
        .transform(Number),
    )
    .optional()
    .describe("Bodies are cut to so many bytes; with -1 they are left out. Otherwise they are shown as a whole."),
};

const grouped = {
  ...filters,
  state: stateOf([...runStates, ...stepStates]).describe("The state of the run, or of any of its steps."),
  count: count({ most: mostRuns, normally: mostRuns, about: "Pages with large bodies are shorter." }),
};

const flatState = stateOf([...eventStates, ...stepStates]).describe("What happened, or the state of the step that it happened to.");
const flat = {
  ...filters,
  state: flatState,
  count: count({ most: mostEvents, normally: mostEvents, about: "Pages with large bodies are shorter." }),
};

const byRun = choice(["workflowRunId"]).optional();

const cursor = z.string().optional().describe("Where the next page begins. Absent at the end.");
const aboutRuns =
  "Runs, newest first, with what their steps have done. Bodies that the run is to hide (redact-fields) show as REDACTED and a hash. A run is shown as long as it is kept: one that has ended for as long as the log, a failed one for as long as it can be resumed.";
const aboutEvents =
  "Without groupBy: what has happened in runs, run by run. The newest run comes first, with all its events from the oldest to the newest; then the one before it.";

const logs = route({
  method: "GET",
  path: "/v2/workflows/logs",
  tag: "Workflow runs",
  summary: "Read the logs of runs",
  about: aboutRuns,
  query: z.object({ ...grouped, groupBy: byRun.describe("Optional: this list shows runs with and without it.") }),
  answers: { 200: { about: "A page of runs.", schema: z.object({ runs: z.array(run), cursor }) } },
  refusals: [],
  handle: async ({ account, query, parts }) => ({ status: 200, body: await runPage(parts, account, query) }),
});

const messageLogs = route({
  method: "GET",
  path: "/v2/workflows/messageLogs",
  tag: "Workflow runs",
  summary: "Read what happened in runs",
  about: aboutEvents.replace("Without groupBy: what", "What"),
  query: z.object(flat),
  answers: { 200: { about: "A page of events.", schema: z.object({ events: z.array(runEvent), cursor }) } },
  refusals: [],
  handle: async ({ account, query, parts }) => ({ status: 200, body: await eventPage(parts, account, query) }),
});

const events = route({
  method: "GET",
  path: "/v2/workflows/events",
  tag: "Workflow runs",
  summary: "Read the logs of runs, or what happened in them",
  about: `With groupBy=workflowRunId the same as /v2/workflows/logs. ${aboutEvents}`,
  query: z.object({
    ...flat,
    groupBy: byRun.describe("Runs instead of single events."),
    count: one().optional().describe(`At most so many: with groupBy up to ${mostRuns} runs, without it up to ${mostEvents} events.`),
  }),
  answers: {
    200: {
      about: "A page of runs, or of events.",
      schema: z.union([z.object({ runs: z.array(run), cursor }), z.object({ events: z.array(runEvent), cursor })]),
    },
  },
  refusals: [],
  handle: async ({ account, query: { groupBy, ...asked }, parts }) => {
    const most = groupBy ? mostRuns : mostEvents;
    const counted = { ...asked, count: countOf(asked.count, most) };
    const body = groupBy ? await runPage(parts, account, counted) : await eventPage(parts, account, counted);
    return withWarnings({ status: 200, body }, Number(asked.count) > most ? [pageWarning(Number(asked.count), most)] : []);
  },
});

/** Of a page that is either. Throws `Refusal`. */
function countOf(written: string | undefined, most: number): number {
  if (written === undefined) return most;
  if (!/^\d{1,15}$/.test(written)) throw new Refusal("invalid", "count: is not a whole number");
  const asked = Number(written);
  if (asked < 1) throw new Refusal("invalid", "count: must be at least 1");
  return Math.min(asked, most);
}

/** The states of runs among those that are asked for. Null: there are others, of steps, by which no list is kept. Throws `Refusal`. */
function runStatesOf(states: readonly string[]): RunState[] | null {
  const possible: readonly string[] = [...runStates, ...stepStates];
  if (!states.every((state) => possible.includes(state))) throw new Refusal("invalid", `state: is none of ${possible.join(", ")}`);
  const ofRuns = runStates.filter((state) => states.includes(state));
  return states.every((state) => ofRuns.some((one) => one === state)) ? ofRuns : null;
}

type Filters = Partial<z.output<z.ZodObject<typeof filters>>>;
type Asked = Filters & { count: number; state?: readonly string[] | undefined };

async function runPage({ store, now }: Parts, { id: account }: Account, asked: Asked): Promise<Record<string, unknown>> {
  const wanted = asked.workflowRuns ? null : (asked.state ?? null);
  const states = wanted && runStatesOf(wanted);
  const filter = { ...filterOf(asked), ...(states ? { states } : {}) };
  const shown = { now: now(), trim: asked.trimBody ?? null };
  const isWanted = (known: KnownRun): boolean => wanted === null || states !== null || isIn(new Set(wanted), known, shown.now);
  const runs: Record<string, unknown>[] = [];
  let { before } = placeOf(asked.cursor);
  let room: number = memory.page;
  for (let looked = 0; looked < mostLookedAt; looked += mostRuns) {
    const count = asked.count - runs.length;
    const page = await store.read.runLog({ account, filter, cursor: before, count, room, ...messageOf(asked) });
    for (const known of page.runs) if (isWanted(known)) runs.push(runJson(known, shown));
    before = page.cursor;
    room -= page.bytes;
    // Where any may pass, a page that is not full is short because of its bodies.
    if (before === null || runs.length === asked.count || runs.length === page.runs.length || room < memory.page / 2) break;
  }
  return { runs, ...(before === null ? {} : { cursor: before }) };
}

/** Many runs may have nothing to tell that passes; then a page ends early, and the next one goes on. */
const mostLookedAt = 200;

async function eventPage({ store, now }: Parts, { id: account }: Account, asked: Asked): Promise<Record<string, unknown>> {
  const place = placeOf(asked.cursor);
  const passes = passing(asked);
  const shown: Record<string, unknown>[] = [];
  const until = (cursor: string | null): Record<string, unknown> => ({ events: shown, ...(cursor === null ? {} : { cursor }) });
  let { before, skip } = place;
  let room: number = memory.page;
  for (let looked = 0; looked < mostLookedAt; looked += mostRuns) {
    const page = await store.read.runLog({ account, filter: filterOf(asked), cursor: before, count: mostRuns, room, ...messageOf(asked) });
    for (const known of page.runs) {
      // Cut only because of what is on this page already: it has room on the next one.
      if (known.cut.size > 0 && shown.length > 0) return until(before);
      const all = eventsOf(known, now());
      for (const [index, event] of all.entries()) {
        if (index < skip || !passes(event)) continue;
        if (shown.length === asked.count) return until(`${known.run.id}:${index}`);
        shown.push(runEventJson({ ...event, known }, asked.trimBody ?? null));
      }
      [before, skip] = [known.run.id, 0];
    }
    room -= page.bytes;
    before = page.cursor;
    if (before === null || shown.length === asked.count || room < memory.page / 2) break;
  }
  return until(before);
}

function passing({ state, messageId }: Asked): (event: RunEvent) => boolean {
  const states: ReadonlySet<string> | null = state ? new Set(state) : null;
  return (event) =>
    (messageId === undefined || event.messageId === messageId) &&
    (states === null || states.has(event.state) || (event.item !== null && states.has(event.item.state)));
}

/** Where a page begins: behind a run, or within one, behind so many of its events. Throws `Refusal`. */
function placeOf(written: string | undefined): { before: string | null; skip: number } {
  if (written === undefined) return { before: null, skip: 0 };
  const [, key, skip] = /^(run_[1-9A-Za-z]{20})(?::(\d{1,7}))?$/.exec(written) ?? [];
  if (key === undefined) throw new Refusal("invalid", "cursor: not one that this list has given out");
  // No id has a character as high as that, so the run itself comes, too.
  return skip === undefined ? { before: key, skip: 0 } : { before: `${key}~`, skip: Number(skip) };
}

/** One that was never given out belongs to no run. */
const messageOf = ({ messageId, workflowRuns }: Asked): { messageId?: string } =>
  messageId === undefined || workflowRuns ? {} : { messageId: isId(messageId) ? messageId : "-" };

/** Throws `Refusal` when the dates are the wrong way round, or a run cannot be read. */
function filterOf(asked: Asked): RunFilter {
  if ((asked.fromDate ?? 0) > (asked.toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
  if (asked.workflowRuns) return { runs: asked.workflowRuns.map(runNamed) };
  const ips = [...(asked.callerIp ?? []), ...(asked.callerIP ?? [])];
  return {
    ...(asked.workflowRunId === undefined ? {} : { runIds: [checkSegment("workflowRunId", asked.workflowRunId)] }),
    ...(asked.workflowUrl && { urls: asked.workflowUrl }),
    ...(asked.workflowCreatedAt === undefined ? {} : { createdAt: asked.workflowCreatedAt }),
    ...(asked.host && { hosts: asked.host }),
    ...(asked.path && { paths: asked.path }),
    ...(asked.label && { labels: asked.label }),
    ...(asked.flowControlKey && { flowControlKeys: asked.flowControlKey }),
    ...(ips.length > 0 ? { callerIps: ips } : {}),
    ...(asked.fromDate === undefined ? {} : { from: asked.fromDate }),
    ...(asked.toDate === undefined ? {} : { to: asked.toDate }),
  };
}

/** An id may have an @ of its own. */
function runNamed(text: string): { runId: string; createdAt: number } {
  const [, runId, createdAt] = /^(.+)@(\d{1,15})$/s.exec(text) ?? [];
  if (runId === undefined) throw new Refusal("invalid", `workflowRuns: ${JSON.stringify(text.slice(0, 200))} is not id@createdAt`);
  return { runId: checkSegment("workflowRuns", runId), createdAt: Number(createdAt) };
}

export const runLogs = [logs, events, messageLogs];
