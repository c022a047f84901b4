import type { Burst } from "../../core/accounts/requestRate.ts";
import { burstOf, mostInSecond, secondOf } from "../../core/accounts/requestRate.ts";
import type { Account, AccountId, Millis } from "../../core/model/message.ts";

/**
 * Counts what accounts ask of this node alone in the second that it is. Nothing is kept of the last one, so there are never more
 * accounts in it than ask within a second.
 */
export class Bursts {
  #second = 0;
  readonly #asked = new Map<AccountId, number>();

  /** One more request. Null: the account has no limit. */
  ask(account: Account, now: Millis): Burst | null {
    const limit = mostInSecond(account);
    if (limit === null) return null;
    // A clock that was put back begins anew as well.
    if (secondOf(now) !== this.#second) {
      this.#second = secondOf(now);
      this.#asked.clear();
    }
    const asked = this.#asked.get(account.id) ?? 0;
    const burst = burstOf(limit, asked, now);
    if (burst.taken) this.#asked.set(account.id, asked + 1);
    return burst;
  }
}

/** The headers that clients know it by. None of a daily limit may stand beside them: clients would take it for that one. */
export const headersOf = ({ limit, remaining, resetAt }: Burst): Record<string, string> => ({
  "Burst-RateLimit-Limit": String(limit),
  "Burst-RateLimit-Remaining": String(remaining),
  "Burst-RateLimit-Reset": String(resetAt),
});
