import type { MessageId, Millis } from "../values/basics.ts";
import { parseUrl } from "../values/url.ts";
import type { Run, Step, Waiter } from "../model/run.ts";
import { isSleep } from "../model/run.ts";
import { parseStepId, readRunPart } from "../model/stepId.ts";
import { findFailedStep, formatRunFailure } from "../model/failureText.ts";
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

/** One reason why a run waits: a text, and the values that the text is made of. */
export type RunWaitReason = {
  reason: (typeof runWaitReasonNames)[number];
  text: string;
  stepId?: number;
  stepName?: string;
  since?: Millis;
  until?: Millis;
  event?: string;
  /** The run that the step waits for. */
  child?: { runId: string; url: string; createdAt: Millis };
  /** The destination of the message. `waitingOn` says why the message has not arrived. */
  url?: string;
  messageId?: MessageId;
  waitingOn?: readonly WaitReason[];
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
      describeMessageWait(waitState, {
        step: byMessage.get(waitState.state.id),
        last: steps.at(-1),
        run,
        now,
      }),
    ),
    ...[...waiters].sort((a, b) => a.createdAt - b.createdAt).map(describeWaiter),
  ];
  return reasons.length > 0 ? reasons : [describeIdle(steps.at(-1), run)];
}

function describeIdle(last: Step | undefined, { url }: Run): RunWaitReason {
  const since = last?.createdAt;
  const step = since === undefined ? "a step" : `a step since ${iso(since)}`;
  return {
    reason: "nothing",
    text:
      `nothing is in flight: ${url} accepted every message, ` +
      `but neither posted ${step} nor finished the run`,
    url,
    ...(since === undefined ? {} : { since }),
  };
}

type CallContext = { step: Step | undefined; last: Step | undefined; run: Run; now: Millis };

function describeMessageWait(waitState: WaitState, { step, last, run, now }: CallContext): RunWaitReason {
  const { state } = waitState;
  const waitingOn = listWaitReasons(waitState, now);
  const reasons = waitingOn.map(({ text }) => text).join("; ");
  const facts = {
    ...pickStepName(step?.head),
    since: waitState.createdAt,
    messageId: state.id,
    url: step?.url ?? run.url,
    waitingOn,
  };
  if (step?.callType === "toCallback")
    return {
      reason: "call",
      text: `${formatStepName(step.head)} calls ${readHost(step.url)}: ${reasons}`,
      ...facts,
    };
  if (step && isSleep(step) && isDelayed(state, now)) {
    const until = state.dueAt ?? now;
    return {
      reason: "sleep",
      text: `${formatStepName(step.head)} sleeps until ${iso(until)}`,
      ...facts,
      until,
    };
  }
  const isFollowed = step !== undefined && last !== undefined && last.position > step.position;
  return {
    reason: "endpoint",
    text: `${(isFollowed ? openCallText(step) : null) ?? callText(step)}: ${reasons}`,
    ...facts,
  };
}

/**
 * Returns the text for a call that is still open: the endpoint has already posted the next step, but has not
 * responded yet. Returns null if the step does not call the endpoint in this way.
 */
function openCallText({ id, head }: Step): string | null {
  const { kind } = parseStepId(id);
  if (kind === "initial") return "the first call of the endpoint has not ended yet";
  return kind === "result"
    ? `the call of the endpoint to continue after ${formatStepName(head)} has not ended yet`
    : null;
}

/** Returns the purpose of a call to the endpoint. */
function callText(step: Step | undefined, verb: "is" | "was" = "is"): string {
  const kind = step ? parseStepId(step.id).kind : "unreadable";
  const name = formatStepName(step?.head ?? null);
  if (kind === "initial") return `the endpoint ${verb} called for the first time`;
  if (kind === "plan") return `the endpoint ${verb} called to run ${name}`;
  if (kind === "answer") return `the endpoint ${verb} sent the response to the call of ${name}`;
  return `the endpoint ${verb} called to continue after ${name}`;
}

function describeWaiter({ kind, event, step, child, createdAt, dueAt }: Waiter): RunWaitReason {
  const { stepId, stepName } = step;
  const head = { stepId: Number(stepId), stepName: String(stepName).slice(0, 200) };
  const end = dueAt === null ? "" : `, until ${iso(dueAt)}`;
  const facts = { ...head, since: createdAt, ...(dueAt === null ? {} : { until: dueAt }) };
  if (kind === "invoke" && child) {
    const { runId, url } = child;
    const target = `the run ${JSON.stringify(runId)} of ${readHost(url)}`;
    const text = `${formatStepName(head)} waits for the end of ${target} since ${iso(createdAt)}`;
    return { reason: "run", text, ...facts, child: { runId, url, createdAt: child.createdAt } };
  }
  const subject = `${kind === "webhook" ? "a call to the webhook" : "the event"} ${JSON.stringify(event)}`;
  const text = `${formatStepName(head)} waits for ${subject} since ${iso(createdAt)}${end}`;
  return { reason: kind === "webhook" ? "webhook" : "event", text, ...facts, event };
}

/** Returns the name of a step. A plan has the name of the step that it plans. */
function pickStepName(head: Step["head"] | undefined): { stepId?: number; stepName?: string } {
  if (!head) return {};
  return { stepId: head.stepId || (head.targetStep ?? 0), stepName: head.stepName };
}

function formatStepName(
  head: Pick<NonNullable<Step["head"]>, "stepId" | "stepName" | "targetStep"> | null,
): string {
  return head ? `step ${head.stepId || (head.targetStep ?? 0)} ${JSON.stringify(head.stepName)}` : "a step";
}

const readHost = (url: string): string => parseUrl(url)?.host ?? "?";
const iso = (time: Millis): string => new Date(time).toISOString();

/** Returns the state of a run and its reasons to wait in one sentence. */
export function formatRunStatus(
  { run, steps, delayed, lineage }: Omit<RunWaitState, "waiters" | "messages">,
  reasons: readonly RunWaitReason[],
): string {
  const done = listDoneSteps({ steps, delayed }).length;
  const origin = lineage.origin ? `resumes ${lineage.origin.runId}, ` : "";
  const progress = `${origin}${done === 0 ? "no step" : done === 1 ? "1 step" : `${done} steps`} done`;
  const [first, ...others] = reasons;
  if (first) {
    const more = others.length > 0 ? `; and ${others.length} more` : "";
    return `running since ${iso(run.createdAt)}, ${progress}; ${first.text}${more}`;
  }
  const when = run.endedAt === null ? "" : ` at ${iso(run.endedAt)}`;
  if (run.state === "RUN_FAILED") return `failed${when}, ${progress}${failureText(run, steps)}`;
  return `${run.state === "RUN_CANCELED" ? "was cancelled" : "ended"}${when}, ${progress}`;
}

function failureText({ failure, continuedBy, redaction }: Run, steps: readonly Step[]): string {
  if (!failure) return ", for an unknown reason";
  const step = steps.find(({ messageId }) => messageId === failure.messageId);
  const { stepName } = findFailedStep(step && readRunPart(step.id), step?.head, failure.headers);
  const called = callText(step, "was");
  const where = stepName === null ? `when ${called}` : `at step ${JSON.stringify(stepName)}`;
  const callback = failure.callback ? `; its failure callback is in state ${failure.callback.state}` : "";
  const next = continuedBy ? `; resumed as ${continuedBy.runId}` : "";
  return `, ${where}: ${formatRunFailure(failure, redaction)}${callback}${next}`;
}
