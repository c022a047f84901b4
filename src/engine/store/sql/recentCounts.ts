import type { CountNeed, TableName } from "../../core/decision/command.ts";
import { readCountedRows, toCountName } from "../../core/limits/rowLimits.ts";
import type { WorkingSet } from "../batch/workingSet.ts";
import type { Loader } from "../batch/loader.ts";
import { toQuotaKey } from "../batch/quotaCounts.ts";
import { BoundedMap } from "../../core/caches/boundedMap.ts";

/** The maximum number of counts, over all kinds and accounts. */
const maxCounts = 1_000;

/**
 * Caches how many queues, schedules and similar rows accounts have, so that the rows are not counted each
 * time another row is created. Only for a storage with one writer.
 */
export class RecentCounts {
  readonly #counts = new BoundedMap<string, number>(maxCounts);
  /** The tables of which a count is or was known. */
  readonly #tables = new Set<TableName>();

  /** Updates the counts after a batch has been stored. */
  record(set: Pick<WorkingSet, "changes">): void {
    if (this.#counts.size === 0) return;
    for (const table of this.#tables) {
      for (const { key, loaded, before, now } of set.changes(table)) {
        const name = toCountName(table, key[1] ?? "");
        if (name === null) continue;
        const id = toQuotaKey(key[0], name);
        const count = this.#counts.get(id);
        if (count === undefined) continue;
        // A row that was removed without being loaded may not have existed.
        if (!loaded && now === undefined) this.#counts.delete(id);
        else this.#counts.set(id, count + (now ? 1 : 0) - (before ? 1 : 0));
      }
    }
  }

  forget(): void {
    this.#counts.clear();
  }

  /** Returns a function that takes counts from this cache, and loads unknown counts through the loader. */
  cachedCounts({ quotaCounts }: Pick<Loader, "quotaCounts">): Loader["quotaCounts"] {
    return async (needs) => {
      const known = needs.map(({ account, name }) => this.#counts.get(toQuotaKey(account, name)));
      const unknown = needs.filter((_need, at) => known[at] === undefined);
      const found = unknown.length === 0 ? [] : await quotaCounts(unknown);
      for (const [at, need] of unknown.entries()) this.#note(need, found[at] ?? 0);
      let next = 0;
      return needs.map((need, at) => Math.min(need.limit, known[at] ?? found[next++] ?? 0));
    };
  }

  /** Does not cache a count that has reached its limit, because rows beyond the limit are not counted. */
  #note({ account, name, limit }: CountNeed, count: number): void {
    if (count >= limit) return;
    this.#counts.set(toQuotaKey(account, name), count);
    this.#tables.add(readCountedRows(name).table);
  }
}
