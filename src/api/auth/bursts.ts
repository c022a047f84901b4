import type { Burst } from "../../core/accounts/requestRate.ts";
import { countInBurst, readRequestRateLimit, toSecond } from "../../core/accounts/requestRate.ts";
import type { Account, AccountId, Millis } from "../../core/model/message.ts";

/**
 * Counts what accounts ask of this node alone in the second that it is. Nothing is kept of the last one, so there are never more
 * accounts in it than ask within a second.
 */
export class Bursts {
  #second = 0;
  readonly #counts = new Map<AccountId, number>();

  /** One more request. Null: the account has no limit. */
  count(account: Account, now: Millis): Burst | null {
    const limit = readRequestRateLimit(account);
    if (limit === null) return null;
    // A clock that was put back begins anew as well.
    if (toSecond(now) !== this.#second) {
      this.#second = toSecond(now);
      this.#counts.clear();
    }
    const counted = this.#counts.get(account.id) ?? 0;
    const burst = countInBurst(limit, counted, now);
    if (burst.taken) this.#counts.set(account.id, counted + 1);
    return burst;
  }
}

/** The headers that clients know it by. None of a daily limit may stand beside them: clients would take it for that one. */
export const burstHeaders = ({ limit, remaining, resetAt }: Burst): Record<string, string> => ({
  "Burst-RateLimit-Limit": String(limit),
  "Burst-RateLimit-Remaining": String(remaining),
  "Burst-RateLimit-Reset": String(resetAt),
});
