import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import { parseEndpoint } from "./accountLimits.ts";
import type { MessageHistories } from "./limiterContext.ts";

/** The waitlist for the account's limit in total. */
export const accountWaitlist = "account:";

/** Returns the waitlist for the account's limit for the message's endpoint. */
export const toEndpointWaitlist = (state: MessageState, messageHistories: MessageHistories): string =>
  `endpoint:${parseEndpoint(state, messageHistories)}`;

/** Reports whether a waitlist or limiter is that of an endpoint. */
export const isEndpointWaitlist = (id: string): boolean => id.startsWith("endpoint:");

/** Reports whether a waitlist is that of an account limit. */
export const isOfAccount = (id: string | null | undefined): boolean =>
  id === accountWaitlist || (typeof id === "string" && isEndpointWaitlist(id));

/** Returns the limiters at which a message that waits for its account has reserved a place. */
export function listReservedIds(
  state: MessageState | undefined,
  messageHistories: MessageHistories,
): string[] {
  if (!state || !isOfAccount(state.waitlist)) return [];
  return [
    ...(state.flowControlKey === null ? [] : [makeKey(state, `key:${state.flowControlKey}`)]),
    ...(state.waitlist === accountWaitlist && state.countedToEndpoint
      ? [makeKey(state, toEndpointWaitlist(state, messageHistories))]
      : []),
  ];
}

/** Returns the key of an account's row. */
export const makeKey = ({ account }: { account: string }, id: string): string => `${account}\n${id}`;

/** Quotes a key for a message. */
export const quoted = (name: string): string => JSON.stringify(name);

/** Reports whether a message is in the waitlist of a limiter. */
export const isInWaitlist = (state: MessageState | undefined): state is MessageState & { waitlist: string } =>
  state?.waitlist !== undefined && state.waitlist !== null && !state.waitlist.startsWith("capacity:");
