import type { Draft, Key, Moment } from "../decision/command.ts";
import type { Account } from "../model/account.ts";
import type { AccountId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Limiter } from "../model/limiter.ts";
import { readEndpointParallelism, readAccountParallelism } from "../accounts/plans.ts";
import type { AccountLimit } from "./gate.ts";
import { accountGate, endpointGate } from "./gate.ts";
import { findLimiter, putLimiter, readLimiter, toLimiterKey } from "./limiter.ts";

// How many deliveries an account may have in flight, to one endpoint and in total: two gates between the key
// of a message and the capacity of the node. A limiter exists only if the account has the limit, so it costs
// other accounts nothing. As with a key, a message has its slot for as long as its lease. If the message was
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
  if (toEndpoint !== null)
    limiters.push(readLimited(draft, moment, { owner, gate: endpointGate(state), parallelism: toEndpoint }));
  if (inTotal !== null)
    limiters.push(readLimited(draft, moment, { owner, gate: accountGate, parallelism: inTotal }));
  return limiters;
}

function readLimited(
  draft: Draft,
  moment: Pick<Moment, "now">,
  { owner, gate, parallelism }: { owner: Account; gate: AccountLimit; parallelism: number },
): Limiter {
  const limiter = readLimiter(draft, moment, { account: owner.id, gate });
  return limiter.parallelism === parallelism ? limiter : { ...limiter, parallelism };
}

/** Returns the keys of the limiters that `readAccountLimiters` returns. */
export function listAccountLimiterKeys(owner: Account, { endpoint }: Pick<MessageState, "endpoint">): Key[] {
  const keys: Key[] = [];
  if (readLimit.endpoint(owner) !== null)
    keys.push(toLimiterKey({ account: owner.id, gate: endpointGate({ endpoint }) }));
  if (readLimit.account(owner) !== null) keys.push(toLimiterKey({ account: owner.id, gate: accountGate }));
  return keys;
}

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
