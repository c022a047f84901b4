import type { Draft, Moment } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import type { LimiterGate } from "../admission/gate.ts";
import { accountGate, endpointGate, keyGate, queueGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import { serveLimiter } from "../admission/waitlist.ts";
import {
  recordRequestEnd,
  recordDelivery,
  toFailureCallbackInfo,
  isSuccess,
  scheduleRetry,
  reportCallback,
} from "../sending/recordOutcome.ts";
import { recordEndedAttempt } from "../sending/endedAttempt.ts";
import { dropMessage, hasRunEnded } from "../workflows/end.ts";
import { applyRunOutcome, belongsToRun } from "../workflows/runOutcome.ts";
import type { Millis } from "../values/basics.ts";
import { minute, second } from "../values/time.ts";
import type { Account } from "../model/account.ts";
import type { MessageState } from "../model/messageState.ts";
import type { DestinationResponse, Outcome } from "../model/attempt.ts";
import type { Limiter } from "../model/limiter.ts";
import { isUnfinished } from "../model/messageState.ts";
import { countRetries, decideNextAction } from "../sending/retry.ts";
import { createCallback } from "../sending/createCallback.ts";
import { failMessage } from "../deadLetters/failMessage.ts";
import { findHoldEnd, holdForReceiver } from "./acknowledging.ts";

/**
 * The result of an attempt. `late`: the lease was lost before the outcome arrived, so the outcome changed
 * nothing. `cancelled`: the message was cancelled, so nothing followed from the outcome. `ended`: an operator
 * had ended the attempt, so only the retry followed. `acknowledging`: the receiver reports the outcome later.
 */
export type Settled = {
  became: "delivered" | "retry" | "ended" | "failed" | "cancelled" | "late" | "acknowledging";
};

/** The longest wait after a return. The first waits for nothing, the next for one second, then two. */
const longestReturn: Millis = minute;

/**
 * An outcome frees one slot. If the first message of the waitlist then waits elsewhere, the slot goes to
 * another one, so that it is not left unused until the next claim.
 */
const maxMovedByOutcome = 4;

/** Serves the waitlists of limiters from which a message has gone. */
export function serveAwaited(draft: Draft, moment: Moment, limiters: readonly Limiter[]): void {
  for (const limiter of limiters)
    serveLimiter(draft, moment, { limiter, limit: 1, maxMoved: maxMovedByOutcome });
}

/**
 * Returns the limiters that count a message and have a waitlist. When the delivery ends, a message of the
 * waitlist may be sent.
 */
export function listAwaited(draft: Draft, state: MessageState | null | undefined): Limiter[] {
  if (!state) return [];
  const { account, flowControlKey } = state;
  const awaited: Limiter[] = [];
  const add = (gate: LimiterGate): void => {
    const limiter = findLimiter(draft, { account, gate });
    if (limiter && limiter.waiting > 0) awaited.push(limiter);
  };
  const slot = state.slot === null ? undefined : draft.get("queueSlots", account, state.slot);
  if (flowControlKey !== null) add(keyGate(flowControlKey));
  if (slot) add(queueGate(slot.queue));
  if (state.countedToEndpoint) add(endpointGate(state));
  if (state.counted) add(accountGate);
  return awaited;
}

/** An attempt that has an outcome. */
export type SettledAttempt = { account: Account; state: MessageState; outcome: Outcome };

/**
 * Applies the outcome of an attempt: the message is delivered, retried or failed, and its callbacks are
 * created, unless the receiver reports the outcome later.
 */
export function applyOutcome(
  draft: Draft,
  moment: Moment,
  { account, state, outcome }: SettledAttempt,
): Settled {
  if (!isUnfinished(state)) {
    recordRequestEnd(draft, moment, { state, outcome });
    return { became: state.state === "cancelling" ? "cancelled" : "delivered" };
  }
  if (state.state === "ending" && !hasRunEnded(draft, state)) {
    recordEndedAttempt(draft, moment, { state, outcome });
    return { became: "ended" };
  }
  if (outcome.isReturned === true) return returnUncounted(draft, moment, { state, outcome });
  if (isSuccess(outcome) && !state.reportsOutcome) {
    recordDelivery(draft, moment, { account, state, outcome });
    release(draft, moment, state);
    return { became: "delivered" };
  }
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  if (!message || message.damaged) return applyToDamaged(draft, moment, { account, state, outcome });
  const holdUntil = state.state === "active" ? findHoldEnd(message, outcome, moment.now) : null;
  if (holdUntil !== null && !hasRunEnded(draft, state)) {
    holdForReceiver(draft, moment, { state, outcome, until: holdUntil });
    return { became: "acknowledging" };
  }
  if (belongsToRun(message)) return applyRunOutcome(draft, moment, { account, message, state, outcome });
  const retried = countRetries(state);
  const nextAction = decideNextAction({ message, outcome, retried, now: moment.now });
  if (nextAction.kind === "failed") {
    failMessage(draft, moment, { account, message, state, outcome });
    return { became: "failed" };
  }
  if (nextAction.kind === "delivered") {
    recordDelivery(draft, moment, { account, state, outcome });
    reportCallback(draft, message, { ...toFailureCallbackInfo(outcome), state: "CALLBACK_SUCCESS" });
  } else {
    scheduleRetry(draft, moment, { account, state, outcome, at: nextAction.at });
  }
  createCallback(draft, moment, { account, message, state, outcome });
  if (nextAction.kind === "delivered") release(draft, moment, state);
  return { became: nextAction.kind };
}

/**
 * Makes a message due again. The attempt has a number, but uses up no retry. The wait grows, because a client
 * that returns a message again and again must not keep the store busy.
 */
export function returnUncounted(
  draft: Draft,
  moment: Moment,
  { state, outcome }: { state: MessageState; outcome: DestinationResponse },
): Settled {
  if (hasRunEnded(draft, state)) {
    dropMessage(draft, moment, state);
    return { became: "cancelled" };
  }
  const { endedAttempts: earlier = 0 } = state;
  const at = moment.now + (earlier === 0 ? 0 : Math.min(2 ** (earlier - 1) * second, longestReturn));
  scheduleRetry(draft, moment, { state: { ...state, endedAttempts: earlier + 1 }, outcome, at });
  return { became: "retry" };
}

/**
 * Applies an outcome to a message whose stored content is damaged. Its retries and callbacks are not known. A
 * message that arrived is recorded as delivered, without its callback. Any other message is left to the next
 * claim, which fails it.
 */
function applyToDamaged(draft: Draft, moment: Moment, { account, state, outcome }: SettledAttempt): Settled {
  if (!isSuccess(outcome) || state.run !== null) {
    scheduleRetry(draft, moment, { state, outcome, at: moment.now });
    return { became: "retry" };
  }
  draft.fault(
    `message ${state.id} of account ${account.id} was delivered, but is damaged in the store; ` +
      "its callback is not sent",
  );
  recordDelivery(draft, moment, { account, state, outcome });
  release(draft, moment, state);
  return { became: "delivered" };
}
