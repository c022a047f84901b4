import type { CountNeed, Key, TableName } from "../../core/decision/command.ts";
import { RetryInNextBatch } from "../../core/values/errors.ts";
import type { QuotaName } from "../../core/sending/quotas.ts";
import { toQuotaName, readQuotaRange } from "../../core/sending/quotas.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { Range } from "../queries/storageReads.ts";
import type { UndoLog } from "./undoLog.ts";

/** The rows that are counted. */
export function toQuotaRange({ account, name, limit }: CountNeed): Range {
  const [after, before] = readQuotaRange(name).range;
  return { account, limit, after, before };
}

/** How many there are of what is set up, as it was counted and as a batch changes it. */
export class QuotaCounts {
  readonly #counts = new Map<string, number>();

  /** Those of which nothing is known yet, each once, of several with the most that any of them wants. */
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

  /** Counts a row that was made or removed, if its like are counted. */
  change(table: TableName, [account, id = ""]: Key, by: 1 | -1, undo: UndoLog): void {
    const name = this.#counts.size === 0 ? null : toQuotaName(table, id);
    if (name === null) return;
    const key = toQuotaKey(account, name);
    const count = this.#counts.get(key);
    if (count === undefined) return;
    this.#counts.set(key, count + by);
    undo.push(() => this.#counts.set(key, count));
  }

  /** Throws `RetryInNextBatch` where it was not asked for, because it could not be known before that it would be needed. */
  readCount(account: AccountId, name: QuotaName): number {
    const count = this.#counts.get(toQuotaKey(account, name));
    if (count === undefined) throw new RetryInNextBatch();
    return count;
  }
}

/** Of what is counted of an account. */
export const toQuotaKey = (account: AccountId, name: QuotaName): string => `${name} ${account}`;
