import { toSecond } from "../../engine/core/limits/requestRate.ts";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { toNetwork } from "../http/address.ts";

/**
 * The maximum number of addresses that are counted separately in a second. Further addresses share one count,
 * because none of them has shown valid credentials.
 */
const maxAddresses = 10_000;

/**
 * The maximum number of requests of one address in a second that are refused or have no valid token. Further
 * such requests of the address get a short refusal.
 */
export const defaultRefusedPerSecond = 100;

/**
 * Counts requests that were refused or had no valid token, by address, in the current second. Nothing is kept
 * of earlier seconds. Accepted requests are neither counted nor limited here. Each node counts for itself.
 */
export class RefusedRequests {
  readonly #max: number;
  readonly #now: () => Millis;
  #second = 0;
  readonly #counts = new Map<string, number>();

  constructor(now: () => Millis, max = defaultRefusedPerSecond) {
    this.#now = now;
    this.#max = max;
  }

  /** Counts a request. Returns the refusal if the address is over its limit, otherwise null. */
  count(address: string | null): Refusal | null {
    const key = this.#toCountKey(address);
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, count);
    return count <= this.#max ? null : this.#refusal;
  }

  /** Returns the refusal if one more request would be over the limit, otherwise null. Counts nothing. */
  findExcess(address: string | null): Refusal | null {
    return (this.#counts.get(this.#toCountKey(address)) ?? 0) < this.#max ? null : this.#refusal;
  }

  #toCountKey(address: string | null): string {
    // If the clock is set back, the count starts at 0 as well.
    if (toSecond(this.#now()) !== this.#second) {
      this.#second = toSecond(this.#now());
      this.#counts.clear();
    }
    const network = toNetwork(address);
    return this.#counts.has(network) || this.#counts.size < maxAddresses ? network : "others";
  }

  get #refusal(): Refusal {
    const words =
      `more than ${this.#max} from this address in this second were refused or had no valid token; ` +
      "retry in 1 s, or with a valid token";
    return new Refusal("too-many-failures", `requests: ${words}`, { retryAfter: 1 });
  }
}
