import type { Draft, Moment } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { countEnd } from "../admission/counters.ts";
import { log } from "../admission/messageLog.ts";
import { logBodyBytes } from "../values/limits.ts";
import { isSuccessStatus } from "../values/status.ts";
import { readStorageLevel } from "../accounts/storageQuota.ts";
import type {
  Account,
  DestinationResponse,
  Bytes,
  DeadLetter,
  StoredMessage,
  FailureCallbackInfo,
  MessageState,
  Millis,
  Outcome,
  WithoutBody,
} from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { countDeadLetters } from "../accounts/usage.ts";

export const isSuccess = ({ status }: Pick<Outcome, "status">): boolean => isSuccessStatus(status);

/** An attempt that was not followed by another one. */
export type Failure = { account: Account; message: WithoutBody<StoredMessage>; state: MessageState; outcome: DestinationResponse };

type EndedAttempt = { state: MessageState; outcome: DestinationResponse; account?: Account };

/** A message has arrived. */
export function recordDelivery(draft: Draft, moment: Moment, { state, outcome }: EndedAttempt): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: ["DELIVERED"], ...(outcome.keepsInLog ? toLoggedResponse(outcome) : { status: outcome.status }) });
}

/**
 * A message is to be sent again, at this time. If its account is over its storage quota, the log keeps no body of the response: there may be
 * a thousand more.
 */
export function scheduleRetry(draft: Draft, moment: Moment, { state, outcome, account }: EndedAttempt, at: Millis): void {
  const isOverQuota = account !== undefined && readStorageLevel(account) !== null && outcome.body.byteLength > 0;
  const logged: DestinationResponse = isOverQuota ? { ...outcome, body: noBytes, cut: true } : outcome;
  draft.put("messages", { ...state, state: "pending", attempts: state.attempts + 1, leasedBy: null, dueAt: at });
  countEnd(draft, moment, state, at);
  log(draft, moment, state, { states: ["ERROR", "RETRY"], nextDueAt: at, ...toLoggedResponse(logged) });
}

/** The request of a cancelled message has ended, in whatever way: nothing follows from it, but its places are free now. */
export function recordCancellation(draft: Draft, moment: Moment, { state, outcome }: EndedAttempt): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: ["CANCELLED"], ...toLoggedResponse(outcome) });
  release(draft, moment, state);
}

/** A message that failed for good, or a run, goes to the dead letter queue. */
export function putDeadLetter(draft: Draft, deadLetter: DeadLetter): void {
  draft.put("deadLetters", deadLetter);
  countDeadLetters(draft, deadLetter.account, 1);
}

/** That nobody answered. */
export const noResponse: DestinationResponse = { status: null, headers: [], body: noBytes, error: null };

/** An answer as the log keeps it. */
export const toLoggedResponse = ({ status, headers, body, digest, error, cut }: DestinationResponse) => ({
  status,
  headers,
  error,
  body: firstBytes(body, logBodyBytes),
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** An answer as a dead letter keeps it. */
export const toDeadLetterResponse = ({ status, headers, body, digest, error, cut, keptBytes = Infinity }: DestinationResponse) => ({
  status,
  headers,
  error,
  body: firstBytes(body, keptBytes),
  ...(body.byteLength > keptBytes && digest !== undefined ? { digest } : {}),
  ...(cut ? { cut } : {}),
});

/** A copy if it is shorter, so that the rest of a large body is not kept in memory. */
const firstBytes = (body: Bytes, maxBytes: number): Bytes =>
  body.byteLength > maxBytes ? new Uint8Array(body.subarray(0, maxBytes)) : body;

/** The answer of a failure callback, as it is shown with what it told of. */
export const toFailureCallbackInfo = ({ status, headers, body, digest, cut }: DestinationResponse): Omit<FailureCallbackInfo, "state"> => ({
  ...(status === null ? {} : { responseStatus: status }),
  responseBody: new TextDecoder().decode(body.subarray(0, logBodyBytes)),
  responseHeaders: headers,
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** The whole of an envelope that is known without its body. */
export function readWithBody(draft: Draft, { account, id }: WithoutBody<StoredMessage>): StoredMessage {
  const message = draft.get("storedMessages", account, id);
  if (!message) throw new Error(`the body of ${id} is needed and was not asked for`);
  return message;
}
