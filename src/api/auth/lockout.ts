import { Refusal } from "../../core/values/errors.ts";
import type { Failures } from "../../core/accounts/lockout.ts";
import { lockoutRemaining, maxFailures, addFailure } from "../../core/accounts/lockout.ts";
import type { Millis } from "../../core/model/message.ts";
import { toNetwork } from "../http/address.ts";
import { hashToken } from "./token.ts";
import { BoundedMap } from "../../core/values/boundedMap.ts";

/** Where tries to prove something come from: a client, and the user name that it gave, if any. */
export type AttemptOrigin = { address: string | null; user?: string };

/** So many places are remembered; whoever has that many gets the oldest of them forgotten. */
const maxOrigins = 10_000;

/** Counts what fails, by client and by user name, in bounded memory. Each node counts for itself. */
export class Lockout {
  readonly #failures = new BoundedMap<string, Failures>(maxOrigins);
  readonly #now: () => Millis;

  constructor(now: () => Millis) {
    this.#now = now;
  }

  /** What a try that failed is refused with: `refusal`, or that it was one of too many. */
  recordFailure({ address, user }: AttemptOrigin, refusal: Refusal): Refusal {
    const origins = [`from ${toNetwork(address)}`, ...(user === undefined ? [] : [`user ${hashToken(user)}`, formatOrigin(address, user)])];
    const wait = Math.max(...origins.map((origin) => this.#countFailure(origin)));
    return wait === 0 ? refusal : makeLockedRefusal(wait, user === undefined ? "token" : "account", ", or with what is known to be good");
  }

  /**
   * Throws `Refusal` where so many tries with this user name have failed from this client that no other one is looked at, not
   * even a good one. For a secret that people choose, which could be guessed in time.
   */
  checkNotLocked(address: string | null, user: string): void {
    const failures = this.#failures.get(formatOrigin(address, user));
    const wait = failures ? lockoutRemaining(addOne(failures), this.#now()) : 0;
    if (wait > 0) throw makeLockedRefusal(wait, user, "");
  }

  #countFailure(origin: string): Millis {
    const failures = addFailure(this.#failures.get(origin), this.#now());
    this.#failures.renew(origin, failures);
    return lockoutRemaining(failures, this.#now());
  }
}

/** A user name, as it is tried from one client. */
const formatOrigin = (address: string | null, user: string): string => `user ${hashToken(user)} from ${toNetwork(address)}`;

const addOne = ({ count, since }: Failures): Failures => ({ count: count + 1, since });

function makeLockedRefusal(wait: Millis, field: string, alternative: string): Refusal {
  const seconds = Math.ceil(wait / 1000);
  const words = `more than ${maxFailures} tries in a minute failed; ask again in ${seconds} s${alternative}`;
  return new Refusal("too-many-failures", `${field}: ${words}`, { retryAfter: seconds });
}
