import { z } from "zod";
import { isId, isDlqId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Filter } from "../../../core/search/filter.ts";
import { maxFilterValues } from "../../../core/search/filter.ts";
import { limits } from "../../../core/values/limits.ts";
import type { AccountId } from "../../../core/model/message.ts";
import type { DeadLetterPage } from "../../../store/queries/deadLetters.ts";
import { deadLetterFilters, toFilter, actionKeyFilters } from "./filters.ts";
import { textList, numberList } from "../../http/parameters.ts";
import { callbackStateSchema } from "../../views/failedRuns.ts";
import type { RouteContext } from "../../route/route.ts";

/** Its caller chose it, so it may have commas. */
const runIds = z
  .array(z.string().min(1, "is empty").max(limits.nameLength, `is longer than ${limits.nameLength} characters`))
  .max(maxFilterValues, `has more than ${maxFilterValues} values`);
const callbackStates = textList().pipe(z.array(callbackStateSchema));

/** What failed runs can be chosen by, and messages cannot. */
export const runOnlyFilters = {
  workflowRunId: runIds.optional().describe("The id of the run. Several runs can have one."),
  workflowUrl: textList("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: numberList().optional().describe("When the run began, in unix milliseconds, exactly."),
  failureFunctionState: callbackStates.optional().describe("What became of the failure callback."),
  failureCallbackState: callbackStates.optional().describe("Another spelling of failureFunctionState."),
};

/** Which failed runs. */
export const failedRunFilters = deadLetterFilters.omit({ topicName: true, queueName: true, scheduleId: true }).extend(runOnlyFilters);

/** Which failed runs an action does something to. */
export const chosenRunFilters = failedRunFilters.extend(actionKeyFilters);

/** Which failed runs to go on with. */
export const continuedRunFilters = chosenRunFilters.extend({
  workflowRunId: runIds.optional().describe("The id of the run, or how it begins."),
});

type FailedRunParameters = z.output<typeof deadLetterFilters> & Partial<z.output<typeof failedRunFilters>>;

/**
 * The filter of the house, of what was asked of failed runs. `runIds`: whether a run is meant by its id alone, or also by how that begins.
 * Throws `Refusal` when the dates are the wrong way round.
 */
export function toFailedRunFilter(parameters: FailedRunParameters, runIds: "runIds" | "runIdStarts" = "runIds"): Filter {
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

type EntriesQuery = {
  filter: Filter;
  order?: "earliestFirst" | "latestFirst";
  cursor?: string | null | undefined;
  count: number;
  bodies?: false;
};

/** A page of the dead letter queue. Throws `Refusal` for a cursor that it has not given out. */
export function readEntries({ store }: RouteContext, account: AccountId, entriesQuery: EntriesQuery): Promise<DeadLetterPage> {
  const { filter, order = "earliestFirst", cursor = null, count, bodies } = entriesQuery;
  if (cursor !== null && !isDlqId(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
  return store.read.deadLetters({ account, filter, order, cursor, count, ...(bodies === false ? { bodies } : {}) });
}
