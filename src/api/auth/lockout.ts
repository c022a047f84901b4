import { Refusal } from "../../core/values/errors.ts";
import type { Failures } from "../../core/accounts/lockout.ts";
import { lockedFor, mostFailures, withFailure } from "../../core/accounts/lockout.ts";
import type { Millis } from "../../core/model/message.ts";
import { networkOf } from "../http/address.ts";
import { hashOfToken } from "./token.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** Where tries to prove something come from: a client, and the user name that it gave, if any. */
export type TriedFrom = { address: string | null; user?: string };

/** So many places are remembered; whoever has that many gets the oldest of them forgotten. */
const mostPlaces = 10_000;

/** Counts what fails, by client and by user name, in bounded memory. Each node counts for itself. */
export class Lockout {
  readonly #failures = new BoundedMap<string, Failures>(mostPlaces);
  readonly #now: () => Millis;

  constructor(now: () => Millis) {
    this.#now = now;
  }

  /** What a try that failed is refused with: `refusal`, or that it was one of too many. */
  refusalFor({ address, user }: TriedFrom, refusal: Refusal): Refusal {
    const places = [`from ${networkOf(address)}`, ...(user === undefined ? [] : [`user ${hashOfToken(user)}`, placeOf(address, user)])];
    const waits = Math.max(...places.map((place) => this.#note(place)));
    return waits === 0 ? refusal : tooMany(waits, user === undefined ? "token" : "account", ", or with what is known to be good");
  }

  /**
   * Throws `Refusal` where so many tries with this user name have failed from this client that no other one is looked at, not
   * even a good one. For a secret that people choose, which could be guessed in time.
   */
  mustNotWait(address: string | null, user: string): void {
    const failures = this.#failures.get(placeOf(address, user));
    const waits = failures ? lockedFor(withOneMore(failures), this.#now()) : 0;
    if (waits > 0) throw tooMany(waits, user, "");
  }

  #note(place: string): Millis {
    const failures = withFailure(this.#failures.get(place), this.#now());
    this.#failures.renew(place, failures);
    return lockedFor(failures, this.#now());
  }
}

/** A user name, as it is tried from one client. */
const placeOf = (address: string | null, user: string): string => `user ${hashOfToken(user)} from ${networkOf(address)}`;

const withOneMore = ({ count, since }: Failures): Failures => ({ count: count + 1, since });

function tooMany(waits: Millis, field: string, otherwise: string): Refusal {
  const seconds = Math.ceil(waits / 1000);
  const words = `more than ${mostFailures} tries in a minute failed; ask again in ${seconds} s${otherwise}`;
  return new Refusal("too-many-failures", `${field}: ${words}`, { retryAfter: seconds });
}
