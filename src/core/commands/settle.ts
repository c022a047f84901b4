import { makeCallbackInput } from "../sending/callback.ts";
import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { countEnd } from "../admission/counters.ts";
import type { LimiterGate } from "../admission/gate.ts";
import { accountGate, capacityGate, endpointGate, formatGate, keyGate, queueGate } from "../admission/gate.ts";
import { findLeased, toLeaseRef } from "../admission/lease.ts";
import { findLimiter } from "../admission/limiter.ts";
import { log } from "../admission/messageLog.ts";
import { admissionNeeds, destinationNeeds, listLimiterKeysFor, mergeDestinationNeeds } from "../admission/needs.ts";
import { checkSoon, findHostWaitlist, headLimit, serveHostWaitlist, serveLimiter, withCapacity } from "../admission/waitlist.ts";
import { accept } from "../sending/createMessage.ts";
import { hasRunEnded, dropMessage, listRunKeys } from "../workflows/end.ts";
import { spans } from "../values/limits.ts";
import { toTag } from "../search/tags.ts";
import type { Failure } from "../sending/outcome.ts";
import {
  toLoggedResponse,
  recordCancellation,
  recordDelivery,
  toFailureCallbackInfo,
  isSuccess,
  putDeadLetter,
  toDeadLetterResponse,
  noResponse,
  scheduleRetry,
  readWithBody,
} from "../sending/outcome.ts";
import { applyRunOutcome, failRunMessage, belongsToRun, runOutcomeNeeds } from "../workflows/outcome.ts";
import { mergeNeeds } from "../decision/needs.ts";
import type {
  Account,
  CallbackSettings,
  DeadLetter,
  StoredMessage,
  FailureCallbackInfo,
  Limiter,
  LeaseRef,
  MessageState,
  Outcome,
  WithoutBody,
} from "../model/message.ts";
import { isUnfinished } from "../model/message.ts";
import { readLimits } from "../accounts/plans.ts";
import { countRetries, decideNextAction } from "../sending/retry.ts";

/** `late`: the lease had been lost; the outcome changed nothing. `cancelled`: the message was, and so nothing followed from it. */
export type Settled = { became: "delivered" | "retry" | "failed" | "cancelled" | "late" };

/** Draws the consequences of one attempt: delivered, tried again later, or dead-lettered; callbacks; the lines before what it gives back. */
export const settle: Decision<Outcome, Settled> = {
  needs: ({ account, messageId, host }) => ({
    accounts: [[account]],
    messages: [[account, messageId]],
    hostWaitlists: [[account, host]],
  }),
  further: (outcome, draft) => {
    const { account, messageId, host } = outcome;
    const state = draft.get("messages", account, messageId);
    const waitlist = draft.hasBacklog(account) ? undefined : draft.get("hostWaitlists", account, host);
    if (state && !waitlist && isSuccess(outcome) && holdsNothing(state)) return noNeeds;
    const limiters = draft.hasBacklog(account) ? [] : listAwaited(draft, state);
    const waitlistHeads = [
      ...(waitlist ? [{ account, waitlist: formatGate(capacityGate(host)), limit: headLimit }] : []),
      ...limiters.map(({ id }) => ({ account, waitlist: id, limit: 1 })),
    ];
    const toSendFromWaitlists = [
      ...(waitlist ? withCapacity(draft, [waitlist]) : []),
      ...limiters.map(({ id }) => ({ account, waitlist: id })),
    ];
    const gates = admissionNeeds(draft, state ? [state] : []);
    if (state && isSuccess(outcome) && !state.reportsOutcome && state.run === null) return { ...gates, waitlistHeads, toSendFromWaitlists };
    const key = [account, messageId] as const;
    const message = draft.getWithoutBody("storedMessages", ...key);
    const consequences = consequenceNeeds(message ? [message] : []);
    const hasCallback = message && (message.callback ?? (isSuccess(outcome) ? null : message.failureCallback));
    const needs: Needs = {
      deduplications: consequences.deduplications,
      deadLetters: consequences.deadLetters,
      runs: consequences.runs,
      queueSlots: gates.queueSlots,
      waitlistHeads,
      hostWaitlists: consequences.hostWaitlists,
      endpoints: consequences.endpoints,
      limiters: [...gates.limiters, ...consequences.limiters],
      withoutBodies: { storedMessages: state && (state.reportsOutcome || !isSuccess(outcome)) ? [key] : [] },
      // Only a callback tells of the body.
      storedMessages: hasCallback ? [key] : [],
      toSendFromWaitlists,
    };
    return message && belongsToRun(message) ? mergeNeeds([needs, runOutcomeNeeds(draft, message, outcome, state)]) : needs;
  },
  decide: (outcome, draft, moment) => {
    const state = findLeased(draft, moment, outcome);
    const account = draft.get("accounts", outcome.account);
    const isBehind = draft.hasBacklog(outcome.account);
    const limiters = isBehind ? [] : listAwaited(draft, state);
    const settled: Settled = state && account ? applyOutcome(draft, moment, { account, state, outcome }) : { became: "late" };
    const waitlist = findHostWaitlist(draft, outcome);
    if (waitlist && isBehind) checkSoon(draft, moment, waitlist);
    else if (waitlist) serveHostWaitlist(draft, moment, waitlist);
    for (const limiter of limiters) serveLimiter(draft, moment, limiter);
    return settled;
  },
};

const noNeeds: Needs = {};

/** Nobody is told of its success, and there is no gate at which others could wait for its place: so it is with most. */
const holdsNothing = ({ reportsOutcome, slot, queue, flowControlKey, waitlist, run, counted, countedToEndpoint }: MessageState): boolean =>
  !reportsOutcome &&
  slot === null &&
  queue === null &&
  flowControlKey === null &&
  waitlist === null &&
  run === null &&
  !counted &&
  !countedToEndpoint;

/** Returns the limiters that count a message and at which others wait: when its delivery ends, one of them may be sent. */
function listAwaited(draft: Draft, state: MessageState | null | undefined): Limiter[] {
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

/** Rows that change with messages when they end badly, or when they tell of others; and the destinations of their callbacks. */
export function consequenceNeeds(messages: readonly WithoutBody<StoredMessage>[]) {
  return {
    deduplications: messages.flatMap(({ account, deduplication }) => (deduplication === null ? [] : [[account, deduplication] as const])),
    deadLetters: messages.flatMap(({ account, reportsOn }) => (reportsOn?.dlqId ? [[account, reportsOn.dlqId] as const] : [])),
    runs: messages.flatMap(({ account, run }): Key[] => (run?.kind === "failure" ? [[account, run.run]] : [])),
    ...mergeDestinationNeeds(
      messages.map((message) =>
        destinationNeeds(
          message.account,
          listCallbacks(message).map(({ url }) => url),
        ),
      ),
    ),
    limiters: messages.flatMap((message) => listLimiterKeysFor(message.account, listCallbacks(message))),
  };
}

const listCallbacks = ({ callback, failureCallback }: WithoutBody<StoredMessage>): (CallbackSettings & { queue: null })[] =>
  [callback, failureCallback].flatMap((settings) => (settings ? [{ ...settings, queue: null }] : []));

type SettledAttempt = { account: Account; state: MessageState; outcome: Outcome };

function applyOutcome(draft: Draft, moment: Moment, { account, state, outcome }: SettledAttempt): Settled {
  if (!isUnfinished(state)) {
    recordCancellation(draft, moment, { state, outcome });
    return { became: "cancelled" };
  }
  if (isSuccess(outcome) && !state.reportsOutcome) {
    recordDelivery(draft, moment, { account, state, outcome });
    release(draft, moment, state);
    return { became: "delivered" };
  }
  const message = draft.getWithoutBody("storedMessages", state.account, state.id);
  if (!message || message.damaged) return applyToDamaged(draft, moment, { account, state, outcome });
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
    scheduleRetry(draft, moment, { account, state, outcome }, nextAction.at);
  }
  createCallback(draft, moment, { account, message, state, outcome });
  if (nextAction.kind === "delivered") release(draft, moment, state);
  return { became: nextAction.kind };
}

/**
 * A message whose stored content is damaged has arrived, or it is left to the next claim, which fails it: when it is to be tried again, and
 * who is to be told, is not known any more.
 */
function applyToDamaged(draft: Draft, moment: Moment, { account, state, outcome }: SettledAttempt): Settled {
  if (!isSuccess(outcome) || state.run !== null) {
    scheduleRetry(draft, moment, { state, outcome }, moment.now);
    return { became: "retry" };
  }
  draft.fault(`message ${state.id} of account ${account.id} was delivered, but is damaged on the disk: its callback cannot be sent`);
  recordDelivery(draft, moment, { account, state, outcome });
  release(draft, moment, state);
  return { became: "delivered" };
}

/** Moves a message to the dead letter queue, opens its deduplication id again, and tells the failure callback. */
export function failMessage(draft: Draft, moment: Moment, failure: Failure): void {
  const { account, message, state, outcome } = failure;
  if (belongsToRun(message)) return failRunMessage(draft, moment, { ...failure, message });
  const id = moment.newId("dlq");
  // The dead letter of a run shows what became of its failure callback.
  const dlqId = message.run ? null : id;
  const logId = log(draft, moment, state, { states: ["ERROR", "FAILED"], dlqId, ...toLoggedResponse(outcome) });
  const deadLetter: DeadLetter = {
    account: account.id,
    id,
    messageId: state.id,
    logId,
    ...toDeadLetterResponse(outcome),
    retried: countRetries(state),
    failureCallback: message.failureCallback ? { state: "CALLBACK_INPROGRESS" } : null,
    tags: [...state.tags, toTag.url(message.url), ...(message.callerIp === null ? [] : [toTag.callerIp(message.callerIp)])],
  };
  draft.drop("messages", state.account, state.id);
  if (dlqId !== null) putDeadLetter(draft, deadLetter);
  releaseDeduplication(draft, message);
  reportCallback(draft, message, { ...toFailureCallbackInfo(outcome), state: "CALLBACK_FAIL" });
  createCallback(draft, moment, failure);
  if (message.failureCallback) {
    const reportsOn = { kind: "failureCallback", messageId: message.id, dlqId: deadLetter.id } as const;
    const content = {
      message: readWithBody(draft, message),
      retried: deadLetter.retried,
      outcome,
      reportsOn,
      maxBytes: readLimits(account).messageBytes,
    };
    accept(
      draft,
      moment,
      account,
      makeCallbackInput({ callback: message.failureCallback, ...content }),
      sharedSlot(message.failureCallback, state),
    );
  }
  release(draft, moment, state);
}

/** A message that will never be delivered must not swallow the next one with its id. */
export function releaseDeduplication(draft: Draft, message: WithoutBody<StoredMessage>): void {
  if (message.deduplication === null) return;
  const row = draft.get("deduplications", message.account, message.deduplication);
  if (row?.messageId === message.id) draft.drop("deduplications", message.account, message.deduplication);
}

/** What became of a failure callback is kept with the dead letter it told of, as long as that is there, and with its run. */
export function reportCallback(draft: Draft, message: WithoutBody<StoredMessage>, info: FailureCallbackInfo): void {
  if (message.reportsOn?.kind !== "failureCallback" || message.reportsOn.dlqId === null) return;
  const deadLetter = draft.get("deadLetters", message.account, message.reportsOn.dlqId);
  if (deadLetter && !deadLetter.damaged) draft.put("deadLetters", { ...deadLetter, failureCallback: info });
  const run = message.run && draft.get("runs", message.account, message.run.run);
  const callback = run?.failure?.callback;
  if (run?.failure && callback?.messageId === message.id) {
    draft.put("runs", { ...run, failure: { ...run.failure, callback: { ...callback, ...info } } });
  }
}

function createCallback(draft: Draft, moment: Moment, { account, message, state, outcome }: Failure): void {
  if (!message.callback) return;
  const reportsOn = { kind: "callback", messageId: message.id, dlqId: null } as const;
  const retried = countRetries(state);
  const content = { message: readWithBody(draft, message), retried, outcome, reportsOn, maxBytes: readLimits(account).messageBytes };
  accept(draft, moment, account, makeCallbackInput({ callback: message.callback, ...content }), sharedSlot(message.callback, state));
}

/** Returns the slot of a queue that a callback shares. A callback with a delay shares none, so the queue does not stop for that long. */
const sharedSlot = ({ delay = 0 }: CallbackSettings, { slot }: MessageState): string | null => (delay > 0 ? null : slot);

/** Keeps the leases of what this node is still sending, and calls off what was cancelled elsewhere meanwhile. */
export const renew: Decision<{ leases: readonly LeaseRef[] }, { renewed: number }> = {
  needs: ({ leases }) => ({ messages: leases.map(({ account, messageId }) => [account, messageId] as const) }),
  decide: ({ leases }, draft, moment) => {
    const states = leases.flatMap((one) => findLeased(draft, moment, one) ?? []);
    for (const state of states) {
      draft.put("messages", { ...state, dueAt: moment.now + spans.lease });
      if (!isUnfinished(state)) draft.abort(toLeaseRef(state));
    }
    return { renewed: states.length };
  },
};

/**
 * Gives back what this node leased and will not send, as a server does that stops. It does not count as an attempt. What is
 * of a run that has ended meanwhile is not sent any more.
 */
export const returnLeases: Decision<{ leases: readonly LeaseRef[] }, { returned: number }> = {
  needs: renew.needs,
  further: ({ leases }, draft) => {
    const states = leases.flatMap(({ account, messageId }) => draft.get("messages", account, messageId) ?? []);
    return { ...admissionNeeds(draft, states), runs: listRunKeys(states) };
  },
  decide: ({ leases }, draft, moment) => {
    const states = leases.flatMap((one) => findLeased(draft, moment, one) ?? []);
    for (const state of states) {
      if (!isUnfinished(state)) recordCancellation(draft, moment, { state, outcome: noResponse });
      else if (hasRunEnded(draft, state)) dropMessage(draft, moment, state);
      else {
        countEnd(draft, moment, state);
        draft.put("messages", { ...state, state: "pending", leasedBy: null, dueAt: moment.now });
      }
    }
    return { returned: states.length };
  },
};
