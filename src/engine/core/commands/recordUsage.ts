import type { Decision } from "../decision/command.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import { hasBudget } from "../limits/budget.ts";
import { readStorageLevel, toStorageLevel } from "../limits/storageQuota.ts";

/**
 * Records what an account has spent in the current month, in dollars. Records nothing if the account has no
 * budget or does not exist.
 */
export const recordSpending: Decision<
  { account: AccountId; dollars: number; month: Millis },
  { noted: boolean }
> = {
  decide: ({ account: id, dollars, month }, draft) => {
    const account = draft.get("accounts", id);
    const isKnown = account?.spending?.month === month && account.spending.dollars === dollars;
    if (!account || isKnown || !hasBudget(account)) return { noted: false };
    draft.put("accounts", { ...account, spending: { month, dollars } });
    return { noted: true };
  },
};

/**
 * Records whether an account exceeds its quota, or 125 % of it, or is within it again. `bytes` is the number
 * of bytes that the account stores. A change within a level is not recorded, so the row of an account is
 * written only if its level changes.
 */
export const recordStorage: Decision<{ account: AccountId; bytes: number }, { noted: boolean }> = {
  decide: ({ account: id, bytes }, draft) => {
    const account = draft.get("accounts", id);
    if (!account || readStorageLevel(account) === toStorageLevel(account, bytes)) return { noted: false };
    const { storedBytes: _before, ...others } = account;
    draft.put(
      "accounts",
      toStorageLevel(account, bytes) === null ? others : { ...others, storedBytes: bytes },
    );
    return { noted: true };
  },
};
