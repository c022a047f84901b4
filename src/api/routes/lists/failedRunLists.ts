import { z } from "zod";
import { isId, isDlqId } from "../../../engine/core/values/ids.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Filter } from "../../../engine/core/search/filter.ts";
import { maxFilterValues } from "../../../engine/core/search/filter.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { DeadLetterPage, FailureGroupPage } from "../../../engine/store/queries/deadLetters.ts";
import { deadLetterFilters, toFilter, actionKeyFilters } from "./filters.ts";
import { textList, numberList } from "../../http/parameters.ts";
import { callbackStateSchema } from "../../views/failedRuns.ts";
import type { RouteContext } from "../../route/route.ts";

/**
 * A parameter with run ids. Its values are not split at commas: callers choose run ids, so an id may contain
 * a comma.
 */
export const runIds = z
  .array(
    z.string().min(1, "is empty").max(limits.nameLength, `is longer than ${limits.nameLength} characters`),
  )
  .max(maxFilterValues, `has more than ${maxFilterValues} values`);
const callbackStates = textList().pipe(z.array(callbackStateSchema));

/** The filters that apply to failed runs but not to messages. */
export const runOnlyFilters = {
  workflowRunId: runIds
    .optional()
    .describe(
      "The id of the run. Several runs may have used the same id. Repeat the parameter for several ids.",
    ),
  workflowUrl: textList("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: numberList()
    .optional()
    .describe("The exact time at which the run was created, in Unix milliseconds."),
  failureFunctionState: callbackStates.optional().describe("The state of the failure callback."),
  failureCallbackState: callbackStates.optional().describe("Alias of failureFunctionState."),
};

/** The filters for failed runs. */
export const failedRunFilters = deadLetterFilters
  .omit({ topicName: true, queueName: true, scheduleId: true })
  .extend(runOnlyFilters);

/** The filters of bulk actions on failed runs. */
export const chosenRunFilters = failedRunFilters.extend(actionKeyFilters);

/** The filters for failed runs to resume or restart. */
export const continuedRunFilters = chosenRunFilters.extend({
  workflowRunId: runIds.optional().describe("The id of the run, or a prefix of it."),
});

type FailedRunParameters = z.output<typeof deadLetterFilters> & Partial<z.output<typeof failedRunFilters>>;

/**
 * Returns the filter for the given parameters. `runIds` says whether a run id must be equal or only begin
 * with the given text. Throws `Refusal` if `fromDate` is later than `toDate`.
 */
export function toFailedRunFilter(
  parameters: FailedRunParameters,
  runIds: "runIds" | "runIdStarts" = "runIds",
): Filter {
  if (parameters.dlqIds) return { dlqIds: parameters.dlqIds.filter(isId), belongsToRun: true };
  const states = [...(parameters.failureFunctionState ?? []), ...(parameters.failureCallbackState ?? [])];
  return {
    ...toFilter(parameters),
    belongsToRun: true,
    ...(parameters.workflowRunId ? { [runIds]: parameters.workflowRunId } : {}),
    ...(parameters.workflowUrl ? { runUrls: parameters.workflowUrl } : {}),
    ...(parameters.workflowCreatedAt ? { runsCreatedAt: parameters.workflowCreatedAt } : {}),
    ...(states.length > 0 ? { callbackStates: states } : {}),
  };
}

/** A request for a page of dead letters. */
export type EntriesQuery = {
  filter: Filter;
  order?: "earliestFirst" | "latestFirst";
  cursor?: string | null | undefined;
  count: number;
  bodies?: false;
};

/** The maximum number of failures that one request groups. */
export const maxGrouped = 1_000;

/**
 * Groups the latest failures that pass a filter by cause. Throws `Refusal` if the cursor is not an id of a
 * dead letter.
 */
export function readFailureGroups(
  { store }: RouteContext,
  account: AccountId,
  { filter, cursor }: Pick<EntriesQuery, "filter" | "cursor">,
): Promise<FailureGroupPage> {
  return store.read.groupDeadLetters({
    ...{ account, filter, order: "latestFirst", count: maxGrouped },
    cursor: parseCursor(cursor),
  });
}

function parseCursor(cursor: string | null = null): string | null {
  if (cursor !== null && !isDlqId(cursor))
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  return cursor;
}

/** Reads a page of the dead letter queue. Throws `Refusal` if the cursor is not an id of a dead letter. */
export function readEntries(
  { store }: RouteContext,
  account: AccountId,
  entriesQuery: EntriesQuery,
): Promise<DeadLetterPage> {
  const { filter, order = "earliestFirst", cursor, count, bodies } = entriesQuery;
  return store.read.deadLetters({
    account,
    filter,
    order,
    cursor: parseCursor(cursor),
    count,
    ...(bodies === undefined ? {} : { bodies }),
  });
}
