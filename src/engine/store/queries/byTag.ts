import type { Filter } from "../../core/search/filter.ts";
import type { AccountId } from "../../core/values/basics.ts";
import { listWantedTags, maxFilterValues } from "../../core/search/filter.ts";
import type { TaggedList } from "../../core/search/tags.ts";
import { toTag, tagPrefix, tagStart, readTag } from "../../core/search/tags.ts";
import type { Range, StorageReads } from "../layout/storageReads.ts";
import { rangePast } from "../layout/storageReads.ts";

/** The rows of a list that have at least one of these tags, regardless of the rest of a filter. */
export type TagLookup = { list: TaggedList; tags: readonly string[] };

type IdRange = Omit<Range, "limit">;

type TagScan = { list: TaggedList; filter: Filter; range: IdRange };

/** Rows are counted up to this number, to find the filter with the fewest rows. */
export const probeLimit = 100;
const chunk = 500;

/**
 * Returns the tags with which the fewest rows must be read to find all rows that pass a filter. Null: the
 * whole list must be read.
 */
export async function pickTagLookup(
  storageReads: StorageReads,
  { list, filter, range }: TagScan,
): Promise<TagLookup | null> {
  const lookups = listWantedTags(filter, list)
    .filter((tags) => tags.length <= maxFilterValues)
    .map((tags) => ({ list, tags }));
  const runTags =
    list === "dlq" && filter.runIdStarts
      ? await listRunTags(storageReads, range.account, filter.runIdStarts)
      : null;
  return pickSmallest(storageReads, runTags ? [{ list, tags: runTags }, ...lookups] : lookups, range);
}

/** At most this many tags with the same prefix are read to find out which exist. */
const maxWithPrefix = 500;

/**
 * Returns the tags of runs whose ids begin with one of these texts. Returns null if there are too many tags
 * to look up one by one.
 */
async function listRunTags(
  storageReads: StorageReads,
  account: AccountId,
  starts: readonly string[],
): Promise<string[] | null> {
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

/** Returns the lookup with the fewest rows. */
export async function pickSmallest(
  storageReads: StorageReads,
  lookups: readonly TagLookup[],
  range: IdRange,
): Promise<TagLookup | null> {
  if (lookups.length < 2) return lookups[0] ?? null;
  const sizes = await Promise.all(lookups.map((lookup) => countTagged(storageReads, lookup, range)));
  return lookups[sizes.indexOf(Math.min(...sizes))] ?? null;
}

/** Returns the number of rows of a lookup, counted up to about `probeLimit`. */
export async function countTagged(
  storageReads: StorageReads,
  { list, tags }: TagLookup,
  range: IdRange,
): Promise<number> {
  const limit = Math.ceil(probeLimit / tags.length);
  const found = await Promise.all(
    tags.map((tag) => storageReads.range("tags", { ...toTagRange(list, tag, range), limit })),
  );
  return found.reduce((sum, rows) => sum + rows.length, 0);
}

/** Returns the ids of the rows that have one of the tags, each once, in order. */
export async function* listTaggedIds(
  storageReads: StorageReads,
  { list, tags }: TagLookup,
  range: IdRange,
): AsyncGenerator<string> {
  const limit = Math.ceil(chunk / Math.max(1, tags.length));
  const sources = tags.map((tag) =>
    readIds(storageReads, {
      table: "tags",
      prefix: tagPrefix(list, tag),
      range: toTagRange(list, tag, range),
      limit,
    }),
  );
  let last: string | null = null;
  for await (const id of mergeSorted(sources, (a, b) => (range.descending ? a > b : a < b))) {
    if (id !== last) yield id;
    last = id;
  }
}

type PrefixedIds = { table: "tags" | "timeIndex"; prefix: string; range: IdRange; limit: number };

/** Returns the ids of a range without the prefix with which all of them begin. */
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

/** Returns the range of tags for a range of row ids. All characters of row ids sort before `~`. */
function toTagRange(
  list: TaggedList,
  tag: string,
  { account, after = "", before = "~", descending }: IdRange,
): IdRange {
  const prefix = tagPrefix(list, tag);
  return {
    account,
    after: `${prefix}${after}`,
    before: `${prefix}${before}`,
    ...(descending ? { descending } : {}),
  };
}

/** Merges sorted sources into one sorted source. */
export async function* mergeSorted<Item>(
  sources: readonly AsyncGenerator<Item>[],
  precedes: (a: Item, b: Item) => boolean,
): AsyncGenerator<Item> {
  const started = await Promise.all(sources.map(async (source) => ({ source, head: await source.next() })));
  let unfinished = started.filter(({ head }) => !head.done);
  while (unfinished.length > 0) {
    const first = unfinished.reduce((a, b) =>
      !b.head.done && !a.head.done && precedes(b.head.value, a.head.value) ? b : a,
    );
    if (!first.head.done) yield first.head.value;
    first.head = await first.source.next();
    if (first.head.done) unfinished = unfinished.filter((source) => source !== first);
  }
}
