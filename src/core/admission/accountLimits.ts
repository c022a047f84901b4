import type { Draft, Key, Moment } from "../decision/command.ts";
import type { Account, AccountId, MessageState } from "../model/message.ts";
import type { Limiter } from "../model/limiter.ts";
import { readEndpointParallelism, readAccountParallelism } from "../accounts/plans.ts";
import type { AccountLimit } from "./gate.ts";
import { accountGate, endpointGate } from "./gate.ts";
import { findLimiter, putLimiter, readLimiter, toLimiterKey } from "./limiter.ts";

// How many deliveries an account may have in flight, to one endpoint and in total: two gates between the key
// of a message and the capacity of the node. A limiter exists only if the account has the limit, so it costs
// other accounts nothing. As with a key, a message has its place for as long as its lease. If the message was
// leased before the account had the limit, it is not counted; `counted` and `countedToEndpoint` record that.

/** Return the limit of an account for one kind of gate, or null if the account has no such limit. */
const readLimit: Record<AccountLimit["kind"], (account: Account) => number | null> = {
  endpoint: readEndpointParallelism,
  account: readAccountParallelism,
};

/**
 * Returns the limiters of an account that count the delivery of a message, in the order of the gates, with
 * their limits as they are now.
 */
export function readAccountLimiters(
  draft: Draft,
  moment: Pick<Moment, "now">,
  state: MessageState,
): Limiter[] {
  const owner = draft.get("accounts", state.account);
  if (!owner) return [];
  const toEndpoint = readLimit.endpoint(owner);
  const inTotal = readLimit.account(owner);
  const limiters: Limiter[] = [];
  const add = (gate: AccountLimit, parallelism: number): void => {
    limiters.push(withParallelism(readLimiter(draft, moment, { account: owner.id, gate }), parallelism));
  };
  if (toEndpoint !== null) add(endpointGate(state), toEndpoint);
  if (inTotal !== null) add(accountGate, inTotal);
  return limiters;
}

const withParallelism = (limiter: Limiter, parallelism: number): Limiter =>
  limiter.parallelism === parallelism ? limiter : { ...limiter, parallelism };

/** Reports whether a change gives an account a limit that it did not have before. */
export const gainsAccountLimit = (before: Account, after: Account): boolean =>
  Object.values(readLimit).some((limit) => limit(before) === null && limit(after) !== null);

/** Copies the current limit of an account to its limiter. The limit may have been changed or removed. */
export function refreshAccountLimit(
  draft: Draft,
  moment: Moment,
  name: { account: AccountId; gate: AccountLimit },
): void {
  const limiter = findLimiter(draft, name);
  const owner = draft.get("accounts", name.account);
  const parallelism = owner ? readLimit[name.gate.kind](owner) : null;
  if (limiter && limiter.parallelism !== parallelism) putLimiter(draft, moment, { ...limiter, parallelism });
}

/**
 * Returns the limiters to load with these accounts and endpoints. A command that reads an account may send
 * any of its messages, so the limiter of the account is loaded as well. For each endpoint, the limiter of the
 * endpoint is loaded. An account without limits needs no limiters.
 */
export function listAccountLimiterKeys(
  draft: Draft,
  accounts: Iterable<AccountId>,
  endpoints: readonly (readonly Key[])[],
): Key[] {
  const keys: Key[] = [];
  const limitedByEndpoint = new Set<AccountId>();
  for (const id of accounts) {
    const account = draft.get("accounts", id);
    if (account && readLimit.account(account) !== null)
      keys.push(toLimiterKey({ account: id, gate: accountGate }));
    if (account && readLimit.endpoint(account) !== null) limitedByEndpoint.add(id);
  }
  if (limitedByEndpoint.size === 0) return keys;
  for (const key of endpoints.flat()) if (limitedByEndpoint.has(key[0])) keys.push(key);
  return keys;
}
