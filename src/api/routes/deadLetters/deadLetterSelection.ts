import { z } from "zod";
import { isId } from "../../../engine/core/values/ids.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Account } from "../../../engine/core/model/account.ts";
import type { Filter } from "../../../engine/core/search/filter.ts";
import { dryRun, dryRunParameter } from "../../publishing/dryRun.ts";
import { cursorParameter, deadLetterFilters, toFilter, actionKeyFilters } from "../lists/filters.ts";
import { count } from "../../http/parameters.ts";
import type { RouteContext } from "../../route/route.ts";
import type { Sweep } from "../lists/sweep.ts";
import { readSweep } from "../lists/sweep.ts";

/** Returns the parameter `count`: the number of dead letters in one response. */
export const countParameter = (about: string) => count({ max: 100, defaultCount: 100, about });
/** The cursor of a response that lists dead letters. */
export const nextPage = z
  .string()
  .optional()
  .describe("Cursor of the next page, for the parameter `cursor`. Absent on the last page.");

/** The path parameter of a dead letter. */
export const byId = z.object({ dlqId: z.string() });

/** The query parameters by which a bulk action selects dead letters. */
export const selectionSchema = deadLetterFilters.extend({
  ...actionKeyFilters,
  count: countParameter("Ignored if dlqIds is given."),
  cursor: cursorParameter,
  ...dryRunParameter,
});

/** A selection of dead letters, as a request describes it. */
export type Selection = z.output<typeof selectionSchema>;

/** Returns the ids of the selected dead letters, and the cursor of the next request. */
export async function selectEntries(
  context: RouteContext,
  account: Account,
  query: Selection,
): Promise<Sweep> {
  if (query.dlqIds)
    return {
      ids: listChosenIds(query).filter(isId),
      cursor: null,
      isInRange: () => true,
      cursorAfter: (dlqId) => dlqId,
    };
  return readSweep(context, account.id, { ...query, filter: toMessageFilter(query) });
}

/**
 * Returns the given ids. With a cursor, returns only the ids after the one at which an earlier request
 * stopped.
 */
export const listChosenIds = ({ dlqIds = [], cursor }: Selection): string[] =>
  dlqIds.slice(cursor === undefined ? 0 : dlqIds.indexOf(cursor) + 1);

/**
 * Returns the filter of a selection. Given `dlqIds` may be ids of messages and of runs. All other filters
 * find only messages.
 */
export const toMessageFilter = (query: z.output<typeof deadLetterFilters>): Filter =>
  query.dlqIds ? { dlqIds: query.dlqIds.filter(isId) } : { ...toFilter(query), belongsToRun: false };

/** Counts the dead letters that a request would change. `only` further restricts the request's filter. */
export function countSelected(
  context: RouteContext,
  account: Account,
  { query, only = {} }: { query: Selection; only?: Pick<Filter, "belongsToRun"> },
) {
  const filter = { ...toMessageFilter(query), ...only };
  return dryRun(
    (from, count) =>
      readSweep(context, account.id, { filter, cursor: from ?? (query.dlqIds ? null : query.cursor), count }),
    query.dlqIds ? query.dlqIds.length : query.count,
  );
}

/** Returns the refusal for a dead letter that does not exist. */
export const makeNotFound = (id: string): Refusal =>
  new Refusal("not-found", `dlqId: there is no dead letter ${JSON.stringify(id.slice(0, 200))}`);
