import type { Draft, Key, Moment } from "./command.ts";
import { accountFlow, flowOf, hostFlow, isHostFlow, putFlow } from "./flow.ts";
import type { Account, AccountId, Flow } from "./message.ts";
import { mostToHost, mostUnderWay } from "./plans.ts";

// The deliveries that an account may have under way to one host, and in all: two more gates, between the key of a message and
// the hand for its host. Each is a flow, with a line before it, and is there only where the account has the limit: all others
// pay nothing for it. As with a key, the place is the lease itself. A lease from before there was a limit is not counted, and says so.

/** The flows that count the deliveries of an account to a host, and all of them, with their limits as they are now. None: it has no limit. */
export function allowancesOf(draft: Draft, moment: Pick<Moment, "now">, owner: Account | undefined, host: string): Flow[] {
  const flows: Flow[] = [];
  if (!owner) return flows;
  const [toHost, inAll] = [mostToHost(owner), mostUnderWay(owner)];
  if (toHost !== null) flows.push(limitedTo(toHost, flowOf(draft, moment, owner.id, hostFlow(host))));
  if (inAll !== null) flows.push(limitedTo(inAll, flowOf(draft, moment, owner.id, accountFlow)));
  return flows;
}

/** Whether an account has a limit now that it had not. */
export const gainsAllowance = (before: Account, after: Account): boolean =>
  [mostToHost, mostUnderWay].some((most) => most(before) === null && most(after) !== null);

const limitedTo = (parallelism: number, flow: Flow): Flow => (flow.parallelism === parallelism ? flow : { ...flow, parallelism });

/** Lets a flow that is there follow the limit of its account, which may have been changed, or taken away. */
export function refreshAllowance(draft: Draft, moment: Moment, account: AccountId, id: string): void {
  const flow = draft.get("flows", account, id);
  const owner = draft.get("accounts", account);
  const parallelism = owner ? (isHostFlow(id) ? mostToHost : mostUnderWay)(owner) : null;
  if (flow && flow.parallelism !== parallelism) putFlow(draft, moment, { ...flow, parallelism });
}

/**
 * Whoever sees an account sees its flow as well, if it has one, as any of its messages may be sent then; and whoever sees the
 * line of a host sees the flow of this host.
 */
export function needsOfAccounts(draft: Draft, accounts: Iterable<AccountId>, lines: readonly (readonly Key[])[]): Key[] {
  const keys: Key[] = [];
  const toHosts = new Set<AccountId>();
  for (const id of accounts) {
    const account = draft.get("accounts", id);
    if (account && mostUnderWay(account) !== null) keys.push([id, accountFlow]);
    if (account && mostToHost(account) !== null) toHosts.add(id);
  }
  if (toHosts.size === 0) return keys;
  for (const [id, host = ""] of lines.flat()) if (toHosts.has(id)) keys.push([id, hostFlow(host)]);
  return keys;
}
