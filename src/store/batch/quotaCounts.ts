import type { CountNeed, Key, TableName } from "../../core/decision/command.ts";
import { RetryInNextBatch } from "../../core/values/errors.ts";
import type { QuotaName } from "../../core/sending/quotas.ts";
import { toQuotaName, readQuotaRange } from "../../core/sending/quotas.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { Range } from "../queries/storageReads.ts";
import type { UndoLog } from "./undoLog.ts";

/** Returns the range of rows that a need counts. */
export function toQuotaRange({ account, name, limit }: CountNeed): Range {
  const [after, before] = readQuotaRange(name).range;
  return { account, limit, after, before };
}

/**
 * The numbers of queues, schedules and similar rows of accounts: as they were counted, and as the batch
 * changes them.
 */
export class QuotaCounts {
  readonly #counts = new Map<string, number>();
  readonly #undo: UndoLog;

  constructor(undo: UndoLog) {
    this.#undo = undo;
  }

  /**
   * Returns the needs whose counts are unknown, each once. If several needs count the same rows, the one with
   * the highest limit is returned.
   */
  pickUnknown(needs: readonly CountNeed[]): CountNeed[] {
    const unknown = new Map<string, CountNeed>();
    for (const need of needs) {
      const key = toQuotaKey(need.account, need.name);
      const other = unknown.get(key);
      if (!this.#counts.has(key) && (!other || other.limit < need.limit)) unknown.set(key, need);
    }
    return [...unknown.values()];
  }

  record(needs: readonly CountNeed[], counts: readonly number[]): void {
    needs.forEach(({ account, name }, at) => this.#counts.set(toQuotaKey(account, name), counts[at] ?? 0));
  }

  /** Counts a row that was created or removed, if such rows are counted. */
  change(table: TableName, [account, id = ""]: Key, by: 1 | -1): void {
    const name = this.#counts.size === 0 ? null : toQuotaName(table, id);
    if (name === null) return;
    const key = toQuotaKey(account, name);
    const count = this.#counts.get(key);
    if (count === undefined) return;
    this.#counts.set(key, count + by);
    this.#undo.push(() => this.#counts.set(key, count));
  }

  /**
   * Returns a count. Throws `RetryInNextBatch` if the count was not requested, because the need for it was
   * not known in time.
   */
  readCount(account: AccountId, name: QuotaName): number {
    const count = this.#counts.get(toQuotaKey(account, name));
    if (count === undefined) throw new RetryInNextBatch();
    return count;
  }
}

/** Returns the key of a count. */
export const toQuotaKey = (account: AccountId, name: QuotaName): string => `${name} ${account}`;
