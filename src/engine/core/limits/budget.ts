import type { Millis } from "../values/basics.ts";
import { toMonthRange } from "../accounts/statistics.ts";
import type { Terms } from "../model/accountTerms.ts";
import { throwIfRefused } from "../values/errors.ts";
import type { Refused } from "../values/errors.ts";

// The spending of an account in a month is the cost of what it has used, at the prices of the server. Adding
// it up for each message would be too expensive. A maintenance task adds it up at intervals, and records the
// result in the account.

/** Reports whether the spending of an account must be added up. */
export const hasBudget = ({ budget = 0, deletedAt }: Terms): boolean => budget > 0 && deletedAt === undefined;

/** Throws `Refusal` if an account has spent its budget. */
export function assertWithinBudget(account: Terms, now: Millis): void {
  throwIfRefused(findBudgetRefusal(account, now));
}

/** Returns why an account may not publish for the rest of the month; null if it may. */
export function findBudgetRefusal({ budget = 0, spending }: Terms, now: Millis): Refused | null {
  if (budget === 0 || !spending || spending.dollars < budget || spending.month !== toMonthRange(now).from)
    return null;
  const spent = `${spending.dollars.toFixed(2)} dollars spent this month; the limit is ${budget}`;
  return {
    refused: "limit-exceeded",
    message: `budget: ${spent}`,
    remedy: { remedy: "raise-budget" },
  };
}
