import { mustAfford } from "../accounts/budget.ts";
import { brandNames } from "../values/brand.ts";
import type { Decision, Draft, Key, Moment, Needs } from "../decision/command.ts";
import { damagedLetterRefused, needsOfRemoval, removeDeadLetter } from "./dlq.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor } from "../admission/needs.ts";
import type { Going } from "../workflows/history.ts";
import { send } from "../workflows/history.ts";
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
  Outline,
  RunPart,
} from "../model/message.ts";
import { flowControlWith, newFlowControl } from "./overrides.ts";
import { acting } from "../accounts/plans.ts";
import { sendingLimitBrokenBy } from "./publish.ts";
import type { Run, Step } from "../model/run.ts";
import { sizeInHistory } from "../model/run.ts";
import type { StepKind } from "../model/stepId.ts";
import { formatStepKey, initialStepKey, isInitial, parseStepId, readRunPart, toStepId } from "../model/stepId.ts";
import { callBackFailure, toldOf } from "../workflows/outcome.ts";
import { begin } from "../workflows/start.ts";
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
  needs: ({ account, dlqId }) => ({ accounts: [[account]], outlines: { deadLetters: [[account, dlqId]] } }),
  further: ({ account, dlqId, from, overrides }, draft) => {
    const letter = draft.outline("deadLetters", account, dlqId);
    const key = letter?.run?.key;
    const run = key === undefined ? undefined : draft.get("runs", account, key);
    if (key === undefined) return {};
    const flowControl = run && flowControlOf(run, overrides);
    const steps = draft.stepsOf(account, key, slotFrom[from]);
    const initial = initialOf(steps);
    return {
      ...(letter ? needsOfRemoval([letter]) : {}),
      ...{ runs: [[account, key]], stepsOf: [{ account, run: key, ...(from === "beginning" ? { slot: initialStepKey } : {}) }] },
      outlines: { envelopes: initial ? [[account, initial.messageId] as const] : [] },
      ...{ activeRuns: overrides.runId === undefined ? [] : [[account, overrides.runId]] },
      flows: flowControl ? listLimiterKeysFor(account, [{ queue: null, flowControl }]) : [],
      ...(run && destinationNeeds(account, urlsOf(run, steps))),
    } satisfies Needs;
  },
  decide: (input, draft, moment) => {
    const { account: id, dlqId, overrides, logRetention } = input;
    const account = acting(draft.get("accounts", id));
    mustAfford(account, moment.now);
    mustHaveStorage(account, { goesOn: false });
    const letter = failedRun(draft, id, dlqId);
    const run = draft.get("runs", id, letter.run.key);
    const steps = [...draft.stepsOf(id, letter.run.key, slotFrom[input.from])].sort((a, b) => a.position - b.position);
    if (steps.some(({ damaged }) => damaged)) throw damagedHistory(dlqId);
    const needed = input.from === "failure" ? (run?.steps ?? 0) : 1;
    if (!run || !initialOf(steps) || steps.length < needed) throw noHistory(dlqId);
    if (overrides.runId !== undefined && draft.get("activeRuns", id, overrides.runId))
      throw new Refusal("invalid", `workflow-runid: the run ${JSON.stringify(overrides.runId.slice(0, 200))} has not ended`);
    const plan = input.from === "failure" ? planOfResume(steps, unfinishedOf(run)) : planOfRestart(steps);
    const next = newRun(moment, run, overrides);
    const broken = sendingLimitBrokenBy(account, { ...next.settings, delay: overrides.delay ?? null, notBefore: null }, moment.now);
    if (broken) throw new Refusal(broken.refused, broken.message);
    const first = firstOf(draft, run, initialOf(steps));
    draft.put("runs", { ...run, continuedBy: { key: next.id, runId: next.runId } });
    copy(draft, moment, account, begin(draft, next), { plan, first, delay: overrides.delay ?? 0 });
    removeDeadLetter(draft, letter, moment.now - logRetention);
    return { dlqId, runId: next.runId, createdAt: next.createdAt };
  },
};

/** At the end of its time a history goes in parts, and its dead letter may be there a little longer. */
const noHistory = (dlqId: string): Refusal =>
  new Refusal("invalid", `dlqId: the history of the run of ${dlqId.slice(0, 100)} is not kept any more`);

const damagedHistory = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: a step of the run of ${dlqId.slice(0, 100)} is damaged in the store; restart the run from its beginning, or restore a backup`,
  );

/** What is looked at of the history: all of it, or one entry. */
const slotFrom = { failure: undefined, beginning: initialStepKey } as const;

type RunLetter = Outline<DeadLetter> & { run: NonNullable<DeadLetter["run"]> };

/** The dead letter of a run. Throws `Refusal`. */
function failedRun(draft: Draft, account: AccountId, dlqId: string): RunLetter {
  const letter = draft.outline("deadLetters", account, dlqId);
  if (!letter) throw new Refusal("not-found", `dlqId: there is no failed run ${JSON.stringify(dlqId.slice(0, 100))}`);
  const { run } = letter;
  if (letter.damaged) throw damagedLetterRefused(dlqId);
  if (!run)
    throw new Refusal(
      "invalid",
      `dlqId: ${dlqId.slice(0, 100)} is a message and no run; POST /v2/dlq/retry/${dlqId.slice(0, 100)} sends it again`,
    );
  return { ...letter, run };
}

const flowControlOf = ({ settings }: Run, { flowControl }: RunOverrides): FlowControl | null =>
  flowControlWith(settings.flowControl, flowControl);

const initialOf = (steps: readonly Step[]): Step | undefined => steps.find(isInitial);

/** Whether the answer to the initial payload is looked at: as it was before, or as it is for most, where that is not known any more. */
function firstOf(draft: Draft, { account, features }: Run, initial: Step | undefined): RunPart["first"] {
  const known = initial && draft.outline("envelopes", account, initial.messageId);
  return known?.run?.first ?? (features.detect ? "detect" : undefined);
}

/** Where messages of a resumed run may go. */
const urlsOf = ({ url }: Run, steps: readonly Step[]): string[] => [
  url,
  ...steps.flatMap((step) => (step.callType === "toCallback" ? [] : [step.url])),
];

const unfinishedOf = ({ failure }: Run): ReadonlyMap<MessageId, Millis | null> =>
  new Map([
    ...(failure ? [[failure.messageId, null] as const] : []),
    ...(failure?.unfinished ?? []).map((one) => [one.messageId, one.dueAt] as const),
  ]);

/** Steps that a new run begins with, in order; `again`: those that are sent again, and not before when. */
export type ResumePlan = readonly { step: Step; again: { notBefore: Millis | null } | null }[];

const planOfRestart = (steps: readonly Step[]): ResumePlan => steps.filter(isInitial).map((step) => ({ step, again: { notBefore: null } }));

/**
 * What a failed run goes on with. A step with a result keeps it, and is never run again. Of one without, the answer of its
 * third party is sent again, if there is one, or else its plan; a request to a third party that has no answer goes, because
 * another one will be made. Where every step that is known has its result, the last of them is sent again, or the initial
 * payload: that is what the next step follows from, and whatever came of it before, it was no result. A result that others
 * have followed is not sent again, nor is one that waits for its branches: its endpoint would only put it aside.
 */
export function planOfResume(steps: readonly Step[], unfinished: ReadonlyMap<MessageId, Millis | null>): ResumePlan {
  const slots = new Set(steps.map(({ id }) => readRunPart(id)));
  const kept = steps.filter((step) => !isUnanswered(step, slots, unfinished));
  const open = kept.filter((step) => isOpen(step, slots));
  // What cannot be read cannot be told to have been followed by anything.
  const cut = kept.filter((step) => parseStepId(step.id).kind === "unreadable" && unfinished.has(step.messageId));
  const last = kept.findLast(leadsOn);
  const again = new Set(open.length > 0 || !last ? [...open, ...cut] : [last, ...cut]);
  return kept.map((step) => ({ step, again: again.has(step) ? { notBefore: unfinished.get(step.messageId) ?? null } : null }));
}

const hasStep = (slots: ReadonlySet<string>, kind: StepKind, number: number): boolean => slots.has(formatStepKey({ kind, number }));

function isUnanswered(step: Step, slots: ReadonlySet<string>, unfinished: ReadonlyMap<MessageId, unknown>): boolean {
  const { kind, number } = parseStepId(step.id);
  if (kind === "unreadable") return step.callType === "toCallback" && unfinished.has(step.messageId);
  return kind === "call" && !hasStep(slots, "result", number) && !hasStep(slots, "answer", number);
}

function isOpen(step: Step, slots: ReadonlySet<string>): boolean {
  const { kind, number } = parseStepId(step.id);
  const isNext = kind === "answer" || (kind === "plan" && !hasStep(slots, "answer", number));
  return isNext && !hasStep(slots, "result", number);
}

function leadsOn(step: Step): boolean {
  const { kind } = parseStepId(step.id);
  return kind === "initial" || kind === "result" || (kind === "unreadable" && step.callType !== "toCallback");
}

type Copied = { plan: ResumePlan; first: RunPart["first"]; delay: Millis };

/** Writes the history of the new run, and sends what is to be sent again. Entries that are not keep the ids of their messages. */
function copy(draft: Draft, moment: Moment, account: Account, { run, active }: Going, { plan, first, delay }: Copied): void {
  let size = 0;
  let firstMessage = "";
  plan.forEach(({ step, again }, position) => {
    size += sizeInHistory(step.body.byteLength);
    // One that is called by its place has another place now, if something before it has gone.
    const slot =
      parseStepId(step.id).kind === "unreadable" ? formatStepKey({ kind: "unreadable", number: position }) : readRunPart(step.id);
    const kind = step.callType === "fromCallback" ? "result" : "step";
    const message =
      again &&
      send(draft, moment, account, run, {
        ...{ kind, slot, position, size: kind === "step" ? size : step.body.byteLength, body: step.body },
        ...{ url: step.url, headers: step.headers, delay, notBefore: laterOf(again.notBefore, moment.now + delay) },
        ...(slot === initialStepKey && first !== undefined ? { first } : {}),
      });
    const messageId = message?.id ?? step.messageId;
    if (position === 0) firstMessage = messageId;
    draft.put("steps", { ...step, id: toStepId(run.id, slot), run: run.id, position, messageId });
  });
  draft.put("activeRuns", { ...active, steps: plan.length, size, firstMessage });
}

/** A step that slept goes on sleeping. */
const laterOf = (at: Millis | null, earliest: Millis): Millis | null => (at !== null && at > earliest ? at : null);

function newRun(moment: Moment, run: Run, overrides: RunOverrides): Run {
  const { settings, brand } = run;
  const labels = overrides.labels ?? run.labels;
  const headers = overrides.labels ? withLabel(settings.headers, brand, labels) : settings.headers;
  return {
    ...{ ...run, id: moment.newId("run"), runId: overrides.runId ?? moment.newId("wfr"), createdAt: moment.now },
    ...{ state: "RUN_STARTED", endedAt: null, labels, origin: run.id },
    // Who invoked the failed run was told of its failure, and waits for it no more.
    ...{ invoker: null, steps: 0, failure: null, body: new Uint8Array(0) },
    settings: {
      ...{ ...settings, headers, retries: overrides.retries ?? settings.retries },
      retryDelay: overrides.retryDelay ?? settings.retryDelay,
      flowControl: newFlowControl(settings.flowControl, overrides.flowControl),
      failureCallback: failureCallbackOf(run, { ...overrides, labels }),
    },
  };
}

/** The endpoint is told the label in a header of its own (protocol 6.5). */
function withLabel(headers: HeaderList, brand: Brand, labels: readonly string[]): HeaderList {
  const others = headers.filter(([name]) => !/^(svc|upstash)-label$/i.test(name));
  return labels.length === 0 ? others : [...others, [`${brandNames[brand].prefix}-Label`, labels.join(",")]];
}

/** How the failure callback of a run is sent; one that had none gets what a client would have given it (protocol 6.4.1). */
function failureCallbackOf({ settings, brand, labels }: Run, overrides: RunOverrides): CallbackSettings | null {
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
  return {
    ...{ url: failureUrl, method: "POST", headers: withLabel(headers, brand, now) },
    ...{ retries: null, retryDelay: null, timeout: null, flowControl: null, callback: null, failureCallback: null },
  };
}

type Named = { account: AccountId; dlqId: string };

/** Calls the failure callback of a failed run again. Throws `Refusal` unless it has failed itself. */
export const repeatFailureCallback: Decision<Named, { runId: string; createdAt: Millis }> = {
  needs: ({ account, dlqId }) => ({ accounts: [[account]], deadLetters: [[account, dlqId]] }),
  further: ({ account, dlqId }, draft) => {
    const letter = draft.get("deadLetters", account, dlqId);
    const run = letter?.run && draft.get("runs", account, letter.run.key);
    const to = run?.settings.failureCallback;
    return {
      runs: letter?.run ? [[account, letter.run.key]] : [],
      stepsOf: run ? [toldOf(run)] : [],
      outlines: { envelopes: letter ? ([[account, letter.messageId]] satisfies Key[]) : [] },
      ...(to && destinationNeeds(account, [to.url])),
      flows: to ? listLimiterKeysFor(account, [{ ...to, queue: null }]) : [],
    };
  },
  decide: ({ account: id, dlqId }, draft, moment) => {
    const account = acting(draft.get("accounts", id));
    failedRun(draft, id, dlqId);
    const letter = draft.get("deadLetters", id, dlqId);
    const run = letter?.run && draft.get("runs", id, letter.run.key);
    const envelope = letter && draft.outline("envelopes", id, letter.messageId);
    const to = run?.settings.failureCallback;
    if (!letter || !run || !envelope || !to || letter.failureCallback?.state !== "CALLBACK_FAIL") {
      const problem = letter?.failureCallback ? `is in state ${letter.failureCallback.state}` : "does not exist";
      throw new Refusal(
        "invalid",
        `dlqId: the failure callback of ${dlqId.slice(0, 100)} ${problem}; only one that has failed can be called again`,
      );
    }
    const told = toldOf(run);
    const steps = draft.stepsOf(id, run.id, told.slot);
    if (envelope.damaged || steps.some(({ damaged }) => damaged)) throw damagedHistory(dlqId);
    const kept = steps.length;
    if (kept < (told.slot === undefined ? run.steps : 1)) throw noHistory(dlqId);
    // The entry may have kept only the beginning of the response.
    const outcome = letter.digest === undefined ? letter : { ...letter, cut: true as const };
    callBackFailure(draft, moment, { account, run, letter, outcome, envelope, to });
    return { runId: run.runId, createdAt: run.createdAt };
  },
};
