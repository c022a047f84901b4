import type { Decision } from "./command.ts";
import type { Account, AccountId, SigningKeys } from "./message.ts";
import { existing } from "./plans.ts";

/** Makes an account, unless one with this id is there already. Answers the one that is there then. */
export const createAccount: Decision<Omit<Account, "createdAt">, Account> = {
  needs: ({ id }) => ({ accounts: [[id]] }),
  decide: (account, draft, moment) => {
    const present = draft.get("accounts", account.id);
    if (present) return present;
    const created = { ...account, createdAt: moment.now };
    draft.put("accounts", created);
    return created;
  },
};

/** Next becomes current, a new one becomes next. Receivers that know the old pair still verify, with their next. */
export const rotateKeys: Decision<{ account: AccountId }, SigningKeys> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  decide: ({ account: id }, draft, moment) => {
    const account = existing(draft.get("accounts", id));
    const signingKeys = { current: account.signingKeys.next, next: moment.newId("sig") };
    draft.put("accounts", { ...account, signingKeys });
    return signingKeys;
  },
};
