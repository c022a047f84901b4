import type { Draft, Key, Moment } from "./command.ts";
import { accountFlow, flowOf, putFlow } from "./flow.ts";
import type { Account, AccountId, Flow } from "./message.ts";
import { mostUnderWay } from "./plans.ts";

// The deliveries that an account may have under way: one more gate, between the key of a message and the hand for its host.
// It is a flow, with a line before it, and is there only where the account has a limit: all others pay nothing for it.
// As with a key, the place is the lease itself. A lease from before there was a limit is not counted, and says so.

/** The flow that counts the deliveries of an account, with its limit as it is now. Null: it has none. */
export function allowanceOf(draft: Draft, moment: Moment, owner: Account | undefined): Flow | null {
  const parallelism = owner ? mostUnderWay(owner) : null;
  return owner && parallelism !== null ? { ...flowOf(draft, moment, owner.id, accountFlow), parallelism } : null;
}

/** Lets a flow that is there follow the limit of its account, which may have been changed, or taken away. */
export function refreshAllowance(draft: Draft, moment: Moment, account: AccountId): void {
  const flow = draft.get("flows", account, accountFlow);
  const owner = draft.get("accounts", account);
  const parallelism = owner ? mostUnderWay(owner) : null;
  if (flow && flow.parallelism !== parallelism) putFlow(draft, moment, { ...flow, parallelism });
}

/** Whoever sees an account sees its flow as well, if it has one: any of its messages may be sent then. */
export function needsOfAccounts(draft: Draft, accounts: Iterable<AccountId>): Key[] {
  const keys: Key[] = [];
  for (const id of accounts) {
    const account = draft.get("accounts", id);
    if (account && mostUnderWay(account) !== null) keys.push([id, accountFlow]);
  }
  return keys;
}
