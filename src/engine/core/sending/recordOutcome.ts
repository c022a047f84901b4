import type { Draft, Moment } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { countEnd, hasPlaces } from "../admission/counters.ts";
import { endLease, toLeaseRef } from "../admission/lease.ts";
import { log } from "../admission/messageLog.ts";
import { logBodyBytes } from "../values/limits.ts";
import { isSuccessStatus } from "../values/status.ts";
import { readStorageLevel } from "../limits/storageQuota.ts";
import type { Account } from "../model/account.ts";
import type { DestinationResponse, Outcome } from "../model/attempt.ts";
import type { Bytes, Millis } from "../values/basics.ts";
import type { LogRow } from "../model/logRow.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { DeadLetter, FailureCallbackInfo } from "../model/deadLetter.ts";
import { noBytes } from "../values/basics.ts";
import { countDeadLetters } from "../accounts/usage.ts";

/** Reports whether a message was delivered. */
export const isSuccess = ({ status }: Pick<Outcome, "status">): boolean => isSuccessStatus(status);

/** An attempt that is not followed by another attempt. */
export type Failure = {
  account: Account;
  message: WithoutBody<StoredMessage>;
  state: MessageState;
  outcome: DestinationResponse;
};

type EndedAttempt = { state: MessageState; outcome: DestinationResponse; account?: Account };

/** Records that a message was delivered. */
export function recordDelivery(draft: Draft, moment: Moment, { state, outcome }: EndedAttempt): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: {
      states: ["DELIVERED"],
      ...(outcome.keepsInLog ? toLoggedResponse(outcome) : { status: outcome.status }),
    },
  });
}

/**
 * Schedules a retry at the time `at`. If the account exceeds its storage quota, the log does not keep the
 * body of the response, because a message may have 1,000 retries.
 */
export function scheduleRetry(
  draft: Draft,
  moment: Moment,
  { state, outcome, account, at }: EndedAttempt & { at: Millis },
): void {
  const isOverQuota =
    account !== undefined && readStorageLevel(account) !== null && outcome.body.byteLength > 0;
  const logged: DestinationResponse = isOverQuota ? { ...outcome, body: noBytes, cut: true } : outcome;
  draft.put("messages", {
    ...endLease(draft, state),
    attempts: state.attempts + 1,
    dueAt: at,
  });
  countEnd(draft, moment, { ...state, nextAt: at });
  log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: { states: ["ERROR", "RETRY"], nextDueAt: at, ...toLoggedResponse(logged) },
  });
}

/**
 * Records that the request of a finished message has ended, regardless of its outcome. The slots of the
 * message at the gates become free.
 */
export function recordRequestEnd(draft: Draft, moment: Moment, { state, outcome }: EndedAttempt): void {
  draft.drop("messages", state.account, state.id);
  if (state.state === "cancelling")
    log(draft, moment, {
      message: state,
      timing: outcome.timing,
      row: { states: ["CANCELLED"], ...toLoggedResponse(outcome) },
    });
  release(draft, moment, state);
}

/**
 * Records that a message of a run was delivered, because its endpoint has posted the next step. Its request
 * may still run. If the request counts at a gate, the message keeps its slots there until the request ends.
 * If another node sends it, its row stays until that node reports the end, because that node learns only from
 * the row that the message is delivered.
 */
export function settleByStep(draft: Draft, moment: Moment, state: MessageState): void {
  log(draft, moment, { message: state, row: { states: ["DELIVERED"], settledHost: state.host } });
  const isOwn = state.leasedBy === moment.node;
  if (state.leasedBy !== null && (!isOwn || hasPlaces(state))) {
    draft.put("messages", { ...state, state: "settled" });
    return;
  }
  draft.drop("messages", state.account, state.id);
  release(draft, moment, state);
  if (isOwn) draft.settled(toLeaseRef(state));
}

/**
 * Reports whether a log row records a delivery that was settled by a step, before there was a response.
 */
export const isSettledByStep = ({ states, status }: Pick<LogRow, "states" | "status">): boolean =>
  status === null && states.includes("DELIVERED");

/** Adds a message or a run that failed for good to the dead letter queue. */
export function putDeadLetter(draft: Draft, deadLetter: DeadLetter): void {
  draft.put("deadLetters", deadLetter);
  countDeadLetters(draft, deadLetter.account, 1);
}

/** The outcome of an attempt without a response. */
export const noResponse: DestinationResponse = { status: null, headers: [], body: noBytes, error: null };

/** Returns the part of a response that the log keeps. */
export const toLoggedResponse = ({ status, headers, body, digest, error, cut }: DestinationResponse) => ({
  status,
  headers,
  error,
  body: firstBytes(body, logBodyBytes),
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** Returns the part of a response that a dead letter keeps. */
export const toDeadLetterResponse = ({
  status,
  headers,
  body,
  digest,
  error,
  cut,
  keptBytes = Infinity,
}: DestinationResponse) => ({
  status,
  headers,
  error,
  body: firstBytes(body, keptBytes),
  ...(body.byteLength > keptBytes && digest !== undefined ? { digest } : {}),
  ...(cut ? { cut } : {}),
});

/**
 * Returns at most `maxBytes` bytes of a body. If bytes are left out, the result is a copy, so that the rest
 * of a large body is not kept in memory.
 */
const firstBytes = (body: Bytes, maxBytes: number): Bytes =>
  body.byteLength > maxBytes ? new Uint8Array(body.subarray(0, maxBytes)) : body;

/** Returns the response to a failure callback in the form in which it is shown with the dead letter. */
export const toFailureCallbackInfo = ({
  status,
  headers,
  body,
  digest,
  cut,
}: DestinationResponse): Omit<FailureCallbackInfo, "state"> => ({
  ...(status === null ? {} : { responseStatus: status }),
  responseBody: new TextDecoder().decode(body.subarray(0, logBodyBytes)),
  responseHeaders: headers,
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** Returns a stored message with its body. Throws an error if the body was not loaded. */
export function readWithBody(draft: Draft, { account, id }: WithoutBody<StoredMessage>): StoredMessage {
  const message = draft.inspect("storedMessages", account, id);
  if (!message) throw new Error(`the body of ${id} was not loaded`);
  return message;
}

/**
 * Records the state of a failure callback in the dead letter that it reports, if that still exists, and in
 * its run.
 */
export function reportCallback(
  draft: Draft,
  message: WithoutBody<StoredMessage>,
  info: FailureCallbackInfo,
): void {
  if (message.reportsOn?.kind !== "failureCallback" || message.reportsOn.dlqId === null) return;
  const deadLetter = draft.inspect("deadLetters", message.account, message.reportsOn.dlqId);
  if (deadLetter && !deadLetter.damaged) draft.put("deadLetters", { ...deadLetter, failureCallback: info });
  const run = message.run && draft.get("runs", message.account, message.run.run);
  const callback = run?.failure?.callback;
  if (run?.failure && callback?.messageId === message.id) {
    draft.put("runs", { ...run, failure: { ...run.failure, callback: { ...callback, ...info } } });
  }
}
