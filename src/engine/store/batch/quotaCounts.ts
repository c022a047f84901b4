import type { RowCountName, CountNeed, Key, TableName } from "../../core/decision/command.ts";
import { toCountName, readCountedRows } from "../../core/limits/rowLimits.ts";
import type { AccountId } from "../../core/values/basics.ts";
import type { Range } from "../layout/storageReads.ts";
import type { Overlay } from "./overlay.ts";
import type { UndoLog } from "./undoLog.ts";

/** Returns the range of rows that a need counts. */
export function toQuotaRange({ account, name, limit }: CountNeed): Range {
  const [after, before] = readCountedRows(name).range;
  return { account, limit, after, before };
}

/** How many rows are stored, counted up to `limit`, and how many the batch has created or removed. */
type KnownCount = { stored: number; limit: number; changed: number };

/**
 * The numbers of queues, schedules and similar rows of accounts: as they were counted, and as the batch
 * changes them.
 */
export class QuotaCounts {
  readonly #counts = new Map<string, KnownCount>();
  readonly #undo: UndoLog;

  constructor(undo: UndoLog) {
    this.#undo = undo;
  }

  /**
   * Returns each need once. If several needs count the same rows, the one with the highest limit is returned.
   */
  merge(needs: readonly CountNeed[]): CountNeed[] {
    const merged = new Map<string, CountNeed>();
    for (const need of needs) {
      const key = toQuotaKey(need.account, need.name);
      const other = merged.get(key);
      if (!other || other.limit < need.limit) merged.set(key, need);
    }
    return [...merged.values()];
  }

  /** Records how many rows are stored, and how many of them the batch has created or removed so far. */
  record(needs: readonly CountNeed[], stored: readonly number[], overlay: Pick<Overlay, "changes">): void {
    for (const [at, { account, name, limit }] of needs.entries())
      this.#counts.set(toQuotaKey(account, name), {
        stored: stored[at] ?? 0,
        limit,
        changed: countChanged(overlay, account, name),
      });
  }

  /** Counts a row that was created or removed, if such rows are counted. */
  change(table: TableName, [account, id = ""]: Key, by: 1 | -1): void {
    const name = this.#counts.size === 0 ? null : toCountName(table, id);
    if (name === null) return;
    const key = toQuotaKey(account, name);
    const count = this.#counts.get(key);
    if (count === undefined) return;
    this.#counts.set(key, { ...count, changed: count.changed + by });
    this.#undo.push(() => this.#counts.set(key, count));
  }

  /** Returns a count, or what must be counted to know it. */
  read(need: CountNeed): number | CountNeed {
    const known = this.#counts.get(toQuotaKey(need.account, need.name));
    if (known === undefined) return need;
    const { stored, limit, changed } = known;
    if (stored < limit || stored + changed >= need.limit) return stored + changed;
    // More rows may be stored than were counted.
    return { ...need, limit: need.limit - Math.min(0, changed) };
  }
}

/** Returns the key of a count. */
export const toQuotaKey = (account: AccountId, name: RowCountName): string => `${name} ${account}`;

function countChanged(overlay: Pick<Overlay, "changes">, account: AccountId, name: RowCountName): number {
  const { table } = readCountedRows(name);
  return overlay.changes(table).reduce((sum, { key, before, now }) => {
    if (key[0] !== account || toCountName(table, key[1] ?? "") !== name) return sum;
    return sum + (now === undefined ? 0 : 1) - (before === undefined ? 0 : 1);
  }, 0);
}
