import { secondOf } from "../../core/accounts/requestRate.ts";
import { Refusal } from "../../core/values/errors.ts";
import type { Millis } from "../../core/model/message.ts";
import { networkOf } from "../http/address.ts";

/** Addresses that are counted one by one in a second. Further ones share one count, as none of them has shown that it may do anything. */
const mostAddresses = 10_000;

/** Requests of one address in a second that may be refused, or have no valid token. Further ones get one short response. */
export const defaultRefusedPerSecond = 100;

/**
 * Counts requests that were refused or carried no valid token, by address, in the second that it is. Nothing is kept of the last one.
 * Requests that were accepted are not counted, and never limited by this. Each node counts for itself.
 */
export class RefusedRequests {
  readonly #most: number;
  readonly #now: () => Millis;
  #second = 0;
  readonly #counts = new Map<string, number>();

  constructor(now: () => Millis, most = defaultRefusedPerSecond) {
    this.#now = now;
    this.#most = most;
  }

  /** Counts a request. Returns the refusal if it is one too many, otherwise null. */
  count(address: string | null): Refusal | null {
    const place = this.#placeOf(address);
    const count = (this.#counts.get(place) ?? 0) + 1;
    this.#counts.set(place, count);
    return count <= this.#most ? null : this.#tooMany;
  }

  /** Returns the refusal if one more request is one too many, otherwise null. Counts nothing. */
  excess(address: string | null): Refusal | null {
    return (this.#counts.get(this.#placeOf(address)) ?? 0) < this.#most ? null : this.#tooMany;
  }

  #placeOf(address: string | null): string {
    // If the clock is put back, the count begins at 0 as well.
    if (secondOf(this.#now()) !== this.#second) {
      this.#second = secondOf(this.#now());
      this.#counts.clear();
    }
    const network = networkOf(address);
    return this.#counts.has(network) || this.#counts.size < mostAddresses ? network : "others";
  }

  get #tooMany(): Refusal {
    const words = `more than ${this.#most} from this address in this second were refused or had no valid token; retry in 1 s, or with a valid token`;
    return new Refusal("too-many-failures", `requests: ${words}`, { retryAfter: 1 });
  }
}
