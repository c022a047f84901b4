import type { Decision } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { AccountId, Millis } from "../model/message.ts";
import { toMonthRange } from "./statistics.ts";
import type { Terms } from "../model/accountTerms.ts";

// What an account has spent in a month is the cost of what it has used, by the prices of the server. To add it up for each
// message would cost more than the message, so a duty does it once in a while, and notes it in the account.

/** Notes what an account has spent in the month of now, in dollars. Without a budget, or an account, nothing is noted. */
export const noteSpending: Decision<{ account: AccountId; dollars: number; month: Millis }, { noted: boolean }> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  decide: ({ account: id, dollars, month }, draft) => {
    const account = draft.get("accounts", id);
    const isKnown = account?.spending?.month === month && account.spending.dollars === dollars;
    if (!account || isKnown || !hasBudget(account)) return { noted: false };
    draft.put("accounts", { ...account, spending: { month, dollars } });
    return { noted: true };
  },
};

/** Whether what an account spends has to be looked at. */
export const hasBudget = ({ budget = 0, deletedAt }: Terms): boolean => budget > 0 && deletedAt === undefined;

/** Throws `Refusal` where an account has spent its budget. */
export function mustAfford(account: Terms, now: Millis): void {
  const refusal = findBudgetRefusal(account, now);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/** Why an account may publish no more in this month, if it has spent its budget. */
export function findBudgetRefusal({ budget = 0, spending }: Terms, now: Millis): { refused: "limit-exceeded"; message: string } | null {
  if (budget === 0 || !spending || spending.dollars < budget || spending.month !== toMonthRange(now).from) return null;
  const spent = `${spending.dollars.toFixed(2)} dollars are spent in this month, the limit is ${budget}`;
  return { refused: "limit-exceeded", message: `budget: ${spent}; PATCH /v2/svc/update-budget/<id> raises it, and 0 lifts it` };
}
