import type { StoreCountName } from "../../core/explain/storeCounts.ts";
import { readStoreCount } from "../../core/explain/storeCounts.ts";
import type { Rows, TableName } from "../../core/decision/command.ts";

type CountedChange<Row> = { loaded: boolean; before: Row | undefined; now: Row | undefined };
/** The changes of a batch. */
type BatchChanges = { changes<T extends TableName>(table: T): readonly CountedChange<Rows[T]>[] };

/** Returns how a batch changes the counts of all accounts, without those that stay the same. */
export function sumStoreCounts(set: BatchChanges): Map<StoreCountName, number> {
  const sums = new Map<StoreCountName, number>();
  const add = (name: StoreCountName | null, by: number): void => {
    if (name !== null && by !== 0) sums.set(name, (sums.get(name) ?? 0) + by);
  };
  for (const { before, now } of set.changes("messages")) {
    const earlier = before ? readStoreCount(before) : null;
    const later = now ? readStoreCount(now) : null;
    if (earlier === later) continue;
    add(earlier, -1);
    add(later, 1);
  }
  // A dead letter is removed without its body, so the row itself was not loaded. It did exist.
  for (const { loaded, before, now } of set.changes("deadLetters"))
    add("deadLetters", (now ? 1 : 0) - (before || (!loaded && !now) ? 1 : 0));
  for (const { before, now } of set.changes("activeRuns"))
    add("activeRuns", (now ? 1 : 0) - (before ? 1 : 0));
  for (const { before, now } of set.changes("waiters")) add("waiters", (now ? 1 : 0) - (before ? 1 : 0));
  for (const [name, sum] of sums) if (sum === 0) sums.delete(name);
  return sums;
}
