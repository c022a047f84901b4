import { z } from "zod";
import { toFailedMember } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import { retentionFor } from "../../../engine/core/accounts/retention.ts";
import { dryRun, dryRunSchema, dryRunParameter } from "../../publishing/dryRun.ts";
import { runBulk } from "../lists/bulk.ts";
import {
  chosenRunFilters,
  readEntries,
  toFailedRunFilter,
  failedRunFilters,
} from "../lists/failedRunLists.ts";
import { cursorParameter, orderParameter } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import { entryJson, entrySchema } from "../../views/failedRuns.ts";
import type { RouteContext, Route } from "../../route/route.ts";
import { route } from "../../route/route.ts";
import { notDoneSchema } from "../../views/schemas.ts";
import {
  byDlqId,
  createPageReader,
  describeMissing,
  exclude,
  failedRunsTag as tag,
  findFailedRun,
  makeNotFound,
  makeSinglePage,
  nextPage,
} from "./failedRunEntries.ts";
import { groupFailedRuns } from "./failedRunGroups.ts";
import { cancelFailureCallback, repeatFailureCallback } from "./failureCallbacks.ts";
import { makeContinueManyRoute, makeContinueOneRoute } from "./resumeFailedRuns.ts";

const portion = (about: string) => count({ max: 100, defaultCount: 100, about });

const list = route({
  method: "GET",
  path: "/v2/workflows/dlq",
  tag,
  summary: "List failed workflow runs",
  about:
    "Returns the runs that have failed for good. An entry shows the message that failed, its last " +
    "response, the run with its initial payload as body, and the state of its failure callback. fromDate " +
    "and toDate are compared with the time of the failure. GET /v2/dlq?source=workflow returns the same " +
    "list.",
  query: failedRunFilters.extend({
    order: orderParameter("earliestFirst"),
    count: portion("A page has fewer if bodies are large."),
    cursor: cursorParameter,
  }),
  answers: {
    200: {
      about: "A page of failed runs.",
      schema: z.object({
        messages: z.array(entrySchema).describe("The failed runs, in the requested order."),
        cursor: nextPage,
      }),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const { entries, cursor } = await readEntries(context, account.id, {
      ...query,
      filter: toFailedRunFilter(query),
    });
    return {
      status: 200,
      body: { messages: entries.map(entryJson), ...(cursor === null ? {} : { cursor }) },
    };
  },
});

const get = route({
  method: "GET",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Read a failed workflow run",
  params: byDlqId,
  answers: { 200: { about: "The failed run.", schema: entrySchema } },
  refusals: ["not-found"],
  handle: async ({ account, params, context }) => ({
    status: 200,
    body: entryJson(await findFailedRun(context, account.id, params.dlqId)),
  }),
});

const deletedSchema = z.object({
  deleted: z.int().min(0).describe("The number of failed runs that were deleted."),
  failed: notDoneSchema,
  cursor: nextPage,
});

const remove = route({
  method: "DELETE",
  path: "/v2/workflows/dlq/{dlqId}",
  tag,
  summary: "Delete a failed workflow run",
  about: "A deleted run cannot be resumed. Its log entries stay until their own retention ends.",
  params: byDlqId,
  query: z.object(dryRunParameter),
  answers: {
    200: {
      about: "The number deleted or, with dryRun=true, the number that would be deleted.",
      schema: z.union([deletedSchema, dryRunSchema]),
    },
  },
  refusals: ["not-found"],
  handle: async ({ account, params: { dlqId }, query, context }) => {
    await findFailedRun(context, account.id, dlqId);
    if (query.dryRun === "true") return { status: 200, body: await dryRun(makeSinglePage(dlqId)) };
    const answer = await removeAll(context, account, [dlqId]);
    if (answer.deleted === 0) throw makeNotFound(dlqId);
    return { status: 200, body: answer };
  },
});

const removeMany = route({
  method: "DELETE",
  path: "/v2/workflows/dlq",
  runsManyBatches: true,
  tag,
  summary: "Delete many failed workflow runs",
  about:
    "Deletes the failed runs with the given ids, or those that pass all filters, oldest first. Without " +
    "filters, deletes all failed runs.",
  query: chosenRunFilters.extend({
    count: portion("Ignored if dlqIds is given."),
    cursor: cursorParameter,
    ...dryRunParameter,
  }),
  answers: {
    200: {
      about: "The number deleted or, with dryRun=true, the number that would be deleted.",
      schema: z.union([deletedSchema, dryRunSchema]),
    },
  },
  refusals: [],
  handle: async ({ account, query, context }) => {
    const max = query.dlqIds?.length ?? query.count;
    const readPage = createPageReader(context, account.id, { query });
    if (query.dryRun === "true") return { status: 200, body: await dryRun(readPage, max) };
    const { ids, cursor, covers } = await readPage(null, max);
    const entries = ids.map((id) => ({ id }));
    const { done: deleted, failures } = await runBulk(context, { account, action: "dlq.delete", entries });
    const unknownIds = exclude((query.dlqIds ?? []).filter(covers), ids).map(describeMissing);
    return {
      status: 200,
      body: {
        deleted,
        ...toFailedMember([...unknownIds, ...failures]),
        ...(cursor === null ? {} : { cursor }),
      },
    };
  },
});

const removeAll = ({ store, retention }: RouteContext, account: Account, dlqIds: readonly string[]) =>
  store.execute("deleteDeadLetters", {
    account: account.id,
    dlqIds,
    logRetention: retentionFor(account, retention).log,
  });

/** The routes for workflow runs that have failed: read, delete, resume and restart them. */
export const workflowDlq: readonly Route[] = [
  list,
  groupFailedRuns,
  get,
  remove,
  removeMany,
  makeContinueOneRoute("failure"),
  makeContinueManyRoute("failure"),
  makeContinueOneRoute("beginning"),
  makeContinueManyRoute("beginning"),
  repeatFailureCallback,
  cancelFailureCallback,
];
