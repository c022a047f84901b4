import type { Draft, Moment } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { countEnd } from "../admission/counters.ts";
import { log } from "../admission/messageLog.ts";
import { logBodyBytes } from "../values/limits.ts";
import { isSuccessStatus } from "../values/status.ts";
import { notedLevel } from "../accounts/storageQuota.ts";
import type {
  Account,
  Answer,
  Bytes,
  DeadLetter,
  Envelope,
  FailureCallbackInfo,
  MessageState,
  Millis,
  Outcome,
  Outline,
} from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { countDeadLetters } from "../accounts/usage.ts";

export const isSuccess = ({ status }: Pick<Outcome, "status">): boolean => isSuccessStatus(status);

/** An attempt that was not followed by another one. */
export type Failure = { account: Account; envelope: Outline<Envelope>; state: MessageState; outcome: Answer };

type Ended = { state: MessageState; outcome: Answer; account?: Account };

/** A message has arrived. */
export function delivered(draft: Draft, moment: Moment, { state, outcome }: Ended): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: ["DELIVERED"], ...(outcome.logged ? answerOf(outcome) : { status: outcome.status }) });
}

/**
 * A message is to be sent again, at this time. If its account is over its storage quota, the log keeps no body of the response: there may be
 * a thousand more.
 */
export function tryLater(draft: Draft, moment: Moment, { state, outcome, account }: Ended, at: Millis): void {
  const isOver = account !== undefined && notedLevel(account) !== null && outcome.body.byteLength > 0;
  const logged: Answer = isOver ? { ...outcome, body: noBytes, cut: true } : outcome;
  draft.put("messages", { ...state, state: "pending", attempts: state.attempts + 1, leasedBy: null, dueAt: at });
  countEnd(draft, moment, state, at);
  log(draft, moment, state, { states: ["ERROR", "RETRY"], nextDueAt: at, ...answerOf(logged) });
}

/** The request of a cancelled message has ended, in whatever way: nothing follows from it, but its places are free now. */
export function cancelled(draft: Draft, moment: Moment, { state, outcome }: Ended): void {
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: ["CANCELLED"], ...answerOf(outcome) });
  release(draft, moment, state);
}

/** A message that failed for good, or a run, goes to the dead letter queue. */
export function keepDeadLetter(draft: Draft, letter: DeadLetter): void {
  draft.put("deadLetters", letter);
  countDeadLetters(draft, letter.account, 1);
}

/** That nobody answered. */
export const noAnswer: Answer = { status: null, headers: [], body: noBytes, error: null };

/** An answer as the log keeps it. */
export const answerOf = ({ status, headers, body, digest, error, cut }: Answer) => ({
  ...{ status, headers, error, body: beginning(body, logBodyBytes) },
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** An answer as a dead letter keeps it. */
export const lastAnswerOf = ({ status, headers, body, digest, error, cut, kept = Infinity }: Answer) => ({
  ...{ status, headers, error, body: beginning(body, kept) },
  ...(body.byteLength > kept && digest !== undefined ? { digest } : {}),
  ...(cut ? { cut } : {}),
});

/** A copy if it is shorter, so that the rest of a large body is not kept in memory. */
const beginning = (body: Bytes, most: number): Bytes => (body.byteLength > most ? new Uint8Array(body.subarray(0, most)) : body);

/** The answer of a failure callback, as it is shown with what it told of. */
export const infoOf = ({ status, headers, body, digest, cut }: Answer): Omit<FailureCallbackInfo, "state"> => ({
  ...(status === null ? {} : { responseStatus: status }),
  responseBody: new TextDecoder().decode(body.subarray(0, logBodyBytes)),
  responseHeaders: headers,
  ...(digest === undefined ? {} : { digest }),
  ...(cut ? { cut } : {}),
});

/** The whole of an envelope that is known without its body. */
export function withBody(draft: Draft, { account, id }: Outline<Envelope>): Envelope {
  const envelope = draft.get("envelopes", account, id);
  if (!envelope) throw new Error(`the body of ${id} is needed and was not asked for`);
  return envelope;
}
