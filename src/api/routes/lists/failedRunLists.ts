import { z } from "zod";
import { isCauseId } from "../../../engine/core/model/cause.ts";
import { isId, isDlqId } from "../../../engine/core/values/ids.ts";
import { day } from "../../../engine/core/values/time.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Filter } from "../../../engine/core/search/filter.ts";
import { maxFilterValues } from "../../../engine/core/search/filter.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { DeadLetterPage, FailureGroupPage } from "../../../engine/store/queries/deadLetters.ts";
import { deadLetterFilters, toFilter, actionKeyFilters } from "./filters.ts";
import { count, textList, numberList } from "../../http/parameters.ts";
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

/** The maximum number of failures that one request groups if it reads them. */
export const maxGrouped = 1_000;

/** The parameter for the maximum number of groups. */
export const groupCountParameter = count({
  ...{ max: 100, defaultCount: 100 },
  about: "The largest groups are returned.",
});

/** A request for groups of failures. `count`: the maximum number of groups. */
export type GroupsQuery = Pick<EntriesQuery, "filter" | "cursor"> & { count: number };

/** The time for which groups show a trend, unless the request limits the time. */
const trendSpan = day;

/**
 * Groups failures by cause. Failures that are limited by nothing but their cause and their time are counted
 * where they are stored, all of them. With other filters, groups the latest failures that pass the filter.
 * Throws `Refusal` if the cursor is of another list.
 */
export async function readFailureGroups(
  { store, now }: RouteContext,
  account: AccountId,
  { filter, cursor, count }: GroupsQuery,
): Promise<FailureGroupPage & { causes: number }> {
  const { from, to, causes, belongsToRun, ...others } = filter;
  const end = to === undefined ? now() + 1 : to + 1;
  const trend = { from: from ?? Math.max(0, end - trendSpan), to: end };
  if (belongsToRun !== undefined && Object.keys(others).length === 0) {
    if (cursor !== undefined && cursor !== null && !isCauseId(cursor)) throw unknownCursor();
    const of = belongsToRun ? "runs" : "messages";
    return store.read.groupByCause({ account, of, from, to, causes, trend, cursor: cursor ?? null, count });
  }
  const page = await store.read.groupDeadLetters({
    ...{ account, filter, order: "latestFirst", count: maxGrouped, trend },
    cursor: parseCursor(cursor),
  });
  return { ...page, groups: page.groups.slice(0, count), causes: page.groups.length };
}

function parseCursor(cursor: string | null = null): string | null {
  if (cursor !== null && !isDlqId(cursor)) throw unknownCursor();
  return cursor;
}

const unknownCursor = (): Refusal =>
  new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");

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
