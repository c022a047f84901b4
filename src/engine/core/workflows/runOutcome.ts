import { makeCallbackInput } from "../sending/callback.ts";
import type { Draft, Moment, StepsNeed } from "../decision/command.ts";
import { endRun } from "./end.ts";
import { release } from "../admission/admission.ts";
import { log } from "../admission/messageLog.ts";
import { accept } from "../sending/createMessage.ts";
import type { OngoingRun } from "./history.ts";
import { appendStep, findRunIfOngoing, fitsHistory, formatNoRoom } from "./history.ts";
import { toTag } from "../search/tags.ts";
import { isUnfinished } from "../model/messageState.ts";
import { noBytes } from "../values/basics.ts";
import type { Account } from "../model/account.ts";
import type { DestinationResponse, Outcome } from "../model/attempt.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { RunPart } from "../model/runPost.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { Failure } from "../sending/recordOutcome.ts";
import {
  toLoggedResponse,
  recordDelivery,
  isSuccess,
  putDeadLetter,
  toDeadLetterResponse,
  scheduleRetry,
  readWithBody,
} from "../sending/recordOutcome.ts";
import { readMessageBytes } from "../accounts/plans.ts";
import { countRetries, decideNextAction } from "../sending/retry.ts";
import type { Run, RunFailure, Step } from "../model/run.ts";
import { formatHistory } from "../model/run.ts";
import { initialStepKey, toStepId } from "../model/stepId.ts";
import { readFailureMessage } from "../model/failureText.ts";
import { findRunProblem } from "./problem.ts";
import { countSince, findProgress, hasProgressed } from "./progress.ts";
import { findCallCause } from "./runCause.ts";

/** A message that a run waits for: a call to its endpoint, or to a third party. */
export type WithRun<E> = E & { run: RunPart };

/**
 * Reports whether a run depends on the outcome of this message. No run depends on the outcome of a failure
 * callback, because its run has ended.
 */
export const belongsToRun = <E extends WithoutBody<StoredMessage>>(message: E): message is WithRun<E> =>
  message.run !== undefined && message.run.kind !== "failure";

/**
 * Returns why a run cannot continue after this outcome; null if it can. The response of a third party is
 * never a reason, because the run itself judges it.
 */
function findOutcomeProblem(
  draft: Draft,
  { account, run: { kind, first, run } }: WithRun<WithoutBody<StoredMessage>>,
  outcome: DestinationResponse,
): string | null {
  if (kind === "call") return null;
  const listSteps = (): readonly Pick<Step, "head">[] => draft.listRunRows("steps", { account, run });
  return findRunProblem({ outcome, listSteps, ...(first === undefined ? {} : { first }) });
}

/**
 * Returns the steps that a failure callback reports: the initial payload or, for older clients, all steps.
 */
export const reportedStepsNeed = ({ account, id, features }: Run): StepsNeed => ({
  account,
  run: id,
  ...(features.initialBody ? { stepKey: initialStepKey } : {}),
});

type RunAttempt = {
  account: Account;
  message: WithRun<WithoutBody<StoredMessage>>;
  state: MessageState;
  outcome: Outcome;
};

/** Records the outcome of an attempt to send a message of a run, and its consequences. */
export function applyRunOutcome(
  draft: Draft,
  moment: Moment,
  attempt: RunAttempt,
): { became: "delivered" | "retry" | "failed" } {
  const { message, state, outcome } = attempt;
  const { run: part } = message;
  const ongoing = findRunIfOngoing(draft, message.account, part);
  const progress = ongoing ? findProgress(draft, message) : null;
  if (ongoing && outcome.unanswered === true && (state.endedAttempts ?? 0) === 0) {
    scheduleRetry(draft, moment, { ...attempt, state: { ...state, endedAttempts: 1 }, at: moment.now });
    return { became: "retry" };
  }
  if (hasProgressed(state, progress) && (outcome.status === null || isSuccess(outcome))) {
    repeatCall(draft, moment, attempt);
    return { became: "retry" };
  }
  const problem = findOutcomeProblem(draft, message, outcome);
  const { retried } = countSince(state, progress);
  const nextAction = decideNextAction({ message, outcome, retried, now: moment.now });
  if (nextAction.kind === "delivered" && (problem === null || !ongoing)) {
    const tooLong =
      ongoing && part.kind === "call" ? appendCallResult(draft, moment, { ...attempt, ongoing }) : null;
    if (ongoing && tooLong !== null) {
      failRun(draft, moment, { ...attempt, ongoing, outcome: { ...outcome, error: tooLong } });
      return { became: "failed" };
    }
    recordDelivery(draft, moment, attempt);
    release(draft, moment, state);
  } else if (ongoing && problem === null && nextAction.kind === "retry") {
    scheduleRetry(draft, moment, { ...attempt, at: nextAction.at });
  } else {
    failRunMessage(draft, moment, {
      ...attempt,
      outcome: problem === null ? outcome : { ...outcome, error: problem },
    });
    return { became: "failed" };
  }
  return { became: nextAction.kind };
}

/**
 * Makes a call again in which steps ran on, and which then ended without a post or an error. No other message
 * carries the run on. The attempt counts as lost and not as a retry, because no step has failed.
 */
function repeatCall(draft: Draft, moment: Moment, attempt: RunAttempt): void {
  const { state, outcome } = attempt;
  const why = outcome.error ?? "the endpoint responded, but posted neither a step nor the end of the run";
  scheduleRetry(draft, moment, {
    ...attempt,
    state: { ...state, lostAttempts: state.lostAttempts + 1 },
    outcome: { ...outcome, error: `no report: ${why}` },
    at: moment.now,
  });
}

/**
 * Handles a message of a run that is not sent again. A call to a third party still gets a result, which the
 * run judges. Any other message fails the run. If the run has ended already, it is not affected.
 */
export function failRunMessage(
  draft: Draft,
  moment: Moment,
  failure: Failure & { message: WithRun<WithoutBody<StoredMessage>> },
): void {
  const { message, state, outcome } = failure;
  const { run: part } = message;
  const ongoing = findRunIfOngoing(draft, message.account, part);
  if (ongoing && part.kind !== "call") return failRun(draft, moment, { ...failure, ongoing });
  const tooLong = ongoing && appendCallResult(draft, moment, { ...failure, ongoing });
  if (ongoing && tooLong !== null)
    return failRun(draft, moment, { ...failure, ongoing, outcome: { ...outcome, error: tooLong } });
  draft.drop("messages", state.account, state.id);
  log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: { states: ongoing ? ["ERROR", "FAILED"] : ["ERROR", "CANCELLED"], ...toLoggedResponse(outcome) },
  });
  release(draft, moment, state);
}

type OngoingFailure = Failure & { message: WithRun<WithoutBody<StoredMessage>>; ongoing: OngoingRun };

/**
 * Appends the last response of a third party as a step and calls the endpoint with it. If
 * the response does not fit into the history, returns the reason for which the run fails.
 */
function appendCallResult(
  draft: Draft,
  moment: Moment,
  { account, message, state, outcome, ongoing }: OngoingFailure,
): string | null {
  const { callback } = message;
  if (!callback) return null;
  const call = draft.inspectWithoutBody("steps", account.id, toStepId(ongoing.run.id, message.run.stepKey));
  if (call?.damaged) return "the step that called the third party is damaged in the store";
  const reportsOn = { kind: "callback", messageId: message.id, dlqId: null } as const;
  const retried = countRetries(state);
  // This response is the last one. A client that sees remaining retries would expect another response, and
  // would wait for it.
  const retries = isSuccess(outcome) ? message.retries : retried;
  // The response is not cut here, because a run never continues with a part of a response. Below, a response
  // that is too long for the history fails the run.
  const content = {
    message: { ...readWithBody(draft, message), retries },
    retried,
    outcome,
    reportsOn,
    maxBytes: Infinity,
  };
  const { body, headers } = makeCallbackInput({ callback, ...content });
  if (!fitsHistory(ongoing, body.byteLength)) {
    const step = call?.head ? `step ${call.head.stepId} ${JSON.stringify(call.head.stepName)}` : "a step";
    return `${step}: ${formatNoRoom(ongoing, "the response of the third party")}`;
  }
  appendStep(draft, moment, {
    account,
    ongoing,
    step: {
      callType: "fromCallback",
      head: call?.head ?? null,
      body,
      url: callback.url,
      headers,
      kind: "result",
      delay: callback.delay,
      overrides: { failureCallback: message.failureCallback },
    },
  });
  return null;
}

/**
 * Ends a run because a call to its endpoint failed for good. The call becomes a dead letter, and the failure
 * callback is sent. If the post that created the message has its own failure callback, this becomes the
 * failure callback of the run. It can then be called again, and a resumed run has it too.
 */
function failRun(
  draft: Draft,
  moment: Moment,
  { account, message, state, outcome, ongoing: { run: failed, active } }: OngoingFailure,
): void {
  const failureCallback = message.failureCallback ?? failed.settings.failureCallback;
  const run: Run = { ...failed, settings: { ...failed.settings, failureCallback } };
  const id = moment.newId("dlq");
  const logId = log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: { states: ["ERROR", "FAILED"], dlqId: id, ...toLoggedResponse(outcome) },
  });
  const deadLetter = makeDeadLetter(draft, { account, message, state, outcome, run }, { id, logId });
  draft.drop("messages", state.account, state.id);
  putDeadLetter(draft, deadLetter);
  const others = draft
    .listRunRows("messages", { account: account.id, run: run.id })
    .filter((other) => other.id !== state.id && isUnfinished(other));
  const failure: RunFailure = {
    messageId: state.id,
    dlqId: deadLetter.id,
    error: outcome.error ?? "",
    ...readFailureMessage(outcome.body),
    status: outcome.status,
    headers: outcome.headers,
    unfinished: others.map(({ id, dueAt, state: at }) => ({
      messageId: id,
      dueAt: at === "pending" ? dueAt : null,
    })),
    callback: null,
  };
  const ended = endRun(draft, moment, {
    account,
    ongoing: { run, active },
    ending: { state: "RUN_FAILED", failure },
  });
  if (failureCallback)
    sendFailureCallback(draft, moment, {
      account,
      run: ended,
      deadLetter,
      outcome,
      message,
      callback: failureCallback,
    });
  release(draft, moment, state);
}

/** Returns the dead letter of a call to an endpoint with which a run ends. */
function makeDeadLetter(
  draft: Draft,
  { account, message, state, outcome, run }: Omit<OngoingFailure, "ongoing"> & { run: Run },
  { id, logId }: { id: string; logId: string },
): DeadLetter {
  const { failureCallback } = run.settings;
  const cause = findCallCause(draft, { ...outcome, message, url: run.url });
  return {
    account: account.id,
    id,
    messageId: state.id,
    logId,
    ...toDeadLetterResponse(outcome),
    cause: cause.error,
    retried: countRetries(state),
    failureCallback: failureCallback ? { state: "CALLBACK_INPROGRESS" } : null,
    run: {
      key: run.id,
      runId: run.runId,
      createdAt: run.createdAt,
      url: run.url,
      failureUrl: failureCallback?.url ?? null,
    },
    tags: [
      ...state.tags,
      ...new Set([toTag.url(message.url), toTag.url(run.url)]),
      toTag.run(run.runId),
      toTag.workflow,
      ...(run.callerIp === null ? [] : [toTag.callerIp(run.callerIp)]),
      toTag.runCause(cause.id),
    ],
  };
}

type FailureReport = {
  account: Account;
  run: Run;
  deadLetter: DeadLetter;
  outcome: DestinationResponse;
  message: WithoutBody<StoredMessage>;
  callback: CallbackSettings;
};

/** Sends the failure callback of a run with the initial payload or, for older clients, with the history. */
export function sendFailureCallback(
  draft: Draft,
  moment: Moment,
  { account, run, deadLetter, outcome, message, callback }: FailureReport,
): void {
  const steps = [...draft.listSteps(account.id, run.id, reportedStepsNeed(run).stepKey)].sort(
    (a, b) => a.position - b.position,
  );
  const isSound = !steps.some(({ damaged }) => damaged);
  const known = run.features.initialBody ? steps[0]?.body : formatHistory(steps);
  const reportsOn = { kind: "failureCallback", messageId: message.id, dlqId: deadLetter.id } as const;
  const content = {
    // The headers of a request to a third party, such as its credentials, are only for that party.
    message: {
      ...message,
      url: run.url,
      ...(message.run?.kind === "call" ? { headers: run.settings.headers } : {}),
      // Damaged content is never sent.
      body: (isSound && known) || noBytes,
    },
    retried: deadLetter.retried,
    outcome,
    reportsOn,
    maxBytes: readMessageBytes(account, moment),
  };
  const part: RunPart = {
    run: run.id,
    runId: run.runId,
    createdAt: run.createdAt,
    kind: "failure",
    stepKey: "",
    position: 0,
    size: 0,
  };
  const input = makeCallbackInput({
    callback: { ...callback, retries: callback.retries ?? run.settings.retries },
    ...content,
  });
  const callbackMessage = accept(draft, moment, {
    account,
    input: { ...input, run: { ...part, size: input.body.byteLength } },
  });
  const state = "CALLBACK_INPROGRESS" as const;
  draft.put("deadLetters", { ...deadLetter, failureCallback: { state } });
  if (run.failure)
    draft.put("runs", {
      ...run,
      failure: { ...run.failure, callback: { messageId: callbackMessage.id, url: callback.url, state } },
    });
}
