import { memory } from "../../../core/values/limits.ts";
import type { Filter } from "../../../core/search/filter.ts";
import type { FailureSummary } from "../../../core/workflows/failureGroups.ts";
import type { AccountId } from "../../../core/model/message.ts";
import type { DeadLetterEntry } from "../../../store/queries/deadLetters.ts";
import type { RouteContext } from "../../route/route.ts";
import { readEntries } from "./failedRunLists.ts";

/**
 * The maximum number of failures that one request groups. Reading also stops when the bodies exceed
 * `memory.page`.
 */
export const maxGrouped = 1_000;
/** The maximum number of pages that one request reads. Each reads many rows if the filter finds little. */
const maxPages = 12;

type FailureQuery = {
  filter: Filter;
  cursor: string | undefined;
  toFailure: (entry: DeadLetterEntry) => FailureSummary;
};

/** Returns the latest failures that pass a filter. Only one page of bodies is in memory at a time. */
export async function readLatestFailures(
  context: RouteContext,
  account: AccountId,
  { filter, cursor: from, toFailure }: FailureQuery,
): Promise<{ failures: FailureSummary[]; cursor: string | null }> {
  const failures: FailureSummary[] = [];
  let cursor = from ?? null;
  let bytes = 0;
  let pages = 0;
  do {
    const page = await readEntries(context, account, {
      ...{ filter, order: "latestFirst", cursor, count: 100 },
      bodies: "responses",
    });
    for (const entry of page.entries) {
      bytes += entry.deadLetter.body.byteLength;
      failures.push(toFailure(entry));
    }
    ({ cursor } = page);
    pages++;
  } while (cursor !== null && failures.length < maxGrouped && bytes < memory.page && pages < maxPages);
  return { failures, cursor };
}
