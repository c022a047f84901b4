import { z } from "zod";
import type { Cancelled, NotDone } from "../../../core/values/errors.ts";
import { toFailedMember, Refusal } from "../../../core/values/errors.ts";
import { limits } from "../../../core/values/limits.ts";
import type { AccountId, Bytes, RunKey } from "../../../core/model/message.ts";
import { mustBeActive } from "../../../core/accounts/plans.ts";
import { mustHaveVerb } from "../../../core/model/rights.ts";
import type { RunFilter } from "../../../core/search/runFilter.ts";
import { dryRun, dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import type { IdPage } from "../../publishing/dryRun.ts";
import { createHistoryStream } from "../../views/history.ts";
import { actionKeyFilters } from "../lists/filters.ts";
import { choice, boundedCount, timestamp, textList } from "../../http/parameters.ts";
import type { RouteContext } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { checkSegment } from "../../settings/segment.ts";
import { notDoneSchema } from "../../views/schemas.ts";

const byId = z.object({ workflowRunId: z.string() });
const cancelledSchema = z.object({ cancelled: z.int().describe("How many went on, and are cancelled now.") });
const cancelledManySchema = cancelledSchema.extend({ failed: notDoneSchema });

const entrySchema = z.object({
  messageId: z.string().describe("The message that carries it."),
  body: z.string().describe("In base64. Of the first one the initial payload."),
  callType: z.enum(["step", "toCallback", "fromCallback"]).describe("toCallback: a request to a third party. fromCallback: its answer."),
});

const history = route({
  method: "GET",
  path: "/v2/workflows/runs/{workflowRunId}",
  operation: "step",
  tag: "Workflow runs",
  summary: "Read the history of a run",
  about: `What an endpoint asks for when its history was too large to be sent along. Only of a run that goes on; /v2/workflows/logs tells of all. It may come to ${limits.historyBytes / 1024 / 1024} MiB.`,
  params: byId,
  answers: { 200: { about: "All steps so far, in order.", schema: z.array(entrySchema) } },
  refusals: ["not-found"],
  handle: async ({ account, params, context: { store } }) => {
    const runId = checkSegment("workflowRunId", params.workflowRunId);
    const activeRun = await store.read.activeRun(account.id, runId);
    if (!activeRun) throw makeNotFound(runId);
    return {
      status: 200,
      body: await createHistoryStream(store, activeRun.run),
      headers: { "Content-Type": "application/json; charset=utf-8" },
    };
  },
});

const isEmptyBody = (body: Bytes): boolean => body.length === 0 || (body.length < 100 && Buffer.from(body).toString().trim() === "{}");

const bodyNotAllowed =
  "body: a run that is cancelled has no result, and no other parameters in a body; with ?cancel=false the body is its result";

const makeNotFound = (runId: string): Refusal =>
  new Refusal("not-found", `workflowRunId: there is no run ${JSON.stringify(runId.slice(0, 200))} that has not ended`);

const endRun = route({
  method: "DELETE",
  path: "/v2/workflows/runs/{workflowRunId}",
  operation: "step",
  onFastPath: true,
  looksAtVerb: true,
  tag: "Workflow runs",
  summary: "Cancel a run, or finish it",
  about:
    "Without a parameter the run is cancelled: what waits to be sent for it is dropped, what is being sent at this moment may still arrive, its failure callback is not called, and a run that invoked it is told. With cancel=false it is finished, which is what endpoints do when they have come to their end; the body is the result. To finish a run that has ended, or that nobody knows, changes nothing and is no error; a result that does not fit into the history of the run that invoked it is refused.",
  params: byId,
  query: z.object({
    cancel: choice(["true", "false"]).default("true").describe("With false the run is finished, with the body as its result."),
  }),
  body: {
    about: "Only with cancel=false: the result, a text.",
    contentType: "text/plain",
    schema: z.string(),
    required: false,
    maxBytes: limits.messageBytes,
  },
  answers: {
    200: {
      about: "It is cancelled, or finished.",
      schema: z.union([cancelledSchema, z.object({ finished: z.boolean().describe("False when it had ended before, or is not known.") })]),
    },
  },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, query, incoming, context: { store } }) => {
    const { body } = incoming;
    const isFinished = query.cancel === "false";
    const tokenScope = readScope(incoming);
    // What endpoints post for their runs they publish, and the end is the last of it.
    if (tokenScope.scope) mustHaveVerb(tokenScope.scope, isFinished ? "publish" : "manage");
    const runId = checkSegment("workflowRunId", params.workflowRunId);
    if (isFinished) return { status: 200, body: await store.execute("finishRun", { account: account.id, runId, body, ...tokenScope }) };
    mustBeActive(account);
    if (!isEmptyBody(body)) throw new Refusal("invalid", bodyNotAllowed);
    const answer = await store.execute("cancelRuns", { account: account.id, runIds: [runId] });
    if (answer.cancelled === 0) throw makeNotFound(runId);
    return { status: 200, body: { cancelled: answer.cancelled } };
  },
});

/** Clients send this count when they want all to be cancelled; they are given no cursor that they could go on with. */
const meansAll = 100;
/** In one transaction, and by one request: each run brings its messages along. */
const portion = 50;
const maxCancelled = 100_000;

const selectionSchema = z.object({
  workflowRunIds: z
    .array(z.string())
    .max(1_000, "has more than 1000 values")
    .optional()
    .describe("These runs: repeat it, a comma is part of an id. Other filters do not count then."),
  workflowUrl: textList("https?://").optional().describe("The URL of the workflow begins so."),
  workflowUrlExactMatch: choice(["true", "false"]).optional().describe("With true, the URL of the workflow is exactly that."),
  host: textList().optional().describe("The host of that URL."),
  path: textList("/").optional().describe("The path of that URL."),
  label: textList().optional().describe("One of its labels."),
  ...actionKeyFilters,
  callerIp: textList().optional().describe("The IP address of whoever triggered it."),
  callerIP: textList().optional().describe("Another spelling of callerIp."),
  fromDate: timestamp().optional().describe("Not created before this moment, in unix milliseconds, inclusive."),
  toDate: timestamp().optional().describe("Not created after this moment, in unix milliseconds, inclusive."),
  count: boundedCount({ max: 1_000, defaultCount: meansAll }).describe(
    `At most so many; without it all of them. ${meansAll} means all too, because that is what clients send then. Does not count when workflowRunIds is given.`,
  ),
  ...dryRunParameter,
});

const cancelMany = route({
  method: "DELETE",
  path: "/v2/workflows/runs",
  tag: "Workflow runs",
  summary: "Cancel many runs",
  instead: "GET /v2/workflows/logs lists runs, and DELETE cancels all that have not ended, unless it is given filters",
  about:
    "Cancels runs that have not ended, newest first: those with the given ids, or those that pass all filters. Without any filter, all of them pass. Those that are unknown or have ended are not counted; of runs that were named, failed says which they are.",
  query: selectionSchema,
  answers: {
    200: { about: "How many were cancelled; or with dryRun, how many would be.", schema: z.union([cancelledManySchema, dryRunSchema]) },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const readPage = createPageReader(context, account.id, toRunFilter(query));
    const isLimited = !query.workflowRunIds && query.count !== meansAll;
    const max = isLimited ? query.count : maxCancelled;
    if (query.dryRun === "true") return { status: 200, body: await dryRun(readPage, max) };
    if (query.workflowRunIds) return { status: 200, body: await cancelNamed(context, account.id, query.workflowRunIds) };
    return { status: 200, body: { cancelled: await cancelAll(context, account.id, { readPage, max }) } };
  },
});

type Selection = z.output<typeof selectionSchema>;

/** Throws `Refusal` when the dates are the wrong way round, or an exact match is asked for without a URL. */
function toRunFilter(parameters: Selection): RunFilter {
  if ((parameters.fromDate ?? 0) > (parameters.toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate, so that nothing can pass");
  const isExact = parameters.workflowUrlExactMatch === "true";
  if (isExact && !parameters.workflowUrl)
    throw new Refusal("invalid", "workflowUrlExactMatch: there is no workflowUrl that it could apply to");
  if (parameters.workflowRunIds)
    return { runIds: parameters.workflowRunIds.map((runId) => checkSegment("workflowRunIds", runId)), states: ["RUN_STARTED"] };
  return {
    states: ["RUN_STARTED"],
    ...(parameters.workflowUrl && (isExact ? { urls: parameters.workflowUrl } : { urlStarts: parameters.workflowUrl })),
    ...(parameters.host && { hosts: parameters.host }),
    ...(parameters.path && { paths: parameters.path }),
    ...(parameters.label && { labels: parameters.label }),
    ...(parameters.flowControlKey && { flowControlKeys: parameters.flowControlKey }),
    ...((parameters.callerIp ?? parameters.callerIP) && { callerIps: [...(parameters.callerIp ?? []), ...(parameters.callerIP ?? [])] }),
    ...(parameters.fromDate !== undefined && { from: parameters.fromDate }),
    ...(parameters.toDate !== undefined && { to: parameters.toDate }),
  };
}

type RunPageReader = (cursor: string | null, count: number) => Promise<IdPage & { keys: readonly RunKey[] }>;

const createPageReader =
  ({ store }: RouteContext, account: AccountId, filter: RunFilter): RunPageReader =>
  async (cursor, count) => {
    const page = await store.read.runs({ account, filter, cursor, count });
    return { ids: page.runs.map(({ runId }) => runId), keys: page.runs.map(({ id }) => id), cursor: page.cursor };
  };

/** Cancels the runs of these ids, and says which of them were none. */
async function cancelNamed({ store }: RouteContext, account: AccountId, named: readonly string[]): Promise<Cancelled> {
  const ids = [...new Set(named.map((runId) => checkSegment("workflowRunIds", runId)))];
  const failed: NotDone[] = [];
  let cancelled = 0;
  for (let at = 0; at < ids.length; at += portion) {
    const done = await store.execute("cancelRuns", { account, runIds: ids.slice(at, at + portion) });
    cancelled += done.cancelled;
    failed.push(...(done.failed ?? []));
  }
  return { cancelled, ...toFailedMember(failed) };
}

/** Follows the list of what goes on until there were enough, or it ends. Each part of it is a transaction of its own. */
async function cancelAll(
  { store }: RouteContext,
  account: AccountId,
  { readPage, max }: { readPage: RunPageReader; max: number },
): Promise<number> {
  let cancelled = 0;
  let found = 0;
  let cursor: string | null = null;
  do {
    const { ids: runIds, keys, cursor: next }: Awaited<ReturnType<RunPageReader>> = await readPage(cursor, Math.min(portion, max - found));
    if (runIds.length > 0) cancelled += (await store.execute("cancelRuns", { account, runIds, keys })).cancelled;
    found += runIds.length;
    cursor = next;
  } while (cursor !== null && found < max);
  return cancelled;
}

export const runs = [endRun, history, cancelMany];
