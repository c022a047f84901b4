import { z } from "zod";
import { dryRun, dryRunParameter } from "../../publishing/dryRun.ts";
import { makeDeadLetterRoutes } from "../deadLetters/deadLetterRoutes.ts";
import { countParameter } from "../deadLetters/deadLetterSelection.ts";
import {
  chosenRunFilters,
  failedRunFilters,
  groupCountParameter,
  maxGrouped,
  toFailedRunFilter,
} from "../lists/failedRunLists.ts";
import { cursorParameter, orderParameter } from "../lists/filters.ts";
import { maxOfCause } from "../../../engine/store/queries/causes.ts";
import { failedRunGroupFields } from "../../fields/failureGroup.ts";
import type { Route } from "../../route/route.ts";
import {
  byDlqId as byId,
  createPageReader,
  describeMissing,
  exclude,
  failedRunsTag as tag,
  findFailedRun,
  makeNotFound,
  nextPage,
} from "./failedRunEntries.ts";
import { cancelFailureCallback, repeatFailureCallback } from "./failureCallbacks.ts";
import { makeContinueManyRoute, makeContinueOneRoute } from "./resumeFailedRuns.ts";

const answer = "The number deleted or, with dryRun=true, the number that would be deleted.";

const routes = makeDeadLetterRoutes({
  path: "/v2/workflows/dlq",
  tag,
  byId,
  nextPage,
  makeNotFound,
  list: {
    summary: "List failed workflow runs",
    about:
      "Returns the runs that have failed for good. An entry shows the message that failed, its last " +
      "response, the run with its initial payload as body, and the state of its failure callback. fromDate " +
      "and toDate are compared with the time of the failure. GET /v2/dlq?source=workflow returns the same " +
      "list.",
    query: failedRunFilters.extend({
      order: orderParameter("earliestFirst"),
      count: countParameter("A page has fewer if bodies are large."),
      cursor: cursorParameter,
    }),
    page: "A page of failed runs.",
    messages: "The failed runs, in the requested order.",
    toQuery: (query) => ({ ...query, filter: toFailedRunFilter(query) }),
  },
  groups: {
    summary: "Group failed workflow runs",
    about:
      "Groups the runs of the same workflow that failed at the same step with the same error. The largest " +
      "group comes first. Without filters, or with cause, fromDate and toDate alone, all failed runs are " +
      `counted, up to ${maxOfCause} of each cause, and the cursor continues after 500 causes. With other ` +
      `filters, one request groups the latest ${maxGrouped} runs that pass all filters, and the cursor ` +
      "continues with older ones. It groups fewer if bodies are large, or if few runs pass.",
    query: failedRunFilters.extend({ count: groupCountParameter, cursor: cursorParameter }),
    fields: failedRunGroupFields,
    entries: "The number of failed runs that this response counts.",
    more: "There are failed runs that this response does not count. Absent if there are none.",
    toQuery: (query) => ({ filter: toFailedRunFilter(query), cursor: query.cursor, count: query.count }),
  },
  read: { summary: "Read a failed workflow run", answer: "The failed run.", find: findFailedRun },
  remove: {
    summary: "Delete a failed workflow run",
    about: "A deleted run cannot be resumed. Its log entries stay until their own retention ends.",
    deleted: "The number of failed runs that were deleted.",
    answer,
    query: z.object(dryRunParameter),
    check: findFailedRun,
  },
  removeMany: {
    summary: "Delete many failed workflow runs",
    about:
      "Deletes the failed runs with the given ids, or those that pass all filters, oldest first. Without " +
      "filters, deletes all failed runs.",
    answer,
    query: chosenRunFilters.extend({
      count: countParameter("Ignored if dlqIds is given."),
      cursor: cursorParameter,
      ...dryRunParameter,
    }),
    countChosen: ({ account, query, context }) =>
      dryRun(createPageReader(context, account.id, { query }), query.dlqIds?.length ?? query.count),
    choose: async ({ account, query, context }) => {
      const readPage = createPageReader(context, account.id, { query });
      const { ids, cursor, isInRange: covers } = await readPage(null, query.dlqIds?.length ?? query.count);
      const unknown = exclude((query.dlqIds ?? []).filter(covers), ids).map(describeMissing);
      return { ids, cursor, listFailed: (failures) => [...unknown, ...failures] };
    },
  },
});

/** The routes for workflow runs that have failed: read, delete, resume and restart them. */
export const workflowDlq: readonly Route[] = [
  ...routes,
  makeContinueOneRoute("failure"),
  makeContinueManyRoute("failure"),
  makeContinueOneRoute("beginning"),
  makeContinueManyRoute("beginning"),
  repeatFailureCallback,
  cancelFailureCallback,
];
