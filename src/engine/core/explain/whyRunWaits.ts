import type { MessageId, Millis } from "../values/basics.ts";
import type { Run, Step, Waiter } from "../model/run.ts";
import { isSleep } from "../model/run.ts";
import type { StepKind } from "../model/stepId.ts";
import { parseStepId } from "../model/stepId.ts";
import type { RunLineage } from "../workflows/log/view.ts";
import { isDelayed } from "../workflows/log/view.ts";
import type { WaitReason, WaitState } from "./whyWaiting.ts";
import { listWaitReasons } from "./whyWaiting.ts";

/**
 * The known state of a run. It is read without a lock, so one part may be older than another. Steps are in
 * order, and without bodies.
 */
export type RunWaitState = {
  run: Run;
  steps: readonly Step[];
  waiters: readonly Waiter[];
  /** The unfinished messages of the run. */
  messages: readonly WaitState[];
  /** The messages that wait for their due time, or waited for it when the run ended. */
  delayed: ReadonlySet<MessageId>;
  lineage: RunLineage;
};

/** The kinds of reasons why a run waits. */
export const runWaitReasonNames = [
  "event",
  "webhook",
  "run",
  "call",
  "sleep",
  "endpoint",
  "nothing",
] as const;

/** The step that a reason is about, if it is known. */
type StepFacts = { stepId?: number; stepName?: string };
/** A message of a run that has not been delivered to `url`. `waitingOn` says why. */
type Undelivered = { since: Millis; messageId: MessageId; url: string; waitingOn: readonly WaitReason[] };

/** One reason why a run waits. `api/views/runWaitReasons.ts` words it. */
export type RunWaitReason = StepFacts &
  (
    | ({ reason: "call" } & Undelivered)
    | ({ reason: "sleep"; until: Millis } & Undelivered)
    | ({ reason: "endpoint"; call: EndpointCall } & Undelivered)
    | {
        reason: "run";
        since: Millis;
        until?: Millis;
        child: { runId: string; url: string; createdAt: Millis };
      }
    | { reason: "event" | "webhook"; since: Millis; until?: Millis; event: string }
    | { reason: "nothing"; url: string; since?: Millis }
  );

/**
 * The purpose of a call to the endpoint. `isFollowed`: the endpoint has already posted the next step, but has
 * not responded yet.
 */
export type EndpointCall = {
  purpose: "begin" | "run-step" | "send-response" | "continue";
  step: StepFacts | null;
  isFollowed: boolean;
};

/**
 * Returns the steps that have a result. The result of a sleep is posted before the sleep ends, so it counts
 * only once the sleep has ended.
 */
export const listDoneSteps = ({ steps, delayed }: Pick<RunWaitState, "steps" | "delayed">): Step[] =>
  steps.filter(
    (step) => parseStepId(step.id).kind === "result" && !(isSleep(step) && delayed.has(step.messageId)),
  );

/**
 * Returns why a run has not ended: one reason for each message and each waiter, messages first. If the run
 * has neither, its endpoint has responded without posting a next step. The run then continues only when the
 * endpoint posts again. Returns nothing for a run that has ended.
 */
export function listRunWaitReasons(
  { run, steps, waiters, messages }: RunWaitState,
  now: Millis,
): RunWaitReason[] {
  if (run.state !== "RUN_STARTED") return [];
  const byMessage = new Map(steps.map((step) => [step.messageId, step]));
  const reasons = [
    ...messages.map((waitState) =>
      explainMessage(waitState, {
        step: byMessage.get(waitState.state.id),
        last: steps.at(-1),
        run,
        now,
      }),
    ),
    ...[...waiters].sort((a, b) => a.createdAt - b.createdAt).map(explainWaiter),
  ];
  return reasons.length > 0 ? reasons : [explainIdle(steps.at(-1), run)];
}

function explainIdle(last: Step | undefined, { url }: Run): RunWaitReason {
  const since = last?.createdAt;
  return { reason: "nothing", url, ...(since === undefined ? {} : { since }) };
}

type CallContext = { step: Step | undefined; last: Step | undefined; run: Run; now: Millis };

function explainMessage(waitState: WaitState, { step, last, run, now }: CallContext): RunWaitReason {
  const { state } = waitState;
  const facts = {
    ...readStepName(step),
    since: waitState.createdAt,
    messageId: state.id,
    url: step?.url ?? run.url,
    waitingOn: listWaitReasons(waitState, now),
  };
  if (step?.callType === "toCallback") return { reason: "call", ...facts };
  if (step && isSleep(step) && isDelayed(state, now))
    return { reason: "sleep", ...facts, until: state.dueAt ?? now };
  const isFollowed = step !== undefined && last !== undefined && last.position > step.position;
  return { reason: "endpoint", ...facts, call: readCall(step, isFollowed) };
}

const purposes: Partial<Record<StepKind, EndpointCall["purpose"]>> = {
  initial: "begin",
  plan: "run-step",
  answer: "send-response",
};

/** Returns the purpose of a call to the endpoint. */
export function readCall(step: Step | undefined, isFollowed = false): EndpointCall {
  const kind = step ? parseStepId(step.id).kind : "unreadable";
  const canBeOpen = kind === "initial" || kind === "result";
  return {
    purpose: purposes[kind] ?? "continue",
    step: step?.head ? readStepName(step) : null,
    isFollowed: isFollowed && canBeOpen,
  };
}

function explainWaiter({ kind, event, step, child, createdAt, dueAt }: Waiter): RunWaitReason {
  const { stepId, stepName } = step;
  const head = { stepId: Number(stepId), stepName: String(stepName).slice(0, 200) };
  const facts = { ...head, since: createdAt, ...(dueAt === null ? {} : { until: dueAt }) };
  if (kind === "invoke" && child) {
    const { runId, url } = child;
    return { reason: "run", ...facts, child: { runId, url, createdAt: child.createdAt } };
  }
  return { reason: kind === "webhook" ? "webhook" : "event", ...facts, event };
}

/** Returns the name of a step. A plan has the name of the step that it plans. */
function readStepName(step: Step | undefined): StepFacts {
  const head = step?.head;
  if (!head) return {};
  return { stepId: head.stepId || (head.targetStep ?? 0), stepName: head.stepName };
}
