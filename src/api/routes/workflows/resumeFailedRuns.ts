import { z } from "zod";
import { toFailedMember, Refusal } from "../../../engine/core/values/errors.ts";
import { isDlqId } from "../../../engine/core/values/ids.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { RunOverrides } from "../../../engine/core/deadLetters/resume.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import { dryRun, dryRunOfOne, dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import { runBulk } from "../lists/bulk.ts";
import { continuedRunFilters } from "../lists/failedRunLists.ts";
import { cursorParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import type { RouteResponse, IncomingRequest, RouteContext, Route } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import { readRunOverrides, resumeSettings } from "../../publishing/runOverrides.ts";
import type { Sweep } from "../lists/sweep.ts";
import type { FailedRunSelection } from "./failedRunEntries.ts";
import {
  byDlqId,
  createPageReader,
  describeMissing,
  exclude,
  failedRunsTag,
  findFailedRun,
  makeNotFound,
} from "./failedRunEntries.ts";

/**
 * The maximum number of runs that one request resumes or restarts. The request handles the runs one after
 * another, because the history of each run is loaded into memory.
 */
const maxRunsPerRequest = 50;

const resumedSchema = z.object({
  workflowRunId: z.string().describe("The id of the new run."),
  workflowCreatedAt: z.int().describe("When the new run was created, in Unix milliseconds."),
  dlqId: z
    .string()
    .describe("The id of the failed run in the dead letter queue, from which it has been removed."),
});
const resumedManySchema = z.object({
  workflowRuns: z.array(resumedSchema).describe("The new runs, in the order of their entries."),
  cursor: z.string().describe("The cursor to pass for the next part. Empty when all are done."),
  failed: notDoneSchema,
});

/** Where the new run begins: at the failed step, or at the first step. */
type ContinueFrom = "failure" | "beginning";

const aboutSettings =
  `Settings of this request replace those of the run: ${[...resumeSettings].join(", ")}. ` +
  "A Flow-Control-Key without Flow-Control-Value keeps the run's limits, and a Flow-Control-Value without " +
  "Flow-Control-Key keeps the run's key. A run that had neither requires both.";

const continuations: Record<ContinueFrom, { name: "resume" | "restart"; summary: string; about: string }> = {
  failure: {
    name: "resume",
    summary: "Resume",
    about:
      "Continues at the failed step, as a new run with a new id. Steps that have a result keep it; all " +
      "others run again. If you change the workflow, keep the code before the failed " +
      `step as it is. The entry is removed from the dead letter queue. ${aboutSettings}`,
  },
  beginning: {
    name: "restart",
    summary: "Restart",
    about:
      "Starts over with the initial payload, as a new run with a new id. The entry is removed from the " +
      `dead letter queue. ${aboutSettings}`,
  },
};

/** Returns the route that resumes or restarts one failed run. */
export const makeContinueOneRoute = (from: ContinueFrom): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${continuations[from].name}/{dlqId}`,
    tag: failedRunsTag,
    summary: `${continuations[from].summary} a failed workflow run`,
    about: `${continuations[from].about} The setting Workflow-RunId chooses the id of the new run.`,
    settings: "resume",
    params: byDlqId,
    query: z.object(dryRunParameter),
    answers: {
      200: {
        about: "The new run or, with dryRun=true, the number of runs that would be created.",
        schema: z.union([resumedSchema, dryRunSchema]),
      },
    },
    refusals: ["not-found", "limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
    handle: async ({ account, params: { dlqId }, query, incoming, context }) => {
      const { overrides, ignored } = readRunOverrides(incoming, { isForMany: false, account });
      if (!isDlqId(dlqId)) throw makeNotFound(dlqId);
      if (query.dryRun === "true") {
        await findFailedRun(context, account.id, dlqId);
        return { status: 200, body: dryRunOfOne(dlqId), ignored };
      }
      return { status: 200, body: await continueRun(context, { account, from, overrides, dlqId }), ignored };
    },
  });

/** Returns the route that resumes or restarts many failed runs. */
export const makeContinueManyRoute = (from: ContinueFrom): Route =>
  route({
    method: "POST",
    path: `/v2/workflows/dlq/${continuations[from].name}`,
    runsManyBatches: true,
    tag: failedRunsTag,
    summary: `${continuations[from].summary} many failed workflow runs`,
    about:
      "Applies to the failed runs with the given ids, or to those that pass all filters, oldest first. " +
      `Without filters, applies to all failed runs. One request handles at most ${maxRunsPerRequest} runs. ` +
      `${continuations[from].about} A run that cannot be ${from === "failure" ? "resumed" : "restarted"} ` +
      "stays in the dead letter queue, and `failed` gives the reason.",
    settings: "resume",
    query: continuedRunFilters.extend({
      count: count({ max: maxRunsPerRequest, defaultCount: maxRunsPerRequest }),
      cursor: cursorParameter,
      ...dryRunParameter,
    }),
    answers: {
      200: {
        about: "The new runs or, with dryRun=true, the number of runs that would be created.",
        schema: z.union([resumedManySchema, dryRunSchema]),
      },
    },
    refusals: ["limit-exceeded", "storage-quota-exceeded", "disk-low", "forbidden"],
    handle: ({ account, query, incoming, context }) =>
      continueSelected(context, { account, from, query, incoming }),
  });

type ContinueManyRequest = {
  account: Account;
  from: ContinueFrom;
  query: FailedRunSelection & { count: number; dryRun?: "true" | "false" | undefined };
  incoming: IncomingRequest;
};

async function continueSelected(
  context: RouteContext,
  { account, from, query, incoming }: ContinueManyRequest,
): Promise<RouteResponse> {
  const { overrides, ignored } = readRunOverrides(incoming, { isForMany: true, account });
  const { count: max } = query;
  const readPage = createPageReader(context, account.id, { query, runIds: "runIdStarts" });
  if (query.dryRun === "true") return { status: 200, body: await dryRun(readPage, max), ignored };
  const page = query.dlqIds ? selectNamed(query.dlqIds, query.cursor, max) : await readPage(null, max);
  const { results, refused, stoppedAt } = await runBulk(context, {
    account,
    action: from === "failure" ? "runs.resume" : "runs.restart",
    entries: page.ids.map((id) => ({ id })),
    runOverrides: overrides,
  });
  const unknownIds =
    query.cursor === undefined ? (query.dlqIds ?? []).filter((dlqId) => !isDlqId(dlqId)) : [];
  const body = {
    workflowRuns: results.map(({ id, became, createdAt }) => ({
      workflowRunId: became,
      workflowCreatedAt: createdAt,
      dlqId: id,
    })),
    cursor: stoppedAt === null ? (page.cursor ?? "") : page.cursorAfter(stoppedAt),
    ...toFailedMember([...refused, ...exclude(unknownIds, []).map(describeMissing)]),
  };
  return { status: 200, body, ignored };
}

/**
 * Returns the next of the ids that the request names, oldest first. Ids that do not exist are included;
 * they are then reported as failed.
 */
function selectNamed(dlqIds: readonly string[], cursor = "", max: number): NamedSweep {
  if (cursor !== "" && !isDlqId(cursor))
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  const left = [...new Set(dlqIds)].filter((dlqId) => isDlqId(dlqId) && dlqId > cursor).sort();
  const ids = left.slice(0, max);
  return { ids, cursor: left.length > max ? (ids.at(-1) ?? null) : null, cursorAfter: (dlqId) => dlqId };
}

/** The ids that one request handles. Unlike in a sweep, some may not exist. */
type NamedSweep = Omit<Sweep, "isInRange">;

type ContinueRequest = { account: Account; from: ContinueFrom; overrides: RunOverrides; dlqId: string };

async function continueRun(
  { store, retention }: RouteContext,
  { account, from, overrides, dlqId }: ContinueRequest,
) {
  const logRetention = retentionFor(account, retention).log;
  const { runId, createdAt } = await store.execute("resumeRun", {
    account: account.id,
    dlqId,
    from,
    overrides,
    logRetention,
  });
  return { workflowRunId: runId, workflowCreatedAt: createdAt, dlqId };
}
