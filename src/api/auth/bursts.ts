import type { Burst } from "../../engine/core/limits/requestRate.ts";
import { countInBurst, readRequestRateLimit, toSecond } from "../../engine/core/limits/requestRate.ts";
import type { Account } from "../../engine/core/model/account.ts";
import type { AccountId, Millis } from "../../engine/core/values/basics.ts";

/**
 * Counts the requests of each account in the current second, at this node only. Counts of earlier seconds are
 * dropped, so there is at most one count per account.
 */
export class Bursts {
  #second = 0;
  readonly #counts = new Map<AccountId, number>();

  /** Counts one more request. Returns null if the account has no limit. */
  count(account: Account, now: Millis): Burst | null {
    const limit = readRequestRateLimit(account);
    if (limit === null) return null;
    // A clock that was set back starts a new count as well.
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

/**
 * Returns the headers by which clients know this limit. The response must not have headers of a daily limit
 * as well, because clients would take this limit for the daily one.
 */
export const burstHeaders = ({ limit, remaining, resetAt }: Burst): Record<string, string> => ({
  "Burst-RateLimit-Limit": String(limit),
  "Burst-RateLimit-Remaining": String(remaining),
  "Burst-RateLimit-Reset": String(resetAt),
});
