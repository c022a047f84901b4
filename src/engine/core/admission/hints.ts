import { parseAddress } from "../values/url.ts";
import type { Hint, Key } from "../decision/command.ts";
import type { Account } from "../model/account.ts";
import type { AccountId } from "../values/basics.ts";
import type { FlowControl } from "../model/sendSettings.ts";
import type { MessageState } from "../model/messageState.ts";
import { listAccountLimiterKeys } from "./accountLimits.ts";
import { listLimiterKeys } from "./counters.ts";

/** Returns the keys of the limiters that new messages will pass. */
export const listLimiterKeysFor = (
  account: AccountId,
  inputs: readonly { queue: string | null; flowControl: FlowControl | null }[],
): Key[] =>
  listLimiterKeys(
    inputs.map(({ queue, flowControl }) => ({ account, queue, flowControlKey: flowControl?.key ?? null })),
  );

/** Returns the keys of the host waitlists that messages to these URLs will meet, each once. */
export function listHostKeysFor(account: AccountId, urls: readonly string[]): Key[] {
  const hosts = urls.map((url) => parseAddress(url).host);
  return (hosts.length > 1 ? [...new Set(hosts)] : hosts).map((host) => [account, host] as const);
}

/**
 * Returns the rows of all gates of these messages. The limits of an account are left out if `findAccount`
 * does not know it.
 */
export function listGateRows(
  states: readonly MessageState[],
  findAccount: (id: AccountId) => Account | undefined,
): Hint {
  const accounts: Key[] = [];
  const queueSlots: Key[] = [];
  const hostWaitlists: Key[] = [];
  const limiters = listLimiterKeys(states);
  for (const state of states) {
    const { account, slot, host } = state;
    accounts.push([account]);
    hostWaitlists.push([account, host]);
    if (slot !== null) queueSlots.push([account, slot]);
    const owner = findAccount(account);
    if (owner) for (const key of listAccountLimiterKeys(owner, state)) limiters.push(key);
  }
  return { accounts, queueSlots, hostWaitlists, limiters };
}
