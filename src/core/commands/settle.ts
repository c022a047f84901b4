import { callbackLetter } from "../sending/callback.ts";
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
import { isLeftOver, leaveOut, runsOf } from "../workflows/end.ts";
import { spans } from "../values/limits.ts";
import { markOf } from "../search/tags.ts";
import type { Failure } from "../sending/outcome.ts";
import {
  answerOf,
  cancelled,
  delivered,
  infoOf,
  isSuccess,
  keepDeadLetter,
  lastAnswerOf,
  noAnswer,
  tryLater,
  withBody,
} from "../sending/outcome.ts";
import { drawOfRun, failOfRun, isOfRun, needsOfRunOutcome } from "../workflows/outcome.ts";
import { together } from "../decision/needs.ts";
import type {
  Account,
  CallbackSettings,
  DeadLetter,
  Envelope,
  FailureCallbackInfo,
  Flow,
  Held,
  MessageState,
  Outcome,
  Outline,
} from "../model/message.ts";
import { isUnfinished } from "../model/message.ts";
import { limitsOf } from "../accounts/plans.ts";
import { verdictOf } from "../sending/retry.ts";

/** `late`: the lease had been lost; the outcome changed nothing. `cancelled`: the message was, and so nothing followed from it. */
export type Settled = { became: "delivered" | "retry" | "failed" | "cancelled" | "late" };

/** Draws the consequences of one attempt: delivered, tried again later, or dead-lettered; callbacks; the lines before what it gives back. */
export const settle: Decision<Outcome, Settled> = {
  needs: ({ account, messageId, host }) => ({
    accounts: [[account]],
    messages: [[account, messageId]],
    lines: [[account, host]],
  }),
  further: (outcome, draft) => {
    const { account, messageId, host } = outcome;
    const state = draft.get("messages", account, messageId);
    const line = draft.isBehind(account) ? undefined : draft.get("lines", account, host);
    if (state && !line && isSuccess(outcome) && isFree(state)) return nothing;
    const flows = draft.isBehind(account) ? [] : listAwaited(draft, state);
    const heads = [
      ...(line ? [{ account, line: formatGate(capacityGate(host)), limit: headLimit }] : []),
      ...flows.map(({ id }) => ({ account, line: id, limit: 1 })),
    ];
    const toSendFrom = [...(line ? withCapacity(draft, [line]) : []), ...flows.map(({ id }) => ({ account, line: id }))];
    const gates = admissionNeeds(draft, state ? [state] : []);
    if (state && isSuccess(outcome) && !state.tells && state.run === null) return { ...gates, heads, toSendFrom };
    const key = [account, messageId] as const;
    const envelope = draft.outline("envelopes", ...key);
    const told = needsOfConsequences(envelope ? [envelope] : []);
    const hasCallback = envelope && (envelope.callback ?? (isSuccess(outcome) ? null : envelope.failureCallback));
    const needs: Needs = {
      ...{ deduplications: told.deduplications, deadLetters: told.deadLetters, runs: told.runs, slots: gates.slots, heads },
      ...{ lines: told.lines, endpoints: told.endpoints },
      flows: [...gates.flows, ...told.flows],
      outlines: { envelopes: state && (state.tells || !isSuccess(outcome)) ? [key] : [] },
      // Only a callback tells of the body.
      envelopes: hasCallback ? [key] : [],
      toSendFrom,
    };
    return envelope && isOfRun(envelope) ? together([needs, needsOfRunOutcome(draft, envelope, outcome, state)]) : needs;
  },
  decide: (outcome, draft, moment) => {
    const state = findLeased(draft, moment, outcome);
    const account = draft.get("accounts", outcome.account);
    const isBehind = draft.isBehind(outcome.account);
    const flows = isBehind ? [] : listAwaited(draft, state);
    const settled: Settled = state && account ? draw(draft, moment, { account, state, outcome }) : { became: "late" };
    const line = findHostWaitlist(draft, outcome);
    if (line && isBehind) checkSoon(draft, moment, line);
    else if (line) serveHostWaitlist(draft, moment, line);
    for (const flow of flows) serveLimiter(draft, moment, flow);
    return settled;
  },
};

const nothing: Needs = {};

/** Nobody is told of its success, and there is no gate at which others could wait for its place: so it is with most. */
const isFree = ({ tells, slot, queue, flowKey, line, run, counted, countedToEndpoint }: MessageState): boolean =>
  !tells && slot === null && queue === null && flowKey === null && line === null && run === null && !counted && !countedToEndpoint;

/** Returns the limiters that count a message and at which others wait: when its delivery ends, one of them may be sent. */
function listAwaited(draft: Draft, state: MessageState | null | undefined): Flow[] {
  if (!state) return [];
  const { account, flowKey } = state;
  const awaited: Flow[] = [];
  const add = (gate: LimiterGate): void => {
    const limiter = findLimiter(draft, { account, gate });
    if (limiter && limiter.waiting > 0) awaited.push(limiter);
  };
  const slot = state.slot === null ? undefined : draft.get("slots", account, state.slot);
  if (flowKey !== null) add(keyGate(flowKey));
  if (slot) add(queueGate(slot.queue));
  if (state.countedToEndpoint) add(endpointGate(state));
  if (state.counted) add(accountGate);
  return awaited;
}

/** Rows that change with messages when they end badly, or when they tell of others; and the destinations of their callbacks. */
export function needsOfConsequences(envelopes: readonly Outline<Envelope>[]) {
  return {
    deduplications: envelopes.flatMap(({ account, deduplication }) => (deduplication === null ? [] : [[account, deduplication] as const])),
    deadLetters: envelopes.flatMap(({ account, tells }) => (tells?.dlqId ? [[account, tells.dlqId] as const] : [])),
    runs: envelopes.flatMap(({ account, run }): Key[] => (run?.kind === "failure" ? [[account, run.run]] : [])),
    ...mergeDestinationNeeds(
      envelopes.map((envelope) =>
        destinationNeeds(
          envelope.account,
          callbacksOf(envelope).map(({ url }) => url),
        ),
      ),
    ),
    flows: envelopes.flatMap((envelope) => listLimiterKeysFor(envelope.account, callbacksOf(envelope))),
  };
}

const callbacksOf = ({ callback, failureCallback }: Outline<Envelope>): (CallbackSettings & { queue: null })[] =>
  [callback, failureCallback].flatMap((told) => (told ? [{ ...told, queue: null }] : []));

type Case = { account: Account; state: MessageState; outcome: Outcome };

function draw(draft: Draft, moment: Moment, { account, state, outcome }: Case): Settled {
  if (!isUnfinished(state)) {
    cancelled(draft, moment, { state, outcome });
    return { became: "cancelled" };
  }
  if (isSuccess(outcome) && !state.tells) {
    delivered(draft, moment, { account, state, outcome });
    release(draft, moment, state);
    return { became: "delivered" };
  }
  const envelope = draft.outline("envelopes", state.account, state.id);
  if (!envelope || envelope.damaged) return drawSpoiled(draft, moment, { account, state, outcome });
  if (isOfRun(envelope)) return drawOfRun(draft, moment, { account, envelope, state, outcome });
  const retried = state.attempts - state.lost;
  const verdict = verdictOf({ envelope, outcome, retried, now: moment.now });
  if (verdict.kind === "failed") {
    failForGood(draft, moment, { account, envelope, state, outcome });
    return { became: "failed" };
  }
  if (verdict.kind === "delivered") {
    delivered(draft, moment, { account, state, outcome });
    reportCallback(draft, envelope, { ...infoOf(outcome), state: "CALLBACK_SUCCESS" });
  } else {
    tryLater(draft, moment, { account, state, outcome }, verdict.at);
  }
  callBack(draft, moment, { account, envelope, state, outcome });
  if (verdict.kind === "delivered") release(draft, moment, state);
  return { became: verdict.kind };
}

/**
 * A message whose stored content is damaged has arrived, or it is left to the next claim, which fails it: when it is to be tried again, and
 * who is to be told, is not known any more.
 */
function drawSpoiled(draft: Draft, moment: Moment, { account, state, outcome }: Case): Settled {
  if (!isSuccess(outcome) || state.run !== null) {
    tryLater(draft, moment, { state, outcome }, moment.now);
    return { became: "retry" };
  }
  draft.fault(`message ${state.id} of account ${account.id} was delivered, but is damaged on the disk: its callback cannot be sent`);
  delivered(draft, moment, { account, state, outcome });
  release(draft, moment, state);
  return { became: "delivered" };
}

/** Moves a message to the dead letter queue, opens its deduplication id again, and tells the failure callback. */
export function failForGood(draft: Draft, moment: Moment, failure: Failure): void {
  const { account, envelope, state, outcome } = failure;
  if (isOfRun(envelope)) return failOfRun(draft, moment, { ...failure, envelope });
  const id = moment.newId("dlq");
  // The dead letter of a run shows what became of its failure callback.
  const dlqId = envelope.run ? null : id;
  const logId = log(draft, moment, state, { states: ["ERROR", "FAILED"], dlqId, ...answerOf(outcome) });
  const letter: DeadLetter = {
    ...{ account: account.id, id, messageId: state.id, logId },
    ...lastAnswerOf(outcome),
    retried: state.attempts - state.lost,
    failureCallback: envelope.failureCallback ? { state: "CALLBACK_INPROGRESS" } : null,
    marks: [...state.marks, markOf.url(envelope.url), ...(envelope.callerIp === null ? [] : [markOf.callerIp(envelope.callerIp)])],
  };
  draft.drop("messages", state.account, state.id);
  if (dlqId !== null) keepDeadLetter(draft, letter);
  releaseDeduplication(draft, envelope);
  reportCallback(draft, envelope, { ...infoOf(outcome), state: "CALLBACK_FAIL" });
  callBack(draft, moment, failure);
  if (envelope.failureCallback) {
    const tells = { kind: "failureCallback", messageId: envelope.id, dlqId: letter.id } as const;
    const told = { envelope: withBody(draft, envelope), retried: letter.retried, outcome, tells, most: limitsOf(account).messageBytes };
    accept(draft, moment, account, callbackLetter({ to: envelope.failureCallback, ...told }), slotFor(envelope.failureCallback, state));
  }
  release(draft, moment, state);
}

/** A message that will never be delivered must not swallow the next one with its id. */
export function releaseDeduplication(draft: Draft, envelope: Outline<Envelope>): void {
  if (envelope.deduplication === null) return;
  const row = draft.get("deduplications", envelope.account, envelope.deduplication);
  if (row?.messageId === envelope.id) draft.drop("deduplications", envelope.account, envelope.deduplication);
}

/** What became of a failure callback is kept with the dead letter it told of, as long as that is there, and with its run. */
export function reportCallback(draft: Draft, envelope: Outline<Envelope>, info: FailureCallbackInfo): void {
  if (envelope.tells?.kind !== "failureCallback" || envelope.tells.dlqId === null) return;
  const letter = draft.get("deadLetters", envelope.account, envelope.tells.dlqId);
  if (letter && !letter.damaged) draft.put("deadLetters", { ...letter, failureCallback: info });
  const run = envelope.run && draft.get("runs", envelope.account, envelope.run.run);
  const callback = run?.failure?.callback;
  if (run?.failure && callback?.messageId === envelope.id) {
    draft.put("runs", { ...run, failure: { ...run.failure, callback: { ...callback, ...info } } });
  }
}

function callBack(draft: Draft, moment: Moment, { account, envelope, state, outcome }: Failure): void {
  if (!envelope.callback) return;
  const tells = { kind: "callback", messageId: envelope.id, dlqId: null } as const;
  const retried = state.attempts - state.lost;
  const told = { envelope: withBody(draft, envelope), retried, outcome, tells, most: limitsOf(account).messageBytes };
  accept(draft, moment, account, callbackLetter({ to: envelope.callback, ...told }), slotFor(envelope.callback, state));
}

/** Returns the slot of a queue that a callback shares. A callback with a delay shares none, so the queue does not stop for that long. */
const slotFor = ({ delay = 0 }: CallbackSettings, { slot }: MessageState): string | null => (delay > 0 ? null : slot);

/** Keeps the leases of what this node is still sending, and calls off what was cancelled elsewhere meanwhile. */
export const renew: Decision<{ held: readonly Held[] }, { renewed: number }> = {
  needs: ({ held }) => ({ messages: held.map(({ account, messageId }) => [account, messageId] as const) }),
  decide: ({ held }, draft, moment) => {
    const states = held.flatMap((one) => findLeased(draft, moment, one) ?? []);
    for (const state of states) {
      draft.put("messages", { ...state, dueAt: moment.now + spans.lease });
      if (!isUnfinished(state)) draft.callOff(toLeaseRef(state));
    }
    return { renewed: states.length };
  },
};

/**
 * Gives back what this node leased and will not send, as a server does that stops. It does not count as an attempt. What is
 * of a run that has ended meanwhile is not sent any more.
 */
export const giveBack: Decision<{ held: readonly Held[] }, { returned: number }> = {
  needs: renew.needs,
  further: ({ held }, draft) => {
    const states = held.flatMap(({ account, messageId }) => draft.get("messages", account, messageId) ?? []);
    return { ...admissionNeeds(draft, states), runs: runsOf(states) };
  },
  decide: ({ held }, draft, moment) => {
    const states = held.flatMap((one) => findLeased(draft, moment, one) ?? []);
    for (const state of states) {
      if (!isUnfinished(state)) cancelled(draft, moment, { state, outcome: noAnswer });
      else if (isLeftOver(draft, state)) leaveOut(draft, moment, state);
      else {
        countEnd(draft, moment, state);
        draft.put("messages", { ...state, state: "pending", leasedBy: null, dueAt: moment.now });
      }
    }
    return { returned: states.length };
  },
};
