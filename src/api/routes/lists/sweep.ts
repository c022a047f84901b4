import { Refusal } from "../../../engine/core/values/errors.ts";
import type { Filter } from "../../../engine/core/search/filter.ts";
import { readIdTime, isDlqId } from "../../../engine/core/values/ids.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import { readEntries } from "./failedRunLists.ts";
import type { RouteContext } from "../../route/route.ts";

/** The entries that one request of a bulk action handles. */
export type Sweep = {
  ids: string[];
  /** The cursor of the next request. Null if nothing is left. */
  cursor: string | null;
  /** Reports whether the position of an entry is within this page. */
  isInRange: (dlqId: string) => boolean;
  /** Returns the cursor for a request that stopped after this id. */
  cursorAfter(dlqId: string): string;
};

type SweepQuery = { filter: Filter; cursor?: string | null | undefined; count: number };

/**
 * Reads the next entries of a bulk action, oldest first. The action covers only the entries that existed at
 * its first request, so its cursor also contains the id of the newest of them. Without this bound, a client
 * that repeats the request until there is no cursor might never finish: a message that is retried and fails
 * again becomes a new entry. Throws `Refusal` if the cursor is invalid.
 */
export async function readSweep(
  context: RouteContext,
  account: AccountId,
  { filter, cursor = null, count }: SweepQuery,
): Promise<Sweep> {
  const [from = null, end = null, ...more] = cursor?.split("_") ?? [];
  if ((end !== null && !isDlqId(end)) || more.length > 0)
    throw new Refusal("invalid", "cursor: unknown; use the cursor of the previous page");
  const boundedFilter =
    end === null ? filter : { ...filter, to: Math.min(filter.to ?? Infinity, readIdTime(end)) };
  const page = await readEntries(context, account, {
    filter: boundedFilter,
    cursor: from,
    count,
    bodies: false,
  });
  const ids = page.entries.map(({ deadLetter }) => deadLetter.id);
  const last = end ?? (page.cursor === null ? ids.at(-1) : await findNewestId(context, account));
  const cursorAfter = (dlqId: string): string => (last === undefined ? dlqId : `${dlqId}_${last}`);
  const covers = (dlqId: string): boolean =>
    dlqId > (from ?? "") && (page.cursor === null || dlqId <= page.cursor);
  return { ids, cursor: page.cursor && cursorAfter(page.cursor), isInRange: covers, cursorAfter };
}

/** Returns the id of the newest entry in the dead letter queue. */
export async function findNewestId(context: RouteContext, account: AccountId): Promise<string | undefined> {
  const { entries } = await readEntries(context, account, {
    filter: {},
    order: "latestFirst",
    count: 1,
    bodies: false,
  });
  return entries[0]?.deadLetter.id;
}
