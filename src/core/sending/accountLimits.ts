import type { Draft, Key, Moment } from "../decision/command.ts";
import { accountFlow, endpointFlow, flowOf, isEndpointFlow, putFlow } from "./limiter.ts";
import type { Account, AccountId, Flow, MessageState } from "../model/message.ts";
import { mostToEndpoint, mostUnderWay } from "../accounts/plans.ts";

// The deliveries that an account may have under way to one endpoint, and in all: two more gates, between the key of a message and
// the hand for its host. Each is a flow, with a line before it, and is there only where the account has the limit: all others
// pay nothing for it. As with a key, the place is the lease itself. A lease from before there was a limit is not counted, and says so.

/** Returns the flows that count the deliveries to the endpoint of a message, and all of its account, with their limits as they are now. */
export function allowancesOf(draft: Draft, moment: Pick<Moment, "now">, state: MessageState): Flow[] {
  const flows: Flow[] = [];
  const owner = draft.get("accounts", state.account);
  if (!owner) return flows;
  const [toEndpoint, inAll] = [mostToEndpoint(owner), mostUnderWay(owner)];
  if (toEndpoint !== null) flows.push(limitedTo(toEndpoint, flowOf(draft, moment, owner.id, endpointFlow(state))));
  if (inAll !== null) flows.push(limitedTo(inAll, flowOf(draft, moment, owner.id, accountFlow)));
  return flows;
}

/** Whether an account has a limit now that it had not. */
export const gainsAllowance = (before: Account, after: Account): boolean =>
  [mostToEndpoint, mostUnderWay].some((most) => most(before) === null && most(after) !== null);

const limitedTo = (parallelism: number, flow: Flow): Flow => (flow.parallelism === parallelism ? flow : { ...flow, parallelism });

/** Lets a flow that is there follow the limit of its account, which may have been changed, or taken away. */
export function refreshAllowance(draft: Draft, moment: Moment, account: AccountId, id: string): void {
  const flow = draft.get("flows", account, id);
  const owner = draft.get("accounts", account);
  const parallelism = owner ? (isEndpointFlow(id) ? mostToEndpoint : mostUnderWay)(owner) : null;
  if (flow && flow.parallelism !== parallelism) putFlow(draft, moment, { ...flow, parallelism });
}

/**
 * Returns the flows that are needed with these accounts and endpoints: a command that sees an account sees its flow as well, because any of
 * its messages may be sent then; and a command that sees an endpoint sees the flow of this endpoint. None for accounts without a limit.
 */
export function needsOfAccounts(draft: Draft, accounts: Iterable<AccountId>, endpoints: readonly (readonly Key[])[]): Key[] {
  const keys: Key[] = [];
  const toEndpoints = new Set<AccountId>();
  for (const id of accounts) {
    const account = draft.get("accounts", id);
    if (account && mostUnderWay(account) !== null) keys.push([id, accountFlow]);
    if (account && mostToEndpoint(account) !== null) toEndpoints.add(id);
  }
  if (toEndpoints.size === 0) return keys;
  for (const key of endpoints.flat()) if (toEndpoints.has(key[0])) keys.push(key);
  return keys;
}
