import { z } from "zod";
import { isId, isDlqId } from "../../../core/values/ids.ts";
import { Refusal } from "../../../core/values/errors.ts";
import type { Filter } from "../../../core/search/filter.ts";
import { mostValues } from "../../../core/search/filter.ts";
import { limits } from "../../../core/values/limits.ts";
import type { AccountId } from "../../../core/model/message.ts";
import type { DeadLetterPage } from "../../../store/queries/index.ts";
import { deadLetterFilters, filterOf, keysOfAction } from "./filters.ts";
import { several, severalNumbers } from "../../http/parameters.ts";
import { callbackState } from "../../views/failedRuns.ts";
import type { Parts } from "../../route/route.ts";

/** Its caller chose it, so it may have commas. */
const runIds = z
  .array(z.string().min(1, "is empty").max(limits.nameLength, `is longer than ${limits.nameLength} characters`))
  .max(mostValues, `has more than ${mostValues} values`);
const callbackStates = several().pipe(z.array(callbackState));

/** What failed runs can be chosen by, and messages cannot. */
export const onlyOfRuns = {
  workflowRunId: runIds.optional().describe("The id of the run. Several runs can have one."),
  workflowUrl: several("https?://").optional().describe("The URL of the workflow, exactly as it was given."),
  workflowCreatedAt: severalNumbers().optional().describe("When the run began, in unix milliseconds, exactly."),
  failureFunctionState: callbackStates.optional().describe("What became of the failure callback."),
  failureCallbackState: callbackStates.optional().describe("Another spelling of failureFunctionState."),
};

/** Which failed runs. */
export const failedRunFilters = deadLetterFilters.omit({ topicName: true, queueName: true, scheduleId: true }).extend(onlyOfRuns);

/** Which failed runs an action does something to. */
export const chosenRunFilters = failedRunFilters.extend(keysOfAction);

/** Which failed runs to go on with. */
export const continuedRunFilters = chosenRunFilters.extend({
  workflowRunId: runIds.optional().describe("The id of the run, or how it begins."),
});

type Asked = z.output<typeof deadLetterFilters> & Partial<z.output<typeof failedRunFilters>>;

/**
 * The filter of the house, of what was asked of failed runs. `runIds`: whether a run is meant by its id alone, or also by how that begins.
 * Throws `Refusal` when the dates are the wrong way round.
 */
export function failedRunFilter(asked: Asked, runIds: "runIds" | "runIdStarts" = "runIds"): Filter {
  if (asked.dlqIds) return { dlqIds: asked.dlqIds.filter(isId), ofRuns: true };
  const states = [...(asked.failureFunctionState ?? []), ...(asked.failureCallbackState ?? [])];
  return {
    ...filterOf(asked),
    ofRuns: true,
    ...(asked.workflowRunId ? { [runIds]: asked.workflowRunId } : {}),
    ...(asked.workflowUrl ? { runUrls: asked.workflowUrl } : {}),
    ...(asked.workflowCreatedAt ? { runsCreatedAt: asked.workflowCreatedAt } : {}),
    ...(states.length > 0 ? { callbackStates: states } : {}),
  };
}

type Wanted = {
  filter: Filter;
  order?: "earliestFirst" | "latestFirst";
  cursor?: string | null | undefined;
  count: number;
  bodies?: false;
};

/** A page of the dead letter queue. Throws `Refusal` for a cursor that it has not given out. */
export function entriesOf({ store }: Parts, account: AccountId, wanted: Wanted): Promise<DeadLetterPage> {
  const { filter, order = "earliestFirst", cursor = null, count, bodies } = wanted;
  if (cursor !== null && !isDlqId(cursor)) throw new Refusal("invalid", "cursor: not one that this list has given out");
  return store.read.deadLetters({ account, filter, order, cursor, count, ...(bodies === false ? { bodies } : {}) });
}
