import type { AccountId, Millis, TimeKeys } from "../../core/model/message.ts";

/** Something that was sighted, and the beginning of its five seconds. Without sights: anything. */
export type TimeIndexEntry = { account: AccountId; at: Millis; timeKeys: TimeKeys | undefined };

/**
 * So much is told apart within five seconds by one node, of one account and of all: each that is new costs as much as a message, because its
 * sightings lie on pages of their own. Beyond that, it is only noted that anything may have been told.
 */
const maxEntries = { perAccount: 1_000, total: 4_000 } as const;

/**
 * What is stored of the newest five seconds, so that it is not written again: most messages go where others went. For one node, which
 * forgets it all when the storage may have become another one behind its back.
 */
export class RecentTimeIndex {
  #at: Millis = 0;
  #count = 0;
  readonly #byAccount = new Map<AccountId, Set<TimeKeys | undefined>>();

  has({ account, at, timeKeys }: TimeIndexEntry): boolean {
    return at === this.#at && this.#byAccount.get(account)?.has(timeKeys) === true;
  }

  /** Whether no more are told apart; `more`: besides those that are stored. */
  isFull({ account, at }: TimeIndexEntry, pending: number): boolean {
    const [accountCount, totalCount] = at === this.#at ? [this.#byAccount.get(account)?.size ?? 0, this.#count] : [0, 0];
    return accountCount + pending >= maxEntries.perAccount || totalCount + pending >= maxEntries.total;
  }

  /** To be told when it is stored, and not before. */
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
