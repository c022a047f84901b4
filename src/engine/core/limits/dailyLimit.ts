import type { Draft, Moment } from "../decision/command.ts";
import type { Refused, RemainingQuota } from "../values/errors.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { findRaise, readLimits, plans } from "../accounts/plans.ts";
import { day as dayLength } from "../values/time.ts";

// The daily limit counts the messages and runs that clients request. Retries, callbacks, steps of a run and
// firings of a schedule are not requests, so the limit never refuses them. Only accounts with a daily limit
// have a row of `dayCounts`. Every node locks this row, so the count is exact.

/**
 * The requests of an account on one day, and their limits. Requests beyond `soft` cause a warning, and
 * requests beyond `hard` are refused.
 */
export type DayLimit = { day: Millis; used: number; soft: number; hard: number };

/** Reports whether an account has a daily limit. */
function isLimited(account: Account): boolean {
  const { requestsPerDay, requestsPerDayHard } = readLimits(account);
  const { selfHosted } = plans;
  return requestsPerDay < selfHosted.requestsPerDay || requestsPerDayHard < selfHosted.requestsPerDayHard;
}

/**
 * Returns the daily limit of an account and the requests made today; null if the account has no daily limit.
 * Days are in UTC.
 */
export function readDayLimit(draft: Draft, { now }: Moment, account: Account): DayLimit | null {
  if (!isLimited(account)) return null;
  const { requestsPerDay: soft, requestsPerDayHard: hard } = readLimits(account);
  const known = draft.get("dayCounts", account.id);
  const today = Math.floor(now / dayLength) * dayLength;
  // A clock that is set back does not restore used requests.
  const isToday = known !== undefined && known.day >= today;
  return { day: isToday ? known.day : today, used: isToday ? known.requests : 0, soft, hard };
}

/** Reports whether an account may make this number of further requests today. */
export const fitsDayLimit = ({ used, hard }: DayLimit, requests: number): boolean => used + requests <= hard;

/** Writes the requests of a day if they have changed. */
export function saveDayLimit(draft: Draft, account: AccountId, { day, used }: DayLimit): void {
  const known = draft.get("dayCounts", account);
  if (known?.day !== day || known.requests !== used) draft.put("dayCounts", { account, day, requests: used });
}

/** Returns the refusal of requests that exceed the daily limit. */
export function makeDayLimitRefusal(account: Account, day: DayLimit, requests: number): Refused {
  const { used, hard } = day;
  const problem = `requests: ${used} made today, ${requests} more requested; the limit is ${hard} per day`;
  return {
    refused: "day-limit-exceeded",
    message: `${problem}; retry after 00:00 UTC`,
    remedy: findRaise(account, "requestsPerDayHard"),
    remainingQuota: toRemainingQuota(account, day),
  };
}

/** Returns the daily limit in the form that clients receive. */
export function toRemainingQuota(account: Account, { day, used, soft, hard }: DayLimit): RemainingQuota {
  const remainingQuota = { limit: hard, remaining: Math.max(0, hard - used), resetAt: day + dayLength };
  if (used <= soft) return remainingQuota;
  const use = `requests: ${used} made today; the limit is ${soft} per day, above ${hard} they are refused`;
  return { ...remainingQuota, warning: { message: use, remedy: findRaise(account, "requestsPerDay") } };
}
