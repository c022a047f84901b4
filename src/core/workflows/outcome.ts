import { callbackLetter } from "../sending/callback.ts";
import type { Draft, Moment, Needs, StepsNeed } from "../decision/command.ts";
import { needsOfEnding, endRun } from "./end.ts";
import { release } from "../admission/admission.ts";
import { log } from "../admission/messageLog.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import { accept } from "../sending/createMessage.ts";
import type { Going } from "./history.ts";
import { Later } from "../values/errors.ts";
import { appendStep, goingRun, hasRoom, needsOfRun, noRoomFor } from "./history.ts";
import { markOf } from "../search/tags.ts";
import { noBytes } from "../model/message.ts";
import type { Account, Answer, CallbackSettings, DeadLetter, Envelope, MessageState, Outcome, Outline, RunPart } from "../model/message.ts";
import { together } from "../decision/needs.ts";
import type { Failure } from "../sending/outcome.ts";
import { answerOf, delivered, isSuccess, keepDeadLetter, lastAnswerOf, tryLater, withBody } from "../sending/outcome.ts";
import { limitsOf } from "../accounts/plans.ts";
import { verdictOf } from "../sending/retry.ts";
import type { Run, RunFailure, Step } from "../model/run.ts";
import { historyBody } from "../model/run.ts";
import { initialStepKey, toStepId } from "../model/stepId.ts";
import { saidIn } from "../model/failureText.ts";
import { problemOf } from "./problem.ts";

/** A message that a run waits for: a call to its endpoint, or to a third party. */
export type OfRun<E> = E & { run: RunPart };

/** Whether the run of a message depends on what becomes of it. A failure callback only tells of a run that has ended. */
export const isOfRun = <E extends Outline<Envelope>>(envelope: E): envelope is OfRun<E> =>
  envelope.run !== undefined && envelope.run.kind !== "failure";

/**
 * What must be seen when a message of a run has an outcome: the run, and where it ends with it all that changes then, which
 * may be much. `state`: it may be sent again; otherwise it is not.
 */
export function needsOfRunOutcome(draft: Draft, envelope: OfRun<Outline<Envelope>>, outcome: Answer, state?: MessageState): Needs {
  const { account, run: part } = envelope;
  const own: Needs = {
    ...{ runs: [[account, part.run]], activeRuns: [[account, part.runId]], ...destinationNeeds(account, [envelope.url]) },
    outlines: { steps: part.kind === "call" ? [[account, toStepId(part.run, part.slot)]] : [] },
  };
  const going = goingRun(draft, account, part.runId, part.run);
  if (!going) return own;
  // When it is sent again matters to nobody here.
  const verdict = state ? verdictOf({ envelope, outcome, retried: retriedOf(state), now: 0 }).kind : "failed";
  const ofRun = needsOfRun(draft, account, part.runId);
  if (part.kind === "call") {
    if (verdict === "retry") return own;
    const isSound = !draft.outline("steps", account, toStepId(part.run, part.slot))?.damaged;
    const ending =
      isSound && surelyFits(going, part, outcome)
        ? []
        : [needsOfEnding(draft, account, part.run), needsOfFailure(account, going.run, outcome)];
    return together([own, ofRun, { envelopes: [[account, envelope.id]] }, ...ending]);
  }
  if (verdict !== "failed" && problemIn(part, outcome, []) === null) return own;
  return together([own, ofRun, needsOfEnding(draft, account, part.run), needsOfFailure(account, going.run, outcome)]);
}

/**
 * Whether the answer of a third party surely fits into the history: before its step is written, which has the answer in
 * base64, what was asked as well, and the headers of both.
 */
const surelyFits = (going: Going, { size }: RunPart, { body }: Answer): boolean =>
  hasRoom(going, 2 * (body.byteLength + size) + 1024 * 1024);

/** Why a run cannot go on after this answer. That of a third party is for the run to look at, whatever it is. */
const problemIn = ({ kind, first }: RunPart, outcome: Answer, steps: readonly Pick<Step, "head">[]): string | null =>
  kind === "call" ? null : problemOf({ outcome, steps, ...(first === undefined ? {} : { first }) });

const retriedOf = ({ attempts, lost }: MessageState): number => attempts - lost;

function needsOfFailure(account: Account["id"], run: Run, outcome: Answer): Needs {
  const { failureCallback } = run.settings;
  const isMisfit = !isSuccess(outcome) && problemOf({ outcome, steps: [] }) !== null;
  return {
    ofRuns: isMisfit ? [{ account, run: run.id, table: "steps" }] : [],
    stepsOf: failureCallback ? [toldOf(run)] : [],
    ...(failureCallback && destinationNeeds(account, [failureCallback.url])),
    flows: failureCallback ? listLimiterKeysFor(account, [{ ...failureCallback, queue: null }]) : [],
  };
}

/** What a failure callback tells of the history: the initial payload, or for older clients all of it. */
export const toldOf = ({ account, id, features }: Run): StepsNeed => ({
  account,
  run: id,
  ...(features.initialBody ? { slot: initialStepKey } : {}),
});

type Case = { account: Account; envelope: OfRun<Outline<Envelope>>; state: MessageState; outcome: Outcome };

/** Draws the consequences of one attempt to send a message of a run. */
export function drawOfRun(draft: Draft, moment: Moment, of: Case): { became: "delivered" | "retry" | "failed" } {
  const { envelope, state, outcome } = of;
  const { run: part } = envelope;
  const going = goingRun(draft, envelope.account, part.runId, part.run);
  const steps = draft.ofRun("steps", envelope.account, part.run);
  const problem = problemIn(part, outcome, steps);
  const verdict = verdictOf({ envelope, outcome, retried: retriedOf(state), now: moment.now });
  if (verdict.kind === "delivered" && (problem === null || !going)) {
    const tooLong = going && part.kind === "call" ? takeAnswer(draft, moment, { ...of, going }) : null;
    if (going && tooLong !== null) {
      failRun(draft, moment, { ...of, going, outcome: { ...outcome, error: tooLong } });
      return { became: "failed" };
    }
    delivered(draft, moment, of);
    release(draft, moment, state);
  } else if (going && problem === null && verdict.kind === "retry") {
    tryLater(draft, moment, of, verdict.at);
  } else {
    failOfRun(draft, moment, { ...of, outcome: problem === null ? outcome : { ...outcome, error: problem } });
    return { became: "failed" };
  }
  return { became: verdict.kind };
}

/**
 * A message of a run is not sent again. A request to a third party has an answer all the same, for the run to look at;
 * any other fails the run. When the run has ended before, nothing follows from it.
 */
export function failOfRun(draft: Draft, moment: Moment, failure: Failure & { envelope: OfRun<Outline<Envelope>> }): void {
  const { envelope, state, outcome } = failure;
  const { run: part } = envelope;
  const going = goingRun(draft, envelope.account, part.runId, part.run);
  if (going && part.kind !== "call") return failRun(draft, moment, { ...failure, going });
  const tooLong = going && takeAnswer(draft, moment, { ...failure, going });
  if (going && tooLong !== null) return failRun(draft, moment, { ...failure, going, outcome: { ...outcome, error: tooLong } });
  draft.drop("messages", state.account, state.id);
  log(draft, moment, state, { states: going ? ["ERROR", "FAILED"] : ["ERROR", "CANCELLED"], ...answerOf(outcome) });
  release(draft, moment, state);
}

type GoingFailure = Failure & { envelope: OfRun<Outline<Envelope>>; going: Going };

/**
 * The last answer of a third party becomes a step, which the endpoint is called with (protocol 6.9, 3). One that does not
 * fit is none: what is said of it, as the reason why the run fails.
 */
function takeAnswer(draft: Draft, moment: Moment, { account, envelope, state, outcome, going }: GoingFailure): string | null {
  const { callback } = envelope;
  if (!callback) return null;
  const call = draft.outline("steps", account.id, toStepId(going.run.id, envelope.run.slot));
  if (call?.damaged) {
    if (!draft.mayEnd(account.id, going.run.id)) throw new Later();
    return "the step that called the third party is damaged in the store";
  }
  const tells = { kind: "callback", messageId: envelope.id, dlqId: null } as const;
  const retried = retriedOf(state);
  // This answer is the last one. A client takes a failure for one that will be tried again while retries are left, and waits.
  const retries = isSuccess(outcome) ? envelope.retries : retried;
  // A step never goes on with a part of an answer. What is too long for the history is refused below.
  const told = { envelope: { ...withBody(draft, envelope), retries }, retried, outcome, tells, most: Infinity };
  const { body, headers } = callbackLetter({ to: callback, ...told });
  if (!hasRoom(going, body.byteLength)) {
    // Others of this batch have made the history longer.
    if (!draft.mayEnd(account.id, going.run.id)) throw new Later();
    const step = call?.head ? `step ${call.head.stepId} ${JSON.stringify(call.head.stepName)}` : "a step";
    return `${step}: ${noRoomFor(going, "the answer of the third party")}`;
  }
  appendStep(draft, moment, account, going, {
    ...{
      callType: "fromCallback",
      head: call?.head ?? null,
      body,
      url: callback.url,
      headers,
      kind: "result",
      delay: callback.delay ?? null,
    },
  });
  return null;
}

/** Ends a run because a call to its endpoint has failed for good: it is a dead letter now, and the failure callback is told. */
function failRun(draft: Draft, moment: Moment, { account, envelope, state, outcome, going }: GoingFailure): void {
  const { run } = going;
  const { failureCallback } = run.settings;
  const id = moment.newId("dlq");
  const logId = log(draft, moment, state, { states: ["ERROR", "FAILED"], dlqId: id, ...answerOf(outcome) });
  const letter: DeadLetter = {
    ...{ account: account.id, id, messageId: state.id, logId },
    ...lastAnswerOf(outcome),
    retried: retriedOf(state),
    failureCallback: failureCallback ? { state: "CALLBACK_INPROGRESS" } : null,
    run: { key: run.id, runId: run.runId, createdAt: run.createdAt, url: run.url, failureUrl: failureCallback?.url ?? null },
    marks: [
      ...[...state.marks, ...new Set([markOf.url(envelope.url), markOf.url(run.url)]), markOf.run(run.runId), markOf.workflow],
      ...(run.callerIp === null ? [] : [markOf.callerIp(run.callerIp)]),
    ],
  };
  draft.drop("messages", state.account, state.id);
  keepDeadLetter(draft, letter);
  const others = draft.ofRun("messages", account.id, run.id).filter(({ id }) => id !== state.id);
  const failure: RunFailure = {
    ...{ messageId: state.id, dlqId: letter.id, error: outcome.error ?? "", ...saidIn(outcome.body) },
    ...{ status: outcome.status, headers: outcome.headers },
    unfinished: others.map(({ id, dueAt, state: at }) => ({ messageId: id, dueAt: at === "pending" ? dueAt : null })),
    callback: null,
  };
  const ended = endRun(draft, moment, account, going, { state: "RUN_FAILED", failure });
  if (failureCallback) callBackFailure(draft, moment, { account, run: ended, letter, outcome, envelope, to: failureCallback });
  release(draft, moment, state);
}

type FailureTold = { account: Account; run: Run; letter: DeadLetter; outcome: Answer; envelope: Outline<Envelope>; to: CallbackSettings };

/** Tells the failure callback of a run that it has failed, with the initial payload, or for older clients with the history. */
export function callBackFailure(draft: Draft, moment: Moment, { account, run, letter, outcome, envelope, to }: FailureTold): void {
  const steps = [...draft.stepsOf(account.id, run.id, toldOf(run).slot)].sort((a, b) => a.position - b.position);
  const isSound = !steps.some(({ damaged }) => damaged);
  const known = run.features.initialBody ? steps[0]?.body : historyBody(steps);
  const tells = { kind: "failureCallback", messageId: envelope.id, dlqId: letter.id } as const;
  const told = {
    // Headers of a request to a third party, such as its credentials, are for that party only.
    envelope: {
      ...envelope,
      url: run.url,
      ...(envelope.run?.kind === "call" ? { headers: run.settings.headers } : {}),
      // What is damaged is told to nobody.
      body: (isSound && known) || noBytes,
    },
    retried: letter.retried,
    outcome,
    tells,
    most: limitsOf(account).messageBytes,
  };
  const part: RunPart = {
    ...{ run: run.id, runId: run.runId, createdAt: run.createdAt, kind: "failure", slot: "", position: 0 },
    size: 0,
  };
  const callback = callbackLetter({ to: { ...to, retries: to.retries ?? run.settings.retries }, ...told });
  const message = accept(draft, moment, account, { ...callback, run: { ...part, size: callback.body.byteLength } });
  const state = "CALLBACK_INPROGRESS" as const;
  draft.put("deadLetters", { ...letter, failureCallback: { state } });
  if (run.failure) draft.put("runs", { ...run, failure: { ...run.failure, callback: { messageId: message.id, url: to.url, state } } });
}
