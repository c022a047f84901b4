import type { Filter } from "../../core/search/filter.ts";
import type { AccountId } from "../../core/model/message.ts";
import { marksWanted, mostValues } from "../../core/search/filter.ts";
import type { MarkedList } from "../../core/search/tags.ts";
import { markOf, markPrefix, markStart, readMark } from "../../core/search/tags.ts";
import type { Range, Shelf } from "./storageReads.ts";
import { past } from "./storageReads.ts";

/** Rows of a list that have one of these marks, whatever else is asked of them. */
export type Marked = { list: MarkedList; marks: readonly string[] };

type Stretch = Omit<Range, "limit">;

/** So far is counted to see which of several filters has the least. */
export const probe = 100;
const chunk = 500;

/** The shortest way through a list to all that passes a filter: by the marks of which there are the fewest. Null: all of it. */
export async function shortestWay(shelf: Shelf, list: MarkedList, filter: Filter, range: Stretch): Promise<Marked | null> {
  const ways = marksWanted(filter, list)
    .filter((marks) => marks.length <= mostValues)
    .map((marks) => ({ list, marks }));
  const named = list === "dlq" && filter.runIdStarts ? await marksOfRuns(shelf, range.account, filter.runIdStarts) : null;
  return fewest(shelf, named ? [{ list, marks: named }, ...ways] : ways, range);
}

/** So many marks that begin alike are looked at to see which there are. */
const mostAlike = 500;

/** The marks of the runs whose ids begin so. Null: too many to go through one by one. */
async function marksOfRuns(shelf: Shelf, account: AccountId, starts: readonly string[]): Promise<string[] | null> {
  const marks = new Set<string>();
  for (const start of starts.slice(0, mostValues + 1)) {
    const prefix = markStart("dlq", markOf.run(start));
    const rows = await shelf.range("marks", { account, after: prefix, limit: mostAlike });
    const alike = rows.filter(({ id }) => id.startsWith(prefix));
    if (alike.length === mostAlike) return null;
    for (const { id } of alike) marks.add(readMark(id));
  }
  return marks.size > mostValues || starts.length > mostValues ? null : [...marks];
}

/** Of several ways the one by the fewest marks. */
export async function fewest(shelf: Shelf, ways: readonly Marked[], range: Stretch): Promise<Marked | null> {
  if (ways.length < 2) return ways[0] ?? null;
  const sizes = await Promise.all(ways.map((way) => sizeOf(shelf, way, range)));
  return ways[sizes.indexOf(Math.min(...sizes))] ?? null;
}

/** How many marks of a way there are, counted up to `probe` or so. */
export async function sizeOf(shelf: Shelf, { list, marks }: Marked, range: Stretch): Promise<number> {
  const limit = Math.ceil(probe / marks.length);
  const found = await Promise.all(marks.map((mark) => shelf.range("marks", { ...within(list, mark, range), limit })));
  return found.reduce((sum, rows) => sum + rows.length, 0);
}

/** The ids of the rows that have one of the marks, each once, in order. */
export async function* markedIds(shelf: Shelf, { list, marks }: Marked, range: Stretch): AsyncGenerator<string> {
  const limit = Math.ceil(chunk / Math.max(1, marks.length));
  const sources = marks.map((mark) =>
    idsOf(shelf, { table: "marks", prefix: markPrefix(list, mark), range: within(list, mark, range), limit }),
  );
  let last: string | null = null;
  for await (const id of inOrder(sources, (a, b) => (range.descending ? a > b : a < b))) {
    if (id !== last) yield id;
    last = id;
  }
}

type Named = { table: "marks" | "sightings"; prefix: string; range: Stretch; limit: number };

/** What stands behind the prefix in the ids of a stretch, which all begin with it. */
export async function* idsOf(shelf: Shelf, of: Named): AsyncGenerator<string> {
  const whole: Range = { ...of.range, limit: of.limit };
  for (let range = whole; ;) {
    const rows = await shelf.range(of.table, range);
    for (const { id } of rows) yield id.slice(of.prefix.length);
    const last = rows.at(-1);
    if (!last || rows.length < of.limit) return;
    range = { ...whole, ...past(last.id, whole) };
  }
}

/** The stretch of marks that stand for a stretch of rows. No id of a row has a character as high as `~`. */
function within(list: MarkedList, mark: string, { account, after = "", before = "~", descending }: Stretch): Stretch {
  const prefix = markPrefix(list, mark);
  return { account, after: `${prefix}${after}`, before: `${prefix}${before}`, ...(descending ? { descending } : {}) };
}

/** Sources that are in order each, as one that is. */
export async function* inOrder<Item>(
  sources: readonly AsyncGenerator<Item>[],
  precedes: (a: Item, b: Item) => boolean,
): AsyncGenerator<Item> {
  const started = await Promise.all(sources.map(async (source) => ({ source, head: await source.next() })));
  let open = started.filter(({ head }) => !head.done);
  while (open.length > 0) {
    const first = open.reduce((a, b) => (!b.head.done && !a.head.done && precedes(b.head.value, a.head.value) ? b : a));
    if (!first.head.done) yield first.head.value;
    first.head = await first.source.next();
    if (first.head.done) open = open.filter((one) => one !== first);
  }
}
