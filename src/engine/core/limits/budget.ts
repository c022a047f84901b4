import { Refusal } from "../values/errors.ts";
import type { Millis } from "../values/basics.ts";
import { toMonthRange } from "../accounts/statistics.ts";
import type { Terms } from "../model/accountTerms.ts";

// The spending of an account in a month is the cost of what it has used, at the prices of the server. To add
// it up for each message would cost more than the message. A maintenance task adds it up at intervals, and
// records the result in the account.

/** Reports whether the spending of an account must be added up. */
export const hasBudget = ({ budget = 0, deletedAt }: Terms): boolean => budget > 0 && deletedAt === undefined;

/** Throws `Refusal` if an account has spent its budget. */
export function mustAfford(account: Terms, now: Millis): void {
  const refusal = findBudgetRefusal(account, now);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/** Returns why an account may not publish for the rest of the month; null if it may. */
export function findBudgetRefusal(
  { budget = 0, spending }: Terms,
  now: Millis,
): { refused: "limit-exceeded"; message: string } | null {
  if (budget === 0 || !spending || spending.dollars < budget || spending.month !== toMonthRange(now).from)
    return null;
  const spent = `${spending.dollars.toFixed(2)} dollars spent this month; the limit is ${budget}`;
  return {
    refused: "limit-exceeded",
    message: `budget: ${spent}; PATCH /v2/svc/update-budget/<id> raises it, and the value 0 removes it`,
  };
}
