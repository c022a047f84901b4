import { z } from "zod";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { Bytes } from "../../../engine/core/values/basics.ts";
import { assertActive } from "../../../engine/core/accounts/plans.ts";
import { assertVerb } from "../../../engine/core/model/rights.ts";
import type { RunFilter } from "../../../engine/core/search/runFilter.ts";
import { dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import { cancelEntries, meansAll } from "../lists/bulk.ts";
import { createHistoryStream } from "../../views/history.ts";
import { actionKeyFilters } from "../lists/filters.ts";
import { choice, boundedCount, timestamp, textList } from "../../http/parameters.ts";
import { route } from "../../route/route.ts";
import { readScope } from "../../route/scope.ts";
import { parseSegment } from "../../settings/segment.ts";
import { detailsParameter, notDoneSchema } from "../../views/schemas.ts";

const byId = z.object({ workflowRunId: z.string().describe("The id of the run.") });
const cancelledSchema = z.object({
  cancelled: z.int().min(0).describe("The number of active runs that were cancelled."),
});
const cancelledManySchema = cancelledSchema.extend({ failed: notDoneSchema });

const entrySchema = z.object({
  messageId: z.string().describe("The id of the message that carries the entry."),
  body: z.string().describe("The result of the step, in base64. The first entry has the initial payload."),
  callType: z
    .enum(["step", "toCallback", "fromCallback"])
    .describe(
      "step: a result that the endpoint posted. toCallback: a request to a third party. fromCallback: the " +
        "response of the third party.",
    ),
});

const history = route({
  method: "GET",
  path: "/v2/workflows/runs/{workflowRunId}",
  operation: "step",
  tag: "Workflow runs",
  summary: "Read the history of a run",
  about:
    "Returns all steps of an active run. An endpoint requests them if the history was too large for its " +
    `delivery. The response can have up to ${limits.historyBytes / 1024 / 1024} MiB. ` +
    "Use /v2/workflows/logs for runs that have ended.",
  params: byId,
  answers: {
    200: {
      about: "All steps so far, in the order in which they were accepted.",
      schema: z.array(entrySchema),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params, context: { store } }) => {
    const runId = parseSegment("workflowRunId", params.workflowRunId);
    const activeRun = await store.read.activeRun(account.id, runId);
    if (!activeRun) throw makeNotFound(runId);
    return {
      status: 200,
      body: await createHistoryStream(store, activeRun.run),
      headers: { "Content-Type": "application/json; charset=utf-8" },
    };
  },
});

const isEmptyBody = (body: Bytes): boolean =>
  body.length === 0 || (body.length < 100 && Buffer.from(body).toString().trim() === "{}");

const bodyNotAllowed =
  "body: not allowed when cancelling; add ?cancel=false to finish the run with the body as its result";

const makeNotFound = (runId: string): Refusal =>
  new Refusal("not-found", `workflowRunId: no active run ${JSON.stringify(runId.slice(0, 200))}`);

const endRun = route({
  method: "DELETE",
  path: "/v2/workflows/runs/{workflowRunId}",
  operation: "step",
  onFastPath: true,
  looksAtVerb: true,
  tag: "Workflow runs",
  summary: "Cancel or finish a run",
  about:
    "By default, cancels the run. Its waiting messages are dropped, and messages in flight may still " +
    "arrive. Its failure callback is not called. A run that invoked it is notified. With cancel=false, " +
    "finishes the run with the body as its result; endpoints do this after their last step. Finishing a " +
    "run that has ended or does not exist changes nothing and is not an error. A result that does not fit " +
    "into the history of the run that invoked this one is refused.",
  params: byId,
  query: z.object({
    cancel: choice(["true", "false"])
      .default("true")
      .describe("true cancels the run. false finishes it with the body as its result."),
  }),
  body: {
    about: "With cancel=false, the result of the run, as text. Otherwise empty.",
    contentType: "text/plain",
    schema: z.string(),
    required: false,
    maxBytes: { messages: 1 },
  },
  answers: {
    200: {
      about: "The run is cancelled or finished.",
      schema: z.union([
        cancelledSchema,
        z.object({
          finished: z.boolean().describe("false if the run had already ended or does not exist."),
        }),
      ]),
    },
  },
  refusals: ["not-found", "limit-exceeded"],
  handle: async ({ account, params, query, incoming, context: { store } }) => {
    const { body } = incoming;
    const isFinished = query.cancel === "false";
    const tokenScope = readScope(incoming);
    // An endpoint that may publish the steps of its run may also finish it.
    if (tokenScope.scope) assertVerb(tokenScope.scope, isFinished ? "publish" : "manage");
    const runId = parseSegment("workflowRunId", params.workflowRunId);
    if (isFinished)
      return {
        status: 200,
        body: await store.execute("finishRun", { account: account.id, runId, body, ...tokenScope }),
      };
    assertActive(account);
    if (!isEmptyBody(body)) throw new Refusal("invalid", bodyNotAllowed);
    const answer = await store.execute("cancelRuns", { account: account.id, runIds: [runId] });
    if (answer.cancelled === 0) throw makeNotFound(runId);
    return { status: 200, body: { cancelled: answer.cancelled } };
  },
});

/** The maximum number of runs that one request cancels. */
const maxCancelled = 100_000;

/** The query parameters by which active runs are selected for cancelling. */
export const runSelectionSchema = z.object({
  workflowRunIds: z
    .array(z.string())
    .max(1_000, "has more than 1000 values")
    .optional()
    .describe(
      "Run ids. Repeat the parameter; a comma is part of an id. If given, all other filters are ignored.",
    ),
  workflowUrl: textList("https?://").optional().describe("A prefix of the workflow's URL."),
  workflowUrlExactMatch: choice(["true", "false"])
    .optional()
    .describe("With true, workflowUrl must equal the workflow's URL."),
  host: textList()
    .optional()
    .describe("The host of the workflow's URL, with the port unless it is the default one."),
  path: textList("/").optional().describe("The path of the workflow's URL, starting with /."),
  label: textList().optional().describe("A label. The run must have at least one of the given labels."),
  ...actionKeyFilters,
  callerIp: textList().optional().describe("The IP address of the client that started the run."),
  callerIP: textList().optional().describe("Alias of callerIp."),
  fromDate: timestamp().optional().describe("The earliest creation time, inclusive, in Unix milliseconds."),
  toDate: timestamp().optional().describe("The latest creation time, inclusive, in Unix milliseconds."),
  count: boundedCount({ max: 1_000, defaultCount: meansAll }).describe(
    `The maximum number of runs to cancel, from 1 to 1000. Without it, or with ${meansAll}, all matching ` +
      "runs are cancelled, because clients send this value to cancel all runs. Ignored " +
      "if workflowRunIds is given.",
  ),
  ...dryRunParameter,
  ...detailsParameter,
});

const cancelMany = route({
  method: "DELETE",
  path: "/v2/workflows/runs",
  runsManyBatches: true,
  tag: "Workflow runs",
  summary: "Cancel many runs",
  instead: "GET lists runs, and DELETE cancels all active runs, unless it has filters",
  about:
    "Cancels the active runs with the given ids, or those that pass all filters, newest first. Without " +
    "filters, cancels all active runs. Runs that do not exist or have ended are not counted. With ids and " +
    "`details=true`, `failed` lists them.",
  query: runSelectionSchema,
  answers: {
    200: {
      about: "The number cancelled or, with dryRun=true, the number that would be cancelled.",
      schema: z.union([cancelledManySchema, dryRunSchema]),
    },
  },
  refusals: [],
  handle: ({ account, query, context }) => {
    const filter = toRunFilter(query);
    return cancelEntries(context, {
      account,
      selection: { action: "runs.cancel", filter },
      query,
      maxCancelled,
      named: filter.runIds
        ? { entries: [...new Set(filter.runIds)].map((id) => ({ id })), unknown: [] }
        : null,
    });
  },
});

type Selection = z.output<typeof runSelectionSchema>;

/**
 * Returns the filter for the given parameters. Throws `Refusal` if `fromDate` is later than `toDate`, or if
 * an exact match is requested without a URL.
 */
export function toRunFilter(parameters: Selection): RunFilter {
  if ((parameters.fromDate ?? 0) > (parameters.toDate ?? Infinity))
    throw new Refusal("invalid", "fromDate: is later than toDate; swap them");
  const isExact = parameters.workflowUrlExactMatch === "true";
  if (isExact && !parameters.workflowUrl)
    throw new Refusal("invalid", "workflowUrlExactMatch: requires workflowUrl");
  if (parameters.workflowRunIds)
    return {
      runIds: parameters.workflowRunIds.map((runId) => parseSegment("workflowRunIds", runId)),
      states: ["RUN_STARTED"],
    };
  return {
    states: ["RUN_STARTED"],
    ...(parameters.workflowUrl &&
      (isExact ? { urls: parameters.workflowUrl } : { urlStarts: parameters.workflowUrl })),
    ...(parameters.host && { hosts: parameters.host }),
    ...(parameters.path && { paths: parameters.path }),
    ...(parameters.label && { labels: parameters.label }),
    ...(parameters.flowControlKey && { flowControlKeys: parameters.flowControlKey }),
    ...((parameters.callerIp ?? parameters.callerIP) && {
      callerIps: [...(parameters.callerIp ?? []), ...(parameters.callerIP ?? [])],
    }),
    ...(parameters.fromDate !== undefined && { from: parameters.fromDate }),
    ...(parameters.toDate !== undefined && { to: parameters.toDate }),
  };
}

/** The routes that read the history of a run, and cancel or finish runs. */
export const runs = [endRun, history, cancelMany];
