import type { Draft, Moment } from "../decision/command.ts";
import { findForbiddenHost } from "../accounts/allowedHosts.ts";
import { findPulledOrigin } from "../accounts/pulledOrigins.ts";
import { pickSigningKeys } from "../accounts/signingKeys.ts";
import { countBytes } from "../accounts/usage.ts";
import { spans } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { StoredMessage } from "../model/message.ts";
import type { LeaseRef, MessageState } from "../model/messageState.ts";
import type { MessageId, Millis } from "../values/basics.ts";
import { withGrownHistory, withGrownSize } from "./carried.ts";
import { countStart, hasPlaces } from "./counters.ts";

/**
 * The `dueAt` of a lease that was ended by a restart of the server, before it expired. The message is due at
 * any time.
 */
export const serverEndedDueAt: Millis = 0;

/**
 * Leases a message to this node and passes it to the dispatcher. The caller has taken delivery capacity for
 * it.
 */
export function lease(
  draft: Draft,
  moment: Moment,
  admitted: {
    account: Account;
    message: StoredMessage;
    state: MessageState;
    follows?: MessageId | undefined;
  },
): void {
  const { account, state, follows } = admitted;
  const message = withGrownHistory(draft, admitted.message, state);
  const counted = countStart(draft, moment, state);
  const size = message === admitted.message ? state.size : (message.run?.size ?? state.size);
  draft.put("messages", {
    ...counted,
    size,
    state: "active",
    dueAt: moment.now + spans.lease,
    leasedBy: moment.node,
    waitlist: null,
  });
  countBytes(draft, state.account, { bytesOut: size });
  const keys = pickSigningKeys(account, moment.now);
  const pullKey = findPulledOrigin(account, state.host) === undefined ? undefined : account.pulled?.key;
  draft.deliver({
    message,
    attempt: state.attempts,
    ...keys,
    ...findForbiddenHost(account, message.url),
    ...(pullKey !== undefined && { pullKey, uncounted: state.endedAttempts ?? 0 }),
    ...(pullKey !== undefined || isOutcomeAwaited(message, counted) ? { settlesAtOnce: true } : {}),
    ...(follows === undefined ? {} : { follows }),
  });
}

/**
 * Reports whether something waits for the outcome of a message: a message for its slots, or a callback. A
 * callback has the slots of the message that it reports on.
 */
const isOutcomeAwaited = (message: StoredMessage, state: MessageState): boolean =>
  message.callback !== null || message.reportsOn !== null || hasPlaces(state);

/** Returns a message that waits for its due time, after its lease has ended. The caller sets `dueAt`. */
export function endLease(draft: Draft, state: MessageState): MessageState {
  const ended: MessageState = { ...withGrownSize(draft, state), state: "pending", leasedBy: null };
  delete ended.startedAt;
  return ended;
}

/**
 * Returns when the running attempt of a leased message began. Until a lease is renewed, its end tells. Null:
 * the lease was ended early, and never renewed.
 */
export function readStart({ startedAt, dueAt }: Pick<MessageState, "startedAt" | "dueAt">): Millis | null {
  if (startedAt !== undefined) return startedAt;
  return dueAt === null || dueAt < spans.lease ? null : dueAt - spans.lease;
}

/** Ends the request of a running attempt on the node that sends it. */
export function abortRequest(draft: Draft, moment: Moment, state: MessageState): void {
  if (state.leasedBy === moment.node) draft.abort(toLeaseRef(state));
  else draft.abortElsewhere();
}

/** Names the running attempt of a message. */
export const toLeaseRef = ({ account, id, attempts }: MessageState): LeaseRef => ({
  account,
  messageId: id,
  attempt: attempts,
});

/**
 * Returns the message if this node still holds the lease of exactly this attempt, or null. A report that
 * arrives after the lease was lost names an older attempt, so it changes nothing.
 */
export function findLeased(
  draft: Draft,
  moment: Moment,
  { account, messageId, attempt }: LeaseRef,
): MessageState | null {
  const state = draft.get("messages", account, messageId);
  const isLeased = state && state.leasedBy === moment.node && state.attempts === attempt;
  return isLeased ? state : null;
}
