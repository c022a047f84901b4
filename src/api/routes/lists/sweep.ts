import { Refusal } from "../../../core/values/errors.ts";
import type { Filter } from "../../../core/search/filter.ts";
import { readIdTime, isDlqId } from "../../../core/values/ids.ts";
import type { AccountId } from "../../../core/model/message.ts";
import { readEntries } from "./failedRunLists.ts";
import type { RouteContext } from "../../route/route.ts";

/** What one request of an action on many entries is to do something to. */
export type Sweep = {
  ids: string[];
  /** Where the next request goes on. Null: there is nothing left. */
  cursor: string | null;
  /** Whether this request, and no other page of the same action, has looked for this entry. */
  covers: (dlqId: string) => boolean;
  /** The cursor of a request that stopped behind one of the ids. */
  cursorAfter(dlqId: string): string;
};

type SweepQuery = { filter: Filter; cursor?: string | null | undefined; count: number };

/**
 * The next entries of an action on all that pass a filter, oldest first. The action means what was there at its first request: what is sent
 * again and fails again becomes a new entry, and whoever goes on until there is no cursor would send it again for ever. So a cursor also says
 * where the end was. Throws `Refusal` for a cursor that was not given out.
 */
export async function readSweep(context: RouteContext, account: AccountId, { filter, cursor = null, count }: SweepQuery): Promise<Sweep> {
  const [from = null, end = null, ...more] = cursor?.split("_") ?? [];
  if ((end !== null && !isDlqId(end)) || more.length > 0) throw new Refusal("invalid", "cursor: not one that this list has given out");
  const boundedFilter = end === null ? filter : { ...filter, to: Math.min(filter.to ?? Infinity, readIdTime(end)) };
  const page = await readEntries(context, account, { filter: boundedFilter, cursor: from, count, bodies: false });
  const ids = page.entries.map(({ deadLetter }) => deadLetter.id);
  const last = end ?? (page.cursor === null ? ids.at(-1) : await findNewestId(context, account));
  const cursorAfter = (dlqId: string): string => (last === undefined ? dlqId : `${dlqId}_${last}`);
  const covers = (dlqId: string): boolean => dlqId > (from ?? "") && (page.cursor === null || dlqId <= page.cursor);
  return { ids, cursor: page.cursor && cursorAfter(page.cursor), covers, cursorAfter };
}

async function findNewestId(context: RouteContext, account: AccountId): Promise<string | undefined> {
  const { entries } = await readEntries(context, account, { filter: {}, order: "latestFirst", count: 1, bodies: false });
  return entries[0]?.deadLetter.id;
}
