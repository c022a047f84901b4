import type { z } from "zod";
import { bulkActions, selectsDeadLetters } from "../../engine/core/bulk/actions.ts";
import type { BulkActionName, BulkSelection } from "../../engine/core/bulk/entries.ts";
import { isId } from "../../engine/core/values/ids.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import { dryRun } from "../../api/publishing/dryRun.ts";
import { choice, mergeParameters, readFields } from "../../api/http/parameters.ts";
import type { RouteContext } from "../../api/route/route.ts";
import { countSelection } from "../../api/routes/lists/bulk.ts";
import {
  continuedRunFilters,
  failedRunFilters,
  toFailedRunFilter,
} from "../../api/routes/lists/failedRunLists.ts";
import {
  actionKeyFilters,
  deadLetterFilters,
  messageFilters,
  toFilter,
} from "../../api/routes/lists/filters.ts";
import { findNewestId, readSweep } from "../../api/routes/lists/sweep.ts";
import { toMessageFilter } from "../../api/routes/deadLetters/deadLetterSelection.ts";
import { runSelectionSchema, toRunFilter } from "../../api/routes/workflows/runs.ts";

const deadLetters = deadLetterFilters.extend(actionKeyFilters);
const deletedEntries = failedRunFilters.extend({
  ...deadLetters.shape,
  source: choice(["workflow"]).optional(),
});

/** The filters of each action, as in the request that does the same without a job. */
const filterSchemas = {
  "dlq.retry": deadLetters,
  "dlq.delete": deletedEntries,
  "runs.resume": continuedRunFilters,
  "runs.restart": continuedRunFilters,
  "runs.cancel": runSelectionSchema.omit({ count: true, dryRun: true, details: true }),
  "messages.cancel": messageFilters,
} as const satisfies Record<BulkActionName, z.ZodObject>;

/** Returns what a job selects, from the filter of its request. Throws `Refusal` for an unknown field. */
export function readJobFilter(action: BulkActionName, members: unknown): BulkSelection {
  const fields = mergeParameters(null, members);
  const read = <T extends z.ZodObject>(schema: T): z.output<T> => readFields(schema, fields) as z.output<T>;
  switch (action) {
    case "dlq.retry":
      return { action, filter: { ...toMessageFilter(read(filterSchemas[action])), belongsToRun: false } };
    case "dlq.delete": {
      const parameters = read(filterSchemas[action]);
      if (parameters.source === "workflow") return { action, filter: toFailedRunFilter(parameters) };
      const runOnly = Object.keys(parameters).find((name) => !(name in deadLetters.shape));
      if (runOnly !== undefined)
        throw new Refusal("invalid", `${runOnly}: only valid with source: "workflow"`);
      return { action, filter: toMessageFilter(parameters) };
    }
    case "runs.resume":
    case "runs.restart":
      return { action, filter: toFailedRunFilter(read(filterSchemas[action]), "runIdStarts") };
    case "runs.cancel":
      return { action, filter: toRunFilter({ ...read(filterSchemas[action]), count: 0 }) };
    case "messages.cancel": {
      const parameters = read(filterSchemas[action]);
      const chosen = parameters.messageIds
        ? { messageIds: parameters.messageIds.filter(isId) }
        : toFilter(parameters);
      return { action, filter: { ...chosen, belongsToRun: false } };
    }
  }
}

/**
 * Returns the highest id that an entry of a new job may have. A dead letter that fails again during the job
 * has a higher one. Null: the store sets the highest id, because its clock makes the ids of messages and
 * runs.
 */
export async function findLastJobId(
  context: RouteContext,
  account: AccountId,
  action: BulkActionName,
): Promise<string | null> {
  if (bulkActions[action].list !== "deadLetters") return null;
  return (await findNewestId(context, account)) ?? "";
}

/** Counts the entries that a job would have. */
export const countJobEntries = (context: RouteContext, account: AccountId, selection: BulkSelection) =>
  selectsDeadLetters(selection)
    ? dryRun((cursor, count) => readSweep(context, account, { filter: selection.filter, cursor, count }))
    : countSelection(context, { account, ...selection });
