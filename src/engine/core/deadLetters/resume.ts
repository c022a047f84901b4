import { assertWithinBudget } from "../limits/budget.ts";
import { brandNames } from "../values/brand.ts";
import type { Decision, Draft, Moment } from "../decision/command.ts";
import { removeDeadLetter } from "./dlq.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import type { OngoingRun } from "../workflows/history.ts";
import { sendStep } from "../workflows/history.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Brand, HeaderList, MessageId, Millis } from "../values/basics.ts";
import type { CallbackSettings, FlowControl } from "../model/sendSettings.ts";
import type { WithoutBody } from "../model/message.ts";
import type { RunPart } from "../model/runPost.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import { defaultCallback, replaceFlowControl } from "./overrides.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { findSendingRefusal } from "../limits/sendingLimits.ts";
import type { LastCall, Run, Step } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import type { ResumePlan } from "./resumePlan.ts";
import { planRestart, planResume } from "./resumePlan.ts";
import {
  formatStepKey,
  initialStepKey,
  isInitial,
  parseStepId,
  readRunPart,
  toStepId,
} from "../model/stepId.ts";
import { makeLastCall } from "../workflows/posted.ts";
import { createRun } from "../workflows/start.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";

/** The settings that a resumed run may replace. Absent settings stay as they were. */
export type RunOverrides = {
  runId?: string;
  retries?: number | null;
  retryDelay?: string | null;
  /**
   * If only a key is given, the run keeps its limits. If only limits are given, it keeps its key. If the run
   * had neither, both must be given.
   */
  flowControl?: Partial<FlowControl>;
  labels?: readonly string[];
  /** The URL of the failure callback. Its other settings stay as they were. */
  failureUrl?: string;
  /** The delay of the first message. */
  delay?: Millis;
};

/** The run that continues a failed one. */
export type Resumed = { dlqId: string; runId: string; createdAt: Millis };

type ResumeInput = {
  account: AccountId;
  dlqId: string;
  /** Where the new run starts: from the failure, or from the beginning. */
  from: "failure" | "beginning";
  overrides: RunOverrides;
  logRetention: Millis;
};

/**
 * Resumes a failed run as a new run and removes its dead letter. If the new run starts from
 * the failure, steps with a result keep it, and steps without a result are sent again. Throws `Refusal` if
 * the run has no dead letter, or its history is incomplete.
 */
export const resumeRun: Decision<ResumeInput, Resumed> = {
  decide: (input, draft, moment) => {
    const { account: id, dlqId, overrides, logRetention } = input;
    const account = requireActiveAccount(draft.get("accounts", id));
    assertWithinBudget(account, moment.now);
    assertStorageAvailable(account, { continuesRun: false, isDiskLow: moment.isDiskLow });
    const deadLetter = requireFailedRun(draft, id, dlqId);
    const run = draft.get("runs", id, deadLetter.run.key);
    const steps = [...draft.listSteps(id, deadLetter.run.key, stepKeyFrom[input.from])].sort(
      (a, b) => a.position - b.position,
    );
    if (steps.some(({ damaged }) => damaged)) throw damagedHistoryRefusal(dlqId);
    const neededSteps = input.from === "failure" ? (run?.steps ?? 0) : 1;
    if (!run || !findInitialStep(steps) || steps.length < neededSteps) throw noHistoryRefusal(dlqId);
    if (overrides.runId !== undefined && draft.get("activeRuns", id, overrides.runId))
      throw new Refusal(
        "invalid",
        `workflow-runid: the run ${JSON.stringify(overrides.runId.slice(0, 200))} has not ended`,
      );
    assertShowsNothingRedacted(run, overrides);
    const plan = input.from === "failure" ? planResume(steps, readUnfinished(run)) : planRestart(steps);
    const next = makeResumedRun(moment, run, overrides);
    throwIfRefused(
      findSendingRefusal(
        account,
        { ...next.settings, url: next.url, delay: overrides.delay ?? null, notBefore: null },
        moment.now,
      ),
    );
    const first = readFirstCheck(draft, run, findInitialStep(steps));
    draft.put("runs", { ...run, continuedBy: { key: next.id, runId: next.runId } });
    copyHistory(draft, moment, {
      account,
      next: createRun(draft, next),
      plan,
      first,
      delay: overrides.delay ?? 0,
    });
    removeDeadLetter(draft, deadLetter, moment.now - logRetention);
    return { dlqId, runId: next.runId, createdAt: next.createdAt };
  },
};

/**
 * Throws `Refusal` if a run with redacted parts would report to a failure callback that its trigger did not
 * choose. The caller must not learn the parts.
 */
function assertShowsNothingRedacted({ redaction, url, settings }: Run, { failureUrl }: RunOverrides): void {
  if (!redaction || failureUrl === undefined) return;
  if (failureUrl !== url && failureUrl !== settings.failureCallback?.url)
    throw new Refusal("forbidden", "failure-callback: would report redacted parts to another URL");
}

/**
 * Returns the refusal of a command that needs a history that has expired. It is removed in parts, so the dead
 * letter of the run may still exist when parts are already gone.
 */
export const noHistoryRefusal = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: the history of the run of ${dlqId.slice(0, 100)} has expired; start a new run`,
  );

/** Returns the refusal of a command that needs a step that is damaged. */
export const damagedHistoryRefusal = (dlqId: string): Refusal =>
  new Refusal(
    "invalid",
    `dlqId: a step of the run of ${dlqId.slice(0, 100)} is damaged in the store; ` +
      "restart the run from its beginning, or restore a backup",
  );

/** The part of the history that is read: all of it (undefined), or one entry. */
const stepKeyFrom = { failure: undefined, beginning: initialStepKey } as const;

type RunDeadLetter = WithoutBody<DeadLetter> & { run: NonNullable<DeadLetter["run"]> };

/**
 * Returns the dead letter of a failed run. Throws `Refusal` if it does not exist, is damaged, or belongs to a
 * message.
 */
export function requireFailedRun(draft: Draft, account: AccountId, dlqId: string): RunDeadLetter {
  const deadLetter = draft.getWithoutBody("deadLetters", account, dlqId);
  if (!deadLetter)
    throw new Refusal("not-found", `dlqId: no failed run ${JSON.stringify(dlqId.slice(0, 100))}`);
  const { run } = deadLetter;
  if (!run)
    throw new Refusal("invalid", `dlqId: ${dlqId.slice(0, 100)} is a message, not a run`, {
      remedy: { remedy: "retry-dead-letter", dlqId: dlqId.slice(0, 100) },
    });
  return { ...deadLetter, run };
}

const findInitialStep = (steps: readonly Step[]): Step | undefined => steps.find(isInitial);

/**
 * Returns how the response to the initial payload is checked. The check is that of the failed run or, if its
 * first message no longer exists, that of most runs.
 */
function readFirstCheck(
  draft: Draft,
  { account, features }: Run,
  initial: Step | undefined,
): RunPart["first"] {
  const stored = initial && draft.inspectWithoutBody("storedMessages", account, initial.messageId);
  return stored?.run?.first ?? (features.detect ? "detect" : undefined);
}

const readUnfinished = ({ failure }: Run): ReadonlyMap<MessageId, Millis | null> =>
  new Map([
    ...(failure ? [[failure.messageId, null] as const] : []),
    ...(failure?.unfinished ?? []).map((one) => [one.messageId, one.dueAt] as const),
  ]);

type CopyInput = {
  account: Account;
  next: OngoingRun;
  plan: ResumePlan;
  first: RunPart["first"];
  delay: Millis;
};

/**
 * Writes the history of the new run and sends the steps that the plan resends. The other entries keep the ids
 * of their messages.
 */
function copyHistory(
  draft: Draft,
  moment: Moment,
  { account, next: { run, active }, plan, first, delay }: CopyInput,
): void {
  let size = 0;
  let firstMessage = "";
  let lastCall: LastCall | null = null;
  plan.forEach(({ step, resend }, position) => {
    size += historySize(step.body.byteLength);
    // The key of an unreadable step is its position, which changes if a step before it was left out.
    const stepKey =
      parseStepId(step.id).kind === "unreadable"
        ? formatStepKey({ kind: "unreadable", number: position })
        : readRunPart(step.id);
    const kind = step.callType === "fromCallback" ? "result" : "step";
    const message =
      resend &&
      sendStep(draft, moment, {
        account,
        run,
        step: {
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
        },
      });
    const messageId = message?.id ?? step.messageId;
    if (position === 0) firstMessage = messageId;
    lastCall = message
      ? makeLastCall(run, { messageId, stepKey, head: step.head, first: message.run?.first })
      : null;
    draft.put("steps", { ...step, id: toStepId(run.id, stepKey), run: run.id, position, messageId });
  });
  draft.put("activeRuns", { ...active, steps: plan.length, size, firstMessage, lastCall });
}

/**
 * Returns the time before which a step must not be sent: a step that slept continues to sleep. Null: the step
 * may be sent at `earliest`.
 */
const pickLater = (at: Millis | null, earliest: Millis): Millis | null =>
  at !== null && at > earliest ? at : null;

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
    sharesId: true,
    // The run that invoked the failed one has received the failure and no longer waits.
    invoker: null,
    steps: 0,
    failure: null,
    body: new Uint8Array(0),
    settings: {
      ...settings,
      headers,
      retries: overrides.retries ?? settings.retries,
      retryDelay: overrides.retryDelay ?? settings.retryDelay,
      flowControl: replaceFlowControl(settings.flowControl, overrides.flowControl),
      failureCallback: makeFailureCallback(run, { ...overrides, labels }),
    },
  };
}

/** Returns the headers with the labels of a run, which the endpoint receives in a header. */
function withLabel(headers: HeaderList, brand: Brand, labels: readonly string[]): HeaderList {
  const others = headers.filter(([name]) => !/^(svc|upstash)-label$/i.test(name));
  return labels.length === 0 ? others : [...others, [`${brandNames[brand].prefix}-Label`, labels.join(",")]];
}

/**
 * Returns the failure callback of a resumed run. If the run had none, the new callback gets the headers that
 * a client would have set.
 */
function makeFailureCallback(
  { settings, brand, labels }: Run,
  overrides: RunOverrides,
): CallbackSettings | null {
  const { failureUrl, labels: now = labels } = overrides;
  const { prefix } = brandNames[brand];
  const known = settings.failureCallback;
  if (known)
    return {
      ...known,
      url: failureUrl ?? known.url,
      headers: now === labels ? known.headers : withLabel(known.headers, brand, now),
    };
  if (failureUrl === undefined) return null;
  const headers: HeaderList = [
    [`${prefix}-Workflow-Is-Failure`, "true"],
    [`${prefix}-Workflow-Failure-Callback`, "true"],
  ];
  return { ...defaultCallback(failureUrl), headers: withLabel(headers, brand, now) };
}
