import { mustAfford } from "../accounts/budget.ts";
import { brandNames } from "../values/brand.ts";
import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import { damagedDeadLetterRefusal, removalNeeds, removeDeadLetter } from "./dlq.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import type { OngoingRun } from "../workflows/history.ts";
import { sendStep } from "../workflows/history.ts";
import type {
  Account,
  AccountId,
  Brand,
  CallbackSettings,
  DeadLetter,
  FlowControl,
  HeaderList,
  MessageId,
  Millis,
  WithoutBody,
  RunPart,
} from "../model/message.ts";
import { defaultCallback, mergeFlowControl, mustMergeFlowControl } from "./overrides.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findSendingRefusal } from "./publish.ts";
import type { Run, Step } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import type { StepKind } from "../model/stepId.ts";
import { formatStepKey, initialStepKey, isInitial, parseStepId, readRunPart, toStepId } from "../model/stepId.ts";
import { sendFailureCallback, reportedStepsNeed } from "../workflows/outcome.ts";
import { createRun } from "../workflows/start.ts";
import { mustHaveStorage } from "../accounts/storageQuota.ts";

/** What a resumed run may have anew; what is absent stays as it was. */
export type RunOverrides = {
  runId?: string;
  retries?: number;
  retryDelay?: string;
  /** A key without limits keeps those that the run had, and limits without a key the key. Where the run had none, both are needed. */
  flowControl?: Partial<FlowControl>;
  labels?: readonly string[];
  /** Where the failure is told; how stays as it was. */
  failureUrl?: string;
  /** Of the first message. */
  delay?: Millis;
};

export type Resumed = { dlqId: string; runId: string; createdAt: Millis };

type ResumeInput = {
  account: AccountId;
  dlqId: string;
  /** From where it failed, or from the beginning. */
  from: "failure" | "beginning";
  overrides: RunOverrides;
  logRetention: Millis;
};

/**
 * Goes on with a failed run, as a new one (protocol 6.16). From its failure: what has a result keeps it, and what has none
 * is sent again. The dead letter goes. Throws `Refusal` where there is none, or nothing to go on with.
 */
export const resumeRun: Decision<ResumeInput, Resumed> = {
  needs: ({ account, dlqId }) => ({ accounts: [[account]], withoutBodies: { deadLetters: [[account, dlqId]] } }),
  further: ({ account, dlqId, from, overrides }, draft) => {
    const deadLetter = draft.getWithoutBody("deadLetters", account, dlqId);
    const key = deadLetter?.run?.key;
    const run = key === undefined ? undefined : draft.get("runs", account, key);
    if (key === undefined) return {};
    const flowControl = run && readFlowControl(run, overrides);
    const steps = draft.listSteps(account, key, stepKeyFrom[from]);
    const initial = findInitialStep(steps);
    return {
      ...(deadLetter ? removalNeeds([deadLetter]) : {}),
      runs: [[account, key]],
      runSteps: [{ account, run: key, ...(from === "beginning" ? { stepKey: initialStepKey } : {}) }],
      withoutBodies: { storedMessages: initial ? [[account, initial.messageId] as const] : [] },
      activeRuns: overrides.runId === undefined ? [] : [[account, overrides.runId]],
      limiters: flowControl ? listLimiterKeysFor(account, [{ queue: null, flowControl }]) : [],
      ...(run && destinationNeeds(account, listRunUrls(run, steps))),
    } satisfies Needs;
  },
  decide: (input, draft, moment) => {
    const { account: id, dlqId, overrides, logRetention } = input;
    const account = requireActiveAccount(draft.get("accounts", id));
    mustAfford(account, moment.now);
    mustHaveStorage(account, { continuesRun: false });
    const deadLetter = mustFindFailedRun(draft, id, dlqId);
    const run = draft.get("runs", id, deadLetter.run.key);
    const steps = [...draft.listSteps(id, deadLetter.run.key, stepKeyFrom[input.from])].sort((a, b) => a.position - b.position);
    if (steps.some(({ damaged }) => damaged)) throw damagedHistoryRefusal(dlqId);
    const neededSteps = input.from === "failure" ? (run?.steps ?? 0) : 1;
    if (!run || !findInitialStep(steps) || steps.length < neededSteps) throw noHistoryRefusal(dlqId);
    if (overrides.runId !== undefined && draft.get("activeRuns", id, overrides.runId))
      throw new Refusal("invalid", `workflow-runid: the run ${JSON.stringify(overrides.runId.slice(0, 200))} has not ended`);
    const plan = input.from === "failure" ? planResume(steps, readUnfinished(run)) : planRestart(steps);
    const next = makeResumedRun(moment, run, overrides);
    const refusal = findSendingRefusal(account, { ...next.settings, delay: overrides.delay ?? null, notBefore: null }, moment.now);
    if (refusal) throw new Refusal(refusal.refused, refusal.message);
    const first = readFirstCheck(draft, run, findInitialStep(steps));
    draft.put("runs", { ...run, continuedBy: { key: next.id, runId: next.runId } });
    copyHistory(draft, moment, account, createRun(draft, next), { plan, first, delay: overrides.delay ?? 0 });
    removeDeadLetter(draft, deadLetter, moment.now - logRetention);
    return { dlqId, runId: next.runId, createdAt: next.createdAt };
  },
};

/** At the end of its time a history goes in parts, and its dead letter may be there a little longer. */
const noHistoryRefusal = (dlqId: string): Refusal =>
  new Refusal("invalid", `dlqId: the history of the run of ${dlqId.slice(0, 100)} is not kept any more`);

const damagedHistoryRefusal = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: a step of the run of ${dlqId.slice(0, 100)} is damaged in the store; restart the run from its beginning, or restore a backup`,
  );

/** What is looked at of the history: all of it, or one entry. */
const stepKeyFrom = { failure: undefined, beginning: initialStepKey } as const;

type RunDeadLetter = WithoutBody<DeadLetter> & { run: NonNullable<DeadLetter["run"]> };

/** The dead letter of a run. Throws `Refusal`. */
function mustFindFailedRun(draft: Draft, account: AccountId, dlqId: string): RunDeadLetter {
  const deadLetter = draft.getWithoutBody("deadLetters", account, dlqId);
  if (!deadLetter) throw new Refusal("not-found", `dlqId: there is no failed run ${JSON.stringify(dlqId.slice(0, 100))}`);
  const { run } = deadLetter;
  if (deadLetter.damaged) throw damagedDeadLetterRefusal(dlqId);
  if (!run)
    throw new Refusal(
      "invalid",
      `dlqId: ${dlqId.slice(0, 100)} is a message and no run; POST /v2/dlq/retry/${dlqId.slice(0, 100)} sends it again`,
    );
  return { ...deadLetter, run };
}

const readFlowControl = ({ settings }: Run, { flowControl }: RunOverrides): FlowControl | null =>
  mergeFlowControl(settings.flowControl, flowControl);

const findInitialStep = (steps: readonly Step[]): Step | undefined => steps.find(isInitial);

/** Whether the answer to the initial payload is looked at: as it was before, or as it is for most, where that is not known any more. */
function readFirstCheck(draft: Draft, { account, features }: Run, initial: Step | undefined): RunPart["first"] {
  const stored = initial && draft.getWithoutBody("storedMessages", account, initial.messageId);
  return stored?.run?.first ?? (features.detect ? "detect" : undefined);
}

/** Where messages of a resumed run may go. */
const listRunUrls = ({ url }: Run, steps: readonly Step[]): string[] => [
  url,
  ...steps.flatMap((step) => (step.callType === "toCallback" ? [] : [step.url])),
];

const readUnfinished = ({ failure }: Run): ReadonlyMap<MessageId, Millis | null> =>
  new Map([
    ...(failure ? [[failure.messageId, null] as const] : []),
    ...(failure?.unfinished ?? []).map((one) => [one.messageId, one.dueAt] as const),
  ]);

/** Steps that a new run begins with, in order; `resend`: those that are sent again, and not before when. */
export type ResumePlan = readonly { step: Step; resend: { notBefore: Millis | null } | null }[];

const planRestart = (steps: readonly Step[]): ResumePlan => steps.filter(isInitial).map((step) => ({ step, resend: { notBefore: null } }));

/**
 * What a failed run goes on with. A step with a result keeps it, and is never run again. Of one without, the answer of its
 * third party is sent again, if there is one, or else its plan; a request to a third party that has no answer goes, because
 * another one will be made. Where every step that is known has its result, the last of them is sent again, or the initial
 * payload: that is what the next step follows from, and whatever came of it before, it was no result. A result that others
 * have followed is not sent again, nor is one that waits for its branches: its endpoint would only put it aside.
 */
export function planResume(steps: readonly Step[], unfinished: ReadonlyMap<MessageId, Millis | null>): ResumePlan {
  const stepKeys = new Set(steps.map(({ id }) => readRunPart(id)));
  const kept = steps.filter((step) => !isAbandonedCall(step, stepKeys, unfinished));
  const open = kept.filter((step) => isOpen(step, stepKeys));
  // What cannot be read cannot be told to have been followed by anything.
  const unreadable = kept.filter((step) => parseStepId(step.id).kind === "unreadable" && unfinished.has(step.messageId));
  const last = kept.findLast(leadsToNextStep);
  const resent = new Set(open.length > 0 || !last ? [...open, ...unreadable] : [last, ...unreadable]);
  return kept.map((step) => ({ step, resend: resent.has(step) ? { notBefore: unfinished.get(step.messageId) ?? null } : null }));
}

const hasStep = (slots: ReadonlySet<string>, kind: StepKind, number: number): boolean => slots.has(formatStepKey({ kind, number }));

function isAbandonedCall(step: Step, stepKeys: ReadonlySet<string>, unfinished: ReadonlyMap<MessageId, unknown>): boolean {
  const { kind, number } = parseStepId(step.id);
  if (kind === "unreadable") return step.callType === "toCallback" && unfinished.has(step.messageId);
  return kind === "call" && !hasStep(stepKeys, "result", number) && !hasStep(stepKeys, "answer", number);
}

function isOpen(step: Step, stepKeys: ReadonlySet<string>): boolean {
  const { kind, number } = parseStepId(step.id);
  const isNext = kind === "answer" || (kind === "plan" && !hasStep(stepKeys, "answer", number));
  return isNext && !hasStep(stepKeys, "result", number);
}

function leadsToNextStep(step: Step): boolean {
  const { kind } = parseStepId(step.id);
  return kind === "initial" || kind === "result" || (kind === "unreadable" && step.callType !== "toCallback");
}

type CopyInput = { plan: ResumePlan; first: RunPart["first"]; delay: Millis };

/** Writes the history of the new run, and sends what is to be sent again. Entries that are not keep the ids of their messages. */
function copyHistory(draft: Draft, moment: Moment, account: Account, { run, active }: OngoingRun, { plan, first, delay }: CopyInput): void {
  let size = 0;
  let firstMessage = "";
  plan.forEach(({ step, resend }, position) => {
    size += historySize(step.body.byteLength);
    // One that is called by its place has another place now, if something before it has gone.
    const stepKey =
      parseStepId(step.id).kind === "unreadable" ? formatStepKey({ kind: "unreadable", number: position }) : readRunPart(step.id);
    const kind = step.callType === "fromCallback" ? "result" : "step";
    const message =
      resend &&
      sendStep(draft, moment, account, run, {
        kind,
        stepKey,
        position,
        size: kind === "step" ? size : step.body.byteLength,
        body: step.body,
        url: step.url,
        headers: step.headers,
        delay,
        notBefore: pickLater(resend.notBefore, moment.now + delay),
        ...(stepKey === initialStepKey && first !== undefined ? { first } : {}),
      });
    const messageId = message?.id ?? step.messageId;
    if (position === 0) firstMessage = messageId;
    draft.put("steps", { ...step, id: toStepId(run.id, stepKey), run: run.id, position, messageId });
  });
  draft.put("activeRuns", { ...active, steps: plan.length, size, firstMessage });
}

/** A step that slept goes on sleeping. */
const pickLater = (at: Millis | null, earliest: Millis): Millis | null => (at !== null && at > earliest ? at : null);

function makeResumedRun(moment: Moment, run: Run, overrides: RunOverrides): Run {
  const { settings, brand } = run;
  const labels = overrides.labels ?? run.labels;
  const headers = overrides.labels ? withLabel(settings.headers, brand, labels) : settings.headers;
  return {
    ...run,
    id: moment.newId("run"),
    runId: overrides.runId ?? moment.newId("wfr"),
    createdAt: moment.now,
    state: "RUN_STARTED",
    endedAt: null,
    labels,
    origin: run.id,
    // Who invoked the failed run was told of its failure, and waits for it no more.
    invoker: null,
    steps: 0,
    failure: null,
    body: new Uint8Array(0),
    settings: {
      ...settings,
      headers,
      retries: overrides.retries ?? settings.retries,
      retryDelay: overrides.retryDelay ?? settings.retryDelay,
      flowControl: mustMergeFlowControl(settings.flowControl, overrides.flowControl),
      failureCallback: makeFailureCallback(run, { ...overrides, labels }),
    },
  };
}

/** The endpoint is told the label in a header of its own (protocol 6.5). */
function withLabel(headers: HeaderList, brand: Brand, labels: readonly string[]): HeaderList {
  const others = headers.filter(([name]) => !/^(svc|upstash)-label$/i.test(name));
  return labels.length === 0 ? others : [...others, [`${brandNames[brand].prefix}-Label`, labels.join(",")]];
}

/** How the failure callback of a run is sent; one that had none gets what a client would have given it (protocol 6.4.1). */
function makeFailureCallback({ settings, brand, labels }: Run, overrides: RunOverrides): CallbackSettings | null {
  const { failureUrl, labels: now = labels } = overrides;
  const { prefix } = brandNames[brand];
  const known = settings.failureCallback;
  if (known)
    return { ...known, url: failureUrl ?? known.url, headers: now === labels ? known.headers : withLabel(known.headers, brand, now) };
  if (failureUrl === undefined) return null;
  const headers: HeaderList = [
    [`${prefix}-Workflow-Is-Failure`, "true"],
    [`${prefix}-Workflow-Failure-Callback`, "true"],
  ];
  return { ...defaultCallback(failureUrl), headers: withLabel(headers, brand, now) };
}

type Named = { account: AccountId; dlqId: string };

/** Calls the failure callback of a failed run again. Throws `Refusal` unless it has failed itself. */
export const repeatFailureCallback: Decision<Named, { runId: string; createdAt: Millis }> = {
  needs: ({ account, dlqId }) => ({ accounts: [[account]], deadLetters: [[account, dlqId]] }),
  further: ({ account, dlqId }, draft) => {
    const deadLetter = draft.get("deadLetters", account, dlqId);
    const run = deadLetter?.run && draft.get("runs", account, deadLetter.run.key);
    const callback = run?.settings.failureCallback;
    return {
      runs: deadLetter?.run ? [[account, deadLetter.run.key]] : [],
      runSteps: run ? [reportedStepsNeed(run)] : [],
      withoutBodies: { storedMessages: deadLetter ? ([[account, deadLetter.messageId]] satisfies Key[]) : [] },
      ...(callback && destinationNeeds(account, [callback.url])),
      limiters: callback ? listLimiterKeysFor(account, [{ ...callback, queue: null }]) : [],
    };
  },
  decide: ({ account: id, dlqId }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", id));
    mustFindFailedRun(draft, id, dlqId);
    const deadLetter = draft.get("deadLetters", id, dlqId);
    const run = deadLetter?.run && draft.get("runs", id, deadLetter.run.key);
    const message = deadLetter && draft.getWithoutBody("storedMessages", id, deadLetter.messageId);
    const callback = run?.settings.failureCallback;
    if (!deadLetter || !run || !message || !callback || deadLetter.failureCallback?.state !== "CALLBACK_FAIL") {
      const problem = deadLetter?.failureCallback ? `is in state ${deadLetter.failureCallback.state}` : "does not exist";
      throw new Refusal(
        "invalid",
        `dlqId: the failure callback of ${dlqId.slice(0, 100)} ${problem}; only one that has failed can be called again`,
      );
    }
    const reportedSteps = reportedStepsNeed(run);
    const steps = draft.listSteps(id, run.id, reportedSteps.stepKey);
    if (message.damaged || steps.some(({ damaged }) => damaged)) throw damagedHistoryRefusal(dlqId);
    const keptSteps = steps.length;
    if (keptSteps < (reportedSteps.stepKey === undefined ? run.steps : 1)) throw noHistoryRefusal(dlqId);
    // The entry may have kept only the beginning of the response.
    const outcome = deadLetter.digest === undefined ? deadLetter : { ...deadLetter, cut: true as const };
    sendFailureCallback(draft, moment, { account, run, deadLetter, outcome, message, callback });
    return { runId: run.runId, createdAt: run.createdAt };
  },
};
