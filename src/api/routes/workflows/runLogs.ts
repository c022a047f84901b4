import { z } from "zod";
import { isId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import { memory } from "../../../core/values/limits.ts";
import type { Account } from "../../../core/model/message.ts";
import type { RunState } from "../../../core/model/run.ts";
import type { RunFilter } from "../../../core/search/runFilter.ts";
import { hasAnyState } from "../../../core/workflows/log/log.ts";
import type { KnownRun } from "../../../core/workflows/log/view.ts";
import type { RunEvent } from "../../../core/workflows/log/events.ts";
import { listRunEvents } from "../../../core/workflows/log/events.ts";
import { cursorParameter } from "../lists/filters.ts";
import { choice, count, timestamp, singleText, textList } from "../../http/parameters.ts";
import { runEventJson, runJson } from "../../views/runs.ts";
import type { RouteContext } from "../../route/route.ts";
import { makePageWarning, route, withWarnings } from "../../route/route.ts";
import { eventStates, runSchema, runEventSchema, runStates, stepStates } from "../../views/runSchemas.ts";
import { checkSegment } from "../../settings/segment.ts";

const maxRuns = 10;
const maxEvents = 1_000;

const makeStateParameter = (states: readonly string[]) =>
  textList()
    .pipe(z.array(z.enum(states, { error: `is none of ${states.join(", ")}` })))
    .optional();

const filterFields = {
  cursor: cursorParameter,
  workflowRunId: singleText().optional().describe("The id of the run. Several runs may have had it, one after another."),
  workflowUrl: textList("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: timestamp().optional().describe("The moment the run was created, in unix milliseconds."),
  workflowRuns: textList().optional().describe("These runs: id@createdAt, id@createdAt, … Other filters do not count then."),
  messageId: singleText().optional().describe("The run that this message belongs to; without groupBy, what happened to the message."),
  host: textList().optional().describe("The host of the URL of the workflow."),
  path: textList("/").optional().describe("The path of that URL."),
  label: textList().optional().describe("One of its labels."),
  flowControlKey: textList().optional().describe("Its flow control key."),
  callerIp: textList().optional().describe("The IP address of whoever triggered it."),
  callerIP: textList().optional().describe("Another spelling of callerIp."),
  fromDate: timestamp().optional().describe("Not created before this moment, in unix milliseconds, inclusive."),
  toDate: timestamp().optional().describe("Not created after this moment, in unix milliseconds, inclusive."),
  trimBody: singleText()
    .pipe(
      z
        .string()
        .regex(/^(-1|\d{1,9})$/, "is neither a number of bytes nor -1")
        .transform(Number),
    )
    .optional()
    .describe("Bodies are cut to so many bytes; with -1 they are left out. Otherwise they are shown as a whole."),
};

const groupedFields = {
  ...filterFields,
  state: makeStateParameter([...runStates, ...stepStates]).describe("The state of the run, or of any of its steps."),
  count: count({ max: maxRuns, defaultCount: maxRuns, about: "Pages with large bodies are shorter." }),
};

const flatState = makeStateParameter([...eventStates, ...stepStates]).describe(
  "What happened, or the state of the step that it happened to.",
);
const flatFields = {
  ...filterFields,
  state: flatState,
  count: count({ max: maxEvents, defaultCount: maxEvents, about: "Pages with large bodies are shorter." }),
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
  query: z.object({ ...groupedFields, groupBy: byRun.describe("Optional: this list shows runs with and without it.") }),
  answers: { 200: { about: "A page of runs.", schema: z.object({ runs: z.array(runSchema), cursor }) } },
  refusals: [],
  handle: async ({ account, query, context }) => ({ status: 200, body: await readRunPage(context, account, query) }),
});

const messageLogs = route({
  method: "GET",
  path: "/v2/workflows/messageLogs",
  tag: "Workflow runs",
  summary: "Read what happened in runs",
  about: aboutEvents.replace("Without groupBy: what", "What"),
  query: z.object(flatFields),
  answers: { 200: { about: "A page of events.", schema: z.object({ events: z.array(runEventSchema), cursor }) } },
  refusals: [],
  handle: async ({ account, query, context }) => ({ status: 200, body: await readEventPage(context, account, query) }),
});

const events = route({
  method: "GET",
  path: "/v2/workflows/events",
  tag: "Workflow runs",
  summary: "Read the logs of runs, or what happened in them",
  about: `With groupBy=workflowRunId the same as /v2/workflows/logs. ${aboutEvents}`,
  query: z.object({
    ...flatFields,
    groupBy: byRun.describe("Runs instead of single events."),
    count: singleText().optional().describe(`At most so many: with groupBy up to ${maxRuns} runs, without it up to ${maxEvents} events.`),
  }),
  answers: {
    200: {
      about: "A page of runs, or of events.",
      schema: z.union([z.object({ runs: z.array(runSchema), cursor }), z.object({ events: z.array(runEventSchema), cursor })]),
    },
  },
  refusals: [],
  handle: async ({ account, query: { groupBy, ...asked }, context }) => {
    const max = groupBy ? maxRuns : maxEvents;
    const counted = { ...asked, count: readCount(asked.count, max) };
    const body = groupBy ? await readRunPage(context, account, counted) : await readEventPage(context, account, counted);
    return withWarnings({ status: 200, body }, Number(asked.count) > max ? [makePageWarning(Number(asked.count), max)] : []);
  },
});

/** Of a page that is either. Throws `Refusal`. */
function readCount(written: string | undefined, max: number): number {
  if (written === undefined) return max;
  if (!/^\d{1,15}$/.test(written)) throw new Refusal("invalid", "count: is not a whole number");
  const asked = Number(written);
  if (asked < 1) throw new Refusal("invalid", "count: must be at least 1");
  return Math.min(asked, max);
}

/** The states of runs among those that are asked for. Null: there are others, of steps, by which no list is kept. Throws `Refusal`. */
function toRunStates(states: readonly string[]): RunState[] | null {
  const possible: readonly string[] = [...runStates, ...stepStates];
  if (!states.every((state) => possible.includes(state))) throw new Refusal("invalid", `state: is none of ${possible.join(", ")}`);
  const ofRuns = runStates.filter((state) => states.includes(state));
  return states.every((state) => ofRuns.some((one) => one === state)) ? ofRuns : null;
}

type RunFilterParameters = Partial<z.output<z.ZodObject<typeof filterFields>>>;
type LogQuery = RunFilterParameters & { count: number; state?: readonly string[] | undefined };

async function readRunPage({ store, now }: RouteContext, { id: account }: Account, logQuery: LogQuery): Promise<Record<string, unknown>> {
  const wanted = logQuery.workflowRuns ? null : (logQuery.state ?? null);
  const states = wanted && toRunStates(wanted);
  const filter = { ...toRunFilter(logQuery), ...(states ? { states } : {}) };
  const shown = { now: now(), trim: logQuery.trimBody ?? null };
  const isWanted = (known: KnownRun): boolean => wanted === null || states !== null || hasAnyState(new Set(wanted), known, shown.now);
  const runs: Record<string, unknown>[] = [];
  let { before } = parseCursor(logQuery.cursor);
  let byteLimit: number = memory.page;
  for (let examined = 0; examined < maxExaminedRuns; examined += maxRuns) {
    const count = logQuery.count - runs.length;
    const page = await store.read.runLog({ account, filter, cursor: before, count, byteLimit, ...toMessageFilter(logQuery) });
    for (const known of page.runs) if (isWanted(known)) runs.push(runJson(known, shown));
    before = page.cursor;
    byteLimit -= page.bytes;
    // Where any may pass, a page that is not full is short because of its bodies.
    if (before === null || runs.length === logQuery.count || runs.length === page.runs.length || byteLimit < memory.page / 2) break;
  }
  return { runs, ...(before === null ? {} : { cursor: before }) };
}

/** Many runs may have nothing to tell that passes; then a page ends early, and the next one goes on. */
const maxExaminedRuns = 200;

async function readEventPage({ store, now }: RouteContext, { id: account }: Account, logQuery: LogQuery): Promise<Record<string, unknown>> {
  const position = parseCursor(logQuery.cursor);
  const passes = createEventFilter(logQuery);
  const shown: Record<string, unknown>[] = [];
  const toPage = (cursor: string | null): Record<string, unknown> => ({ events: shown, ...(cursor === null ? {} : { cursor }) });
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
      // Cut only because of what is on this page already: it has room on the next one.
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

/** Where a page begins: behind a run, or within one, behind so many of its events. Throws `Refusal`. */
function parseCursor(written: string | undefined): { before: string | null; skip: number } {
  if (written === undefined) return { before: null, skip: 0 };
  const [, key, skip] = /^(run_[1-9A-Za-z]{20})(?::(\d{1,7}))?$/.exec(written) ?? [];
  if (key === undefined) throw new Refusal("invalid", "cursor: not one that this list has given out");
  // No id has a character as high as that, so the run itself comes, too.
  return skip === undefined ? { before: key, skip: 0 } : { before: `${key}~`, skip: Number(skip) };
}

/** One that was never given out belongs to no run. */
const toMessageFilter = ({ messageId, workflowRuns }: LogQuery): { messageId?: string } =>
  messageId === undefined || workflowRuns ? {} : { messageId: isId(messageId) ? messageId : "-" };

/** Throws `Refusal` when the dates are the wrong way round, or a run cannot be read. */
function toRunFilter(logQuery: LogQuery): RunFilter {
  if ((logQuery.fromDate ?? 0) > (logQuery.toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
  if (logQuery.workflowRuns) return { runs: logQuery.workflowRuns.map(parseRunName) };
  const ips = [...(logQuery.callerIp ?? []), ...(logQuery.callerIP ?? [])];
  return {
    ...(logQuery.workflowRunId === undefined ? {} : { runIds: [checkSegment("workflowRunId", logQuery.workflowRunId)] }),
    ...(logQuery.workflowUrl && { urls: logQuery.workflowUrl }),
    ...(logQuery.workflowCreatedAt === undefined ? {} : { createdAt: logQuery.workflowCreatedAt }),
    ...(logQuery.host && { hosts: logQuery.host }),
    ...(logQuery.path && { paths: logQuery.path }),
    ...(logQuery.label && { labels: logQuery.label }),
    ...(logQuery.flowControlKey && { flowControlKeys: logQuery.flowControlKey }),
    ...(ips.length > 0 ? { callerIps: ips } : {}),
    ...(logQuery.fromDate === undefined ? {} : { from: logQuery.fromDate }),
    ...(logQuery.toDate === undefined ? {} : { to: logQuery.toDate }),
  };
}

/** An id may have an @ of its own. */
function parseRunName(text: string): { runId: string; createdAt: number } {
  const [, runId, createdAt] = /^(.+)@(\d{1,15})$/s.exec(text) ?? [];
  if (runId === undefined) throw new Refusal("invalid", `workflowRuns: ${JSON.stringify(text.slice(0, 200))} is not id@createdAt`);
  return { runId: checkSegment("workflowRuns", runId), createdAt: Number(createdAt) };
}

export const runLogs = [logs, events, messageLogs];
