import { parseAddress } from "../values/url.ts";
import type { Key } from "../decision/command.ts";
import type { AccountId, FlowControl } from "../model/message.ts";
import { listLimiterKeys } from "./counters.ts";

// Keys for the hints of commands that create messages.

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
