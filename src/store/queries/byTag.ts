import type { Filter } from "../../core/search/filter.ts";
import type { AccountId } from "../../core/model/message.ts";
import { listWantedTags, maxFilterValues } from "../../core/search/filter.ts";
import type { TaggedList } from "../../core/search/tags.ts";
import { toTag, tagPrefix, tagStart, readTag } from "../../core/search/tags.ts";
import type { Range, StorageReads } from "./storageReads.ts";
import { rangePast } from "./storageReads.ts";

/** Rows of a list that have one of these marks, whatever else is asked of them. */
export type TagLookup = { list: TaggedList; tags: readonly string[] };

type IdRange = Omit<Range, "limit">;

/** So far is counted to see which of several filters has the least. */
export const probeLimit = 100;
const chunk = 500;

/** The shortest way through a list to all that passes a filter: by the marks of which there are the fewest. Null: all of it. */
export async function pickTagLookup(
  storageReads: StorageReads,
  list: TaggedList,
  filter: Filter,
  range: IdRange,
): Promise<TagLookup | null> {
  const lookups = listWantedTags(filter, list)
    .filter((tags) => tags.length <= maxFilterValues)
    .map((tags) => ({ list, tags }));
  const runTags = list === "dlq" && filter.runIdStarts ? await listRunTags(storageReads, range.account, filter.runIdStarts) : null;
  return pickSmallest(storageReads, runTags ? [{ list, tags: runTags }, ...lookups] : lookups, range);
}

/** So many marks that begin alike are looked at to see which there are. */
const maxWithPrefix = 500;

/** The marks of the runs whose ids begin so. Null: too many to go through one by one. */
async function listRunTags(storageReads: StorageReads, account: AccountId, starts: readonly string[]): Promise<string[] | null> {
  const tags = new Set<string>();
  for (const start of starts.slice(0, maxFilterValues + 1)) {
    const prefix = tagStart("dlq", toTag.run(start));
    const rows = await storageReads.range("tags", { account, after: prefix, limit: maxWithPrefix });
    const withPrefix = rows.filter(({ id }) => id.startsWith(prefix));
    if (withPrefix.length === maxWithPrefix) return null;
    for (const { id } of withPrefix) tags.add(readTag(id));
  }
  return tags.size > maxFilterValues || starts.length > maxFilterValues ? null : [...tags];
}

/** Of several ways the one by the fewest marks. */
export async function pickSmallest(storageReads: StorageReads, lookups: readonly TagLookup[], range: IdRange): Promise<TagLookup | null> {
  if (lookups.length < 2) return lookups[0] ?? null;
  const sizes = await Promise.all(lookups.map((lookup) => countTagged(storageReads, lookup, range)));
  return lookups[sizes.indexOf(Math.min(...sizes))] ?? null;
}

/** How many marks of a way there are, counted up to `probe` or so. */
export async function countTagged(storageReads: StorageReads, { list, tags }: TagLookup, range: IdRange): Promise<number> {
  const limit = Math.ceil(probeLimit / tags.length);
  const found = await Promise.all(tags.map((tag) => storageReads.range("tags", { ...toTagRange(list, tag, range), limit })));
  return found.reduce((sum, rows) => sum + rows.length, 0);
}

/** The ids of the rows that have one of the marks, each once, in order. */
export async function* listTaggedIds(storageReads: StorageReads, { list, tags }: TagLookup, range: IdRange): AsyncGenerator<string> {
  const limit = Math.ceil(chunk / Math.max(1, tags.length));
  const sources = tags.map((tag) =>
    readIds(storageReads, { table: "tags", prefix: tagPrefix(list, tag), range: toTagRange(list, tag, range), limit }),
  );
  let last: string | null = null;
  for await (const id of mergeSorted(sources, (a, b) => (range.descending ? a > b : a < b))) {
    if (id !== last) yield id;
    last = id;
  }
}

type PrefixedIds = { table: "tags" | "timeIndex"; prefix: string; range: IdRange; limit: number };

/** What stands behind the prefix in the ids of a stretch, which all begin with it. */
export async function* readIds(storageReads: StorageReads, source: PrefixedIds): AsyncGenerator<string> {
  const whole: Range = { ...source.range, limit: source.limit };
  for (let range = whole; ;) {
    const rows = await storageReads.range(source.table, range);
    for (const { id } of rows) yield id.slice(source.prefix.length);
    const last = rows.at(-1);
    if (!last || rows.length < source.limit) return;
    range = { ...whole, ...rangePast(last.id, whole) };
  }
}

/** The stretch of marks that stand for a stretch of rows. No id of a row has a character as high as `~`. */
function toTagRange(list: TaggedList, tag: string, { account, after = "", before = "~", descending }: IdRange): IdRange {
  const prefix = tagPrefix(list, tag);
  return { account, after: `${prefix}${after}`, before: `${prefix}${before}`, ...(descending ? { descending } : {}) };
}

/** Sources that are in order each, as one that is. */
export async function* mergeSorted<Item>(
  sources: readonly AsyncGenerator<Item>[],
  precedes: (a: Item, b: Item) => boolean,
): AsyncGenerator<Item> {
  const started = await Promise.all(sources.map(async (source) => ({ source, head: await source.next() })));
  let unfinished = started.filter(({ head }) => !head.done);
  while (unfinished.length > 0) {
    const first = unfinished.reduce((a, b) => (!b.head.done && !a.head.done && precedes(b.head.value, a.head.value) ? b : a));
    if (!first.head.done) yield first.head.value;
    first.head = await first.source.next();
    if (first.head.done) unfinished = unfinished.filter((source) => source !== first);
  }
}
