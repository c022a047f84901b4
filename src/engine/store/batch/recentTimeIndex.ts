import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { TimeKeys } from "../../core/model/tag.ts";

/**
 * The time keys that were logged in an interval of 5 s, which begins at `at`. If `timeKeys` is undefined, the
 * interval may contain any key.
 */
export type TimeIndexEntry = { account: AccountId; at: Millis; timeKeys: TimeKeys | undefined };

/**
 * The maximum number of entries that one node distinguishes within 5 s, for one account and for all accounts.
 * A new entry costs as much as a message, because its rows are on their own pages. Beyond these limits, the
 * node records only that the interval may contain any key.
 */
const maxEntries = { perAccount: 1_000, total: 4_000 } as const;

/**
 * The entries of the newest 5 s that this node has stored, so that they are not written again, because most
 * messages have the same destinations as earlier ones. It must be cleared when the storage may have been
 * replaced.
 */
export class RecentTimeIndex {
  #at: Millis = 0;
  #count = 0;
  readonly #byAccount = new Map<AccountId, Set<TimeKeys | undefined>>();

  has({ account, at, timeKeys }: TimeIndexEntry): boolean {
    return at === this.#at && this.#byAccount.get(account)?.has(timeKeys) === true;
  }

  /**
   * Reports whether the limits are reached, so that a new entry is recorded without its keys. `pending` is
   * the number of entries of the batch that are not stored yet.
   */
  isFull({ account, at }: TimeIndexEntry, pending: number): boolean {
    const [accountCount, totalCount] =
      at === this.#at ? [this.#byAccount.get(account)?.size ?? 0, this.#count] : [0, 0];
    return accountCount + pending >= maxEntries.perAccount || totalCount + pending >= maxEntries.total;
  }

  /** Adds stored entries. Must be called after the batch is stored, not before. */
  record(entries: readonly TimeIndexEntry[]): void {
    for (const { account, at, timeKeys } of entries) {
      if (at < this.#at) continue;
      if (at > this.#at) this.forget();
      this.#at = at;
      const entriesOfAccount = this.#byAccount.get(account);
      if (entriesOfAccount) entriesOfAccount.add(timeKeys);
      else this.#byAccount.set(account, new Set([timeKeys]));
      this.#count++;
    }
  }

  forget(): void {
    this.#byAccount.clear();
    this.#count = 0;
  }
}
