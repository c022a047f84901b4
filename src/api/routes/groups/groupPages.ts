import { limits, memory } from "../../../engine/core/values/limits.ts";
import type { AccountId } from "../../../engine/core/values/basics.ts";
import type { UrlGroup } from "../../../engine/core/model/urlGroup.ts";
import { countFittingPage } from "../../../engine/store/layout/storageReads.ts";
import type { Store } from "../../../engine/store/store.ts";
import { groupJson } from "../../views/urlGroups.ts";

/**
 * The maximum number of URL groups in one list. If groups are created at the same moment, an account can have
 * slightly more groups than its limit.
 */
const maxListed = 2 * limits.groups;

/** The position of a group in the list, and the length of its JSON in characters. */
type GroupPosition = Pick<UrlGroup, "name" | "updatedAt"> & { length: number };

/** The sort keys of a group, and the length of its JSON in characters. */
export async function* listGroupPages(
  store: Store,
  account: AccountId,
): AsyncGenerator<readonly unknown[], void> {
  const { page, positions } = await readPositions(store, account);
  if (page) yield page;
  else for (const names of splitPages(positions)) yield await readShownGroups(store, account, names);
}

/**
 * Reads the positions of all groups. `page` has all groups if they fit on one page, and is null otherwise.
 */
async function readPositions(
  store: Store,
  account: AccountId,
): Promise<{ page: unknown[] | null; positions: GroupPosition[] }> {
  const positions: GroupPosition[] = [];
  let found: UrlGroup[] | null = [];
  for (let more = true; more && positions.length < maxListed;) {
    const last = positions.at(-1);
    const rows = await store.read.listResources("urlGroups", {
      account,
      limit: maxListed - positions.length,
      ...(last && { after: last.name }),
    });
    found = positions.length === 0 ? [...rows] : rows.length === 0 ? found : null;
    for (const row of rows)
      positions.push({
        name: row.name,
        updatedAt: row.updatedAt,
        length: JSON.stringify(groupJson(row)).length,
      });
    more = rows.length > 0;
  }
  return { page: found && found.toSorted(byChange).map(groupJson), positions: positions.toSorted(byChange) };
}

const byChange = (one: Pick<UrlGroup, "updatedAt">, other: Pick<UrlGroup, "updatedAt">): number =>
  other.updatedAt - one.updatedAt;

/** Returns the names of the groups that are read together, page by page, in order. */
function* splitPages(positions: readonly GroupPosition[]): Generator<string[]> {
  for (let at = 0; at < positions.length;) {
    const count = countFittingPage(
      positions.slice(at).map(({ length }) => length),
      memory.settings,
    );
    yield positions.slice(at, at + count).map(({ name }) => name);
    at += count;
  }
}

/**
 * Returns the groups with these names as the API shows them, in the order of the names. Skips groups that
 * were deleted since their names were read.
 */
async function readShownGroups(
  store: Store,
  account: AccountId,
  names: readonly string[],
): Promise<unknown[]> {
  const rows = await Promise.all(names.map((name) => store.read.findResource("urlGroups", account, name)));
  return rows.flatMap((row) => (row ? [groupJson(row)] : []));
}
