import type { Draft, Key, Moment } from "../decision/command.ts";
import type { RemainingQuota } from "../values/errors.ts";
import type { Account, AccountId, Millis } from "../model/message.ts";
import { formatRaiseHint, readLimits, plans } from "./plans.ts";
import { day as dayLength } from "../values/time.ts";

// The requests of a day: messages and runs that clients ask for. What follows from them (retries, callbacks, the steps of a
// run, firings of a schedule) is no request, and is never refused by this. Only accounts that are limited have a row, which
// every node locks, so that the count is exact.

/** What an account may still ask for today. `soft`: beyond it there is a warning, beyond `hard` a refusal. */
export type DayLimit = { day: Millis; used: number; soft: number; hard: number };

/** Whether any limit of a day holds for an account. */
function isLimited(account: Account): boolean {
  const { requestsPerDay, requestsPerDayHard } = readLimits(account);
  const { selfHosted } = plans;
  return requestsPerDay < selfHosted.requestsPerDay || requestsPerDayHard < selfHosted.requestsPerDayHard;
}

/** The row to be seen before anything is taken in. */
export const listDayCountKeys = (account: Account | undefined): Key[] => (account && isLimited(account) ? [[account.id]] : []);

/** What an account may ask for now. Null: as much as it likes. Days are those of UTC. */
export function readDayLimit(draft: Draft, { now }: Moment, account: Account): DayLimit | null {
  if (!isLimited(account)) return null;
  const { requestsPerDay: soft, requestsPerDayHard: hard } = readLimits(account);
  const known = draft.get("dayCounts", account.id);
  const today = Math.floor(now / dayLength) * dayLength;
  // A clock that is put back does not bring back what was used up.
  const isToday = known !== undefined && known.day >= today;
  return { day: isToday ? known.day : today, used: isToday ? known.requests : 0, soft, hard };
}

export const fitsDayLimit = ({ used, hard }: DayLimit, requests: number): boolean => used + requests <= hard;

export function saveDayLimit(draft: Draft, account: AccountId, { day, used }: DayLimit): void {
  const known = draft.get("dayCounts", account);
  if (known?.day !== day || known.requests !== used) draft.put("dayCounts", { account, day, requests: used });
}

/** Why so many requests are not taken in. */
export function formatDayLimitError(account: Account, { used, hard }: DayLimit, requests: number): string {
  const asked = requests === 1 ? "one more was" : `${requests} more were`;
  return `requests: ${used} were taken today, and ${asked} asked for; the limit is ${hard} in a day, which ends at 00:00 UTC${formatRaiseHint(account, "requestsPerDayHard")}`;
}

/** A day as it stands, for clients. */
export function toRemainingQuota(account: Account, { day, used, soft, hard }: DayLimit): RemainingQuota {
  const remainingQuota = { limit: hard, remaining: Math.max(0, hard - used), resetAt: day + dayLength };
  if (used <= soft) return remainingQuota;
  const warning = `requests: ${used} were taken today, the limit is ${soft} in a day; beyond ${hard} they are refused`;
  return { ...remainingQuota, warning: `${warning}${formatRaiseHint(account, "requestsPerDay")}` };
}
