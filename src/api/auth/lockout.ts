import { Refusal } from "../../engine/core/values/errors.ts";
import type { Failures } from "../../engine/core/accounts/lockout.ts";
import { lockoutRemaining, maxFailures, addFailure } from "../../engine/core/accounts/lockout.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { toNetwork } from "../http/address.ts";
import { hashToken } from "./token.ts";
import { BoundedMap } from "../../engine/core/caches/boundedMap.ts";

/**
 * The origin of an attempt to authenticate: the address of the client, and the user name that it gave, if
 * any.
 */
export type AttemptOrigin = { address: string | null; user?: string };

/** The number of origins that are counted. If there are more, the oldest is forgotten. */
const maxOrigins = 10_000;

/** What happens at an attempt to authenticate. */
export type Attempts = {
  /** Counts a failed attempt. Returns `refusal`, or a refusal `too-many-failures` if too many have failed. */
  recordFailure(origin: AttemptOrigin, refusal: Refusal): Refusal;
  /** Throws `Refusal` if no further attempt with this user name may be checked. */
  assertNotLocked(address: string | null, user: string): void;
};

/** For a look at credentials that were accepted before: it guesses nothing, so it counts as no attempt. */
export const notAttempts: Attempts = {
  recordFailure: (_origin, refusal) => refusal,
  assertNotLocked: () => undefined,
};

/** Counts failed attempts by client and by user name, in bounded memory. Each node counts for itself. */
export class Lockout implements Attempts {
  readonly #failures = new BoundedMap<string, Failures>(maxOrigins);
  readonly #now: () => Millis;

  constructor(now: () => Millis) {
    this.#now = now;
  }

  /** Counts a failed attempt. Returns `refusal`, or a refusal `too-many-failures` if too many have failed. */
  recordFailure({ address, user }: AttemptOrigin, refusal: Refusal): Refusal {
    const origins = [
      `from ${toNetwork(address)}`,
      ...(user === undefined ? [] : [`user ${hashToken(user)}`, formatOrigin(address, user)]),
    ];
    const wait = Math.max(...origins.map((origin) => this.#countFailure(origin)));
    return wait === 0
      ? refusal
      : makeLockedRefusal(wait, user === undefined ? "token" : "account", ", or with valid credentials");
  }

  /**
   * Throws `Refusal` if `maxFailures` attempts with this user name have failed from this client within the
   * window. The caller must then check no further attempt, not even a correct one. Use this for secrets that
   * people choose, because such secrets can be guessed if the number of attempts is not limited.
   */
  assertNotLocked(address: string | null, user: string): void {
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

/** Returns the key under which attempts with a user name from one client are counted. */
const formatOrigin = (address: string | null, user: string): string =>
  `user ${hashToken(user)} from ${toNetwork(address)}`;

const addOne = ({ count, since }: Failures): Failures => ({ count: count + 1, since });

function makeLockedRefusal(wait: Millis, field: string, alternative: string): Refusal {
  const seconds = Math.ceil(wait / 1000);
  const words = `more than ${maxFailures} failed attempts in a minute; retry in ${seconds} s${alternative}`;
  return new Refusal("too-many-failures", `${field}: ${words}`, { retryAfter: seconds });
}
