import { z } from "zod";
import type { NotDone } from "../../../engine/core/values/errors.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { isDlqId } from "../../../engine/core/values/ids.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { DeadLetterEntry } from "../../../engine/store/queries/deadLetters.ts";
import type { failedRunFilters } from "../lists/failedRunLists.ts";
import { toFailedRunFilter } from "../lists/failedRunLists.ts";
import type { RouteContext } from "../../route/route.ts";
import { shorten } from "../../http/target.ts";
import type { Sweep } from "../lists/sweep.ts";
import { readSweep } from "../lists/sweep.ts";

/** The OpenAPI tag of the routes for failed runs. */
export const failedRunsTag = "Failed workflow runs";

/** The path parameter that names one failed run. */
export const byDlqId = z.object({
  dlqId: z.string().describe("The id of the failed run in the dead letter queue."),
});

/** The response field that has the cursor of the next page. */
export const nextPage = z
  .string()
  .optional()
  .describe("The cursor to pass for the next page. Absent on the last page.");

/** The filters and the cursor of a request that chooses failed runs. */
export type FailedRunSelection = z.output<typeof failedRunFilters> & { cursor?: string | undefined };

/**
 * Returns a function that reads the ids of the chosen failed runs, page by page. `runIds` says whether
 * `workflowRunId` must equal the run's id or only be a prefix of it.
 */
export const createPageReader =
  (
    context: RouteContext,
    account: AccountId,
    { query, runIds = "runIds" }: { query: FailedRunSelection; runIds?: "runIds" | "runIdStarts" },
  ) =>
  (cursor: string | null, count: number): Promise<Sweep> =>
    readSweep(context, account, {
      filter: toFailedRunFilter(query, runIds),
      cursor: cursor ?? query.cursor,
      count,
    });

/** Returns the ids that are not in `known`, without duplicates. */
export const exclude = (ids: readonly string[], known: readonly string[]): string[] => {
  const found = new Set(known);
  return [...new Set(ids)].filter((id) => !found.has(id));
};

/** Returns the entry of a failed run. Throws `Refusal` if it does not exist or is a message. */
export async function findFailedRun(
  { store }: RouteContext,
  account: AccountId,
  dlqId: string,
): Promise<DeadLetterEntry> {
  const entry = isDlqId(dlqId) ? await store.read.deadLetter(account, dlqId) : null;
  if (!entry) throw makeNotFound(dlqId);
  if (!entry.deadLetter.run)
    throw new Refusal("not-found", `dlqId: ${dlqId} is a message, not a workflow run; use /v2/dlq/${dlqId}`);
  return entry;
}

/** Returns the error for a failed run that does not exist. */
export const makeNotFound = (id: string): Refusal =>
  new Refusal("not-found", `dlqId: no failed run ${JSON.stringify(id.slice(0, 200))}`);

/** Returns the element of a response's `failed` list for a failed run that does not exist. */
export const describeMissing = (dlqId: string): NotDone => ({
  id: shorten(dlqId),
  reason: makeNotFound(dlqId).message,
});
