import type { AccountId, Millis, Sights } from "../../core/model/message.ts";

/** Something that was sighted, and the beginning of its five seconds. Without sights: anything. */
export type Sighted = { account: AccountId; at: Millis; sights: Sights | undefined };

/**
 * So much is told apart within five seconds by one node, of one account and of all: each that is new costs as much as a message, because its
 * sightings lie on pages of their own. Beyond that, it is only noted that anything may have been told.
 */
const most = { ofAccount: 1_000, ofAll: 4_000 } as const;

/**
 * What is stored of the newest five seconds, so that it is not written again: most messages go where others went. For one node, which
 * forgets it all when the storage may have become another one behind its back.
 */
export class RecentSightings {
  #at: Millis = 0;
  #count = 0;
  readonly #known = new Map<AccountId, Set<Sights | undefined>>();

  has({ account, at, sights }: Sighted): boolean {
    return at === this.#at && this.#known.get(account)?.has(sights) === true;
  }

  /** Whether no more are told apart; `more`: besides those that are stored. */
  isFull({ account, at }: Sighted, more: number): boolean {
    const [ofAccount, ofAll] = at === this.#at ? [this.#known.get(account)?.size ?? 0, this.#count] : [0, 0];
    return ofAccount + more >= most.ofAccount || ofAll + more >= most.ofAll;
  }

  /** To be told when it is stored, and not before. */
  learn(all: readonly Sighted[]): void {
    for (const { account, at, sights } of all) {
      if (at < this.#at) continue;
      if (at > this.#at) this.forget();
      this.#at = at;
      const known = this.#known.get(account);
      if (known) known.add(sights);
      else this.#known.set(account, new Set([sights]));
      this.#count++;
    }
  }

  forget(): void {
    this.#known.clear();
    this.#count = 0;
  }
}
