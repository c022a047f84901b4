/** A filter that a person has named: the parameters of its page. */
export type SavedFilter = { name: string; search: Readonly<Record<string, string>> };

/** Opens the storage of the browser. It throws if the browser blocks it. */
type OpenPlace = () => Pick<Storage, "getItem" | "setItem">;

/** The maximum number of filters of one page. */
const maxSaved = 50;
/** The maximum length of the name of a filter. */
export const maxNameLength = 60;

const keyOf = (account: string, page: string): string => `waypost-filters ${account} ${page}`;

/** Returns the filters that this browser keeps for a page of an account. Ignores other data. */
export function readSavedFilters(open: OpenPlace, account: string, page: string): readonly SavedFilter[] {
  try {
    const found: unknown = JSON.parse(open().getItem(keyOf(account, page)) ?? "[]");
    return Array.isArray(found) ? found.filter(isSavedFilter).slice(0, maxSaved) : [];
  } catch {
    return [];
  }
}

const isSavedFilter = (one: unknown): one is SavedFilter =>
  typeof one === "object" &&
  one !== null &&
  "name" in one &&
  typeof one.name === "string" &&
  "search" in one &&
  typeof one.search === "object" &&
  one.search !== null &&
  Object.values(one.search).every((value) => typeof value === "string");

/** Keeps filters of a page. Reports whether the browser could keep them. */
export function writeSavedFilters(
  open: OpenPlace,
  { account, page }: { account: string; page: string },
  filters: readonly SavedFilter[],
): boolean {
  try {
    open().setItem(keyOf(account, page), JSON.stringify(filters));
    return true;
  } catch {
    return false;
  }
}

/** Returns the filters with a further one. It replaces one with the same name. Null: there are too many. */
export function addFilter(all: readonly SavedFilter[], added: SavedFilter): readonly SavedFilter[] | null {
  const others = all.filter(({ name }) => name !== added.name);
  if (others.length >= maxSaved) return null;
  return [...others, added].toSorted((one, other) => one.name.localeCompare(other.name, "en"));
}

/**
 * The parameters of a page that do not belong to its filter: the place in a list, what is open, and the
 * action that is planned.
 */
const passing = new Set(["cursor", "back", "open", "act"]);

/** Returns the filter that a page shows, or null if it shows none. */
export function pickFilter(
  values: Readonly<Record<string, string | undefined>>,
): SavedFilter["search"] | null {
  const shown = Object.entries(values).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !passing.has(entry[0]),
  );
  return shown.length === 0 ? null : Object.fromEntries(shown);
}
