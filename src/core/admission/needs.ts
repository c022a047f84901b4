import type { Draft, Key } from "../decision/command.ts";
import { parseAddress } from "../values/url.ts";
import type { AccountId, FlowControl, MessageState } from "../model/message.ts";
import { listLimiterKeys } from "./counters.ts";
import { endpointGate, queueGate } from "./gate.ts";
import { toLimiterKey } from "./limiter.ts";

// The rows that a decision must load before messages pass gates.

/**
 * Returns the slots and limiters to load before these messages move. The limiter of a slot's queue is known
 * only once the slot is loaded. The store calls this function until it returns nothing new.
 */
export function admissionNeeds(
  draft: Draft,
  states: readonly MessageState[],
): { queueSlots: Key[]; limiters: Key[] } {
  const slotKeys = states.flatMap(({ account, slot }) => (slot === null ? [] : [[account, slot] as const]));
  const slots = slotKeys.flatMap((key) => draft.get("queueSlots", ...key) ?? []);
  const queueKeys = slots.flatMap(({ account, queue }): Key[] =>
    queue === "" ? [] : [toLimiterKey({ account, gate: queueGate(queue) })],
  );
  return { queueSlots: slotKeys, limiters: [...listLimiterKeys(states), ...queueKeys] };
}

/** Returns the keys of the limiters that new messages will pass. */
export const listLimiterKeysFor = (
  account: AccountId,
  inputs: readonly { queue: string | null; flowControl: FlowControl | null }[],
): Key[] =>
  listLimiterKeys(
    inputs.map(({ queue, flowControl }) => ({ account, queue, flowControlKey: flowControl?.key ?? null })),
  );

/**
 * The rows to load for the destinations of messages: the waitlists of their hosts, and the limiters of
 * their endpoints.
 */
export type DestinationNeeds = { readonly hostWaitlists: readonly Key[]; readonly endpoints: readonly Key[] };

/** Returns what must be loaded of the destinations of messages to these URLs. */
export function destinationNeeds(account: AccountId, urls: readonly string[]): DestinationNeeds {
  const addresses = urls.map(parseAddress);
  const hosts = addresses.map(({ host }) => host);
  return {
    hostWaitlists: (hosts.length > 1 ? [...new Set(hosts)] : hosts).map((host) => [account, host] as const),
    endpoints: addresses.map((address) => toLimiterKey({ account, gate: endpointGate(address) })),
  };
}

/** Returns what must be loaded of the destinations of accepted messages. */
export const stateDestinationNeeds = (states: readonly MessageState[]): DestinationNeeds => ({
  hostWaitlists: states.map(({ account, host }) => [account, host] as const),
  endpoints: states.map((state) => toLimiterKey({ account: state.account, gate: endpointGate(state) })),
});

/** Merges the needs of several destinations into one. */
export const mergeDestinationNeeds = (needs: readonly DestinationNeeds[]): DestinationNeeds => ({
  hostWaitlists: needs.flatMap(({ hostWaitlists }) => hostWaitlists),
  endpoints: needs.flatMap(({ endpoints }) => endpoints),
});
