import type { SecondCount } from "../model/counts.ts";
import { Refusal } from "../values/errors.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { findRaise, readLimit, plans } from "../accounts/plans.ts";
import { second } from "../values/time.ts";

// The requests of an account are counted per second of the clock. A single node counts them in memory.
// Several nodes share a row for each account that has such a limit. A node claims several requests of the
// second at a time, and admits them without another query. All nodes together therefore never exceed the
// limit, and one node alone can still use all of it.

/** Returns the number of a second, counted from 1970. */
export const toSecond = (now: Millis): number => Math.floor(now / second);

/** The state of a second after one more request. `resetAt` is in Unix seconds. */
export type Burst = { taken: boolean; limit: number; remaining: number; resetAt: number };

/** Counts one more request in this second. `earlier` is the number of requests before it in this second. */
export function countInBurst(limit: number, earlier: number, now: Millis): Burst {
  const taken = earlier < limit;
  return { taken, limit, remaining: Math.max(0, limit - earlier - 1), resetAt: toSecond(now) + 1 };
}

/** Returns how many requests per second an account may make; null if that is not limited. */
export function readRequestRateLimit(account: Account): number | null {
  const limit = readLimit(account, "requestsPerSecond");
  return limit < plans.selfHosted.requestsPerSecond ? limit : null;
}

/**
 * `needed` is the number of requests that wait at the node. `recent` is the number of requests that the node
 * has had in this second.
 */
export type ShareRequest = { account: AccountId; needed: number; recent: number };

/**
 * `granted` is the number of requests that the node may admit. `left` remains for other claims. `endsIn` is
 * the rest of the second, by the clock of the store.
 */
export type BurstShare = { granted: number; left: number; limit: number; second: number; endsIn: Millis };

/**
 * The largest part of the remaining requests that a node may claim beyond those that wait at it. Other nodes
 * may need the rest.
 */
export const maxExtraShare = 1 / 8;

/**
 * A transaction that waited for another may have begun in an earlier second, but never more than this number
 * of seconds earlier.
 */
const maxSecondsAhead = 10;

/**
 * Returns the count if it belongs to the current second, otherwise null. If the clock was set back by more
 * than `maxSecondsAhead`, counting restarts.
 */
export function findCurrentCount(count: SecondCount | undefined, now: Millis): SecondCount | null {
  const secondsAhead = count ? count.second - toSecond(now) : -1;
  return count && secondsAhead >= 0 && secondsAhead <= maxSecondsAhead ? count : null;
}

/** Returns the refusal of a request that exceeds the limit. */
export const tooManyRequests = (account: Account, { limit }: Burst): Refusal =>
  new Refusal(
    "too-many-requests",
    `requests: limit of ${limit} per second exceeded; retry in the next second (publishing does not count)`,
    { remedy: findRaise(account, "requestsPerSecond") },
  );
