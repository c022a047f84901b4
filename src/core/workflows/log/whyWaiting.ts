import type { MessageId, Millis } from "../../model/message.ts";
import { parsedUrl } from "../../values/url.ts";
import type { Run, Step, Waiter } from "../../model/run.ts";
import { isSleep } from "../../model/run.ts";
import { parseStepId, readRunPart } from "../../model/stepId.ts";
import { failedStepOf, reasonIn } from "../../model/failureText.ts";
import type { Kin } from "./view.ts";
import { isPutOff } from "./view.ts";
import type { Reason, Standing } from "../../sending/whyWaiting.ts";
import { reasonsOf } from "../../sending/whyWaiting.ts";

/** What is known of a run, read without a lock, so that one part may be older than another. Steps are without bodies, in order. */
export type RunStanding = {
  run: Run;
  steps: readonly Step[];
  waiters: readonly Waiter[];
  /** Of its messages that are not finished. */
  messages: readonly Standing[];
  /** Messages that wait for their time, or did when the run ended. */
  asleep: ReadonlySet<MessageId>;
  kin: Kin;
};

export const runReasonNames = ["event", "webhook", "run", "call", "sleep", "endpoint", "nothing"] as const;

/** One thing that a run waits for, in words, and what the words are made of. */
export type RunReason = {
  reason: (typeof runReasonNames)[number];
  text: string;
  stepId?: number;
  stepName?: string;
  since?: Millis;
  until?: Millis;
  event?: string;
  /** The run that it waits for. */
  child?: { runId: string; url: string; createdAt: Millis };
  /** Where its message goes, and why that has not arrived. */
  url?: string;
  messageId?: MessageId;
  waitingOn?: readonly Reason[];
};

/** The steps that have a result. A sleep has its own when its time has come, although it is posted before. */
export const stepsDone = ({ steps, asleep }: Pick<RunStanding, "steps" | "asleep">): Step[] =>
  steps.filter((step) => parseStepId(step.id).kind === "result" && !(isSleep(step) && asleep.has(step.messageId)));

/**
 * Why a run has not ended: one reason for each of its steps that goes on, messages first. Where there is none at all, its
 * endpoint has answered and asked for nothing more, and nothing happens until it does. Of a run that has ended: nothing.
 */
export function runReasonsOf({ run, steps, waiters, messages }: RunStanding, now: Millis): RunReason[] {
  if (run.state !== "RUN_STARTED") return [];
  const byMessage = new Map(steps.map((step) => [step.messageId, step]));
  const reasons = [
    ...messages.map((standing) => ofMessage(standing, { step: byMessage.get(standing.state.id), last: steps.at(-1), run, now })),
    ...[...waiters].sort((a, b) => a.createdAt - b.createdAt).map(ofWaiter),
  ];
  return reasons.length > 0 ? reasons : [nothing(steps.at(-1), run)];
}

function nothing(last: Step | undefined, { url }: Run): RunReason {
  const since = last?.createdAt;
  const when = since === undefined ? "" : ` since ${iso(since)}`;
  return {
    reason: "nothing",
    text: `nothing is under way: ${url} has taken all that was sent, and has neither posted a step${when} nor finished the run`,
    ...{ url, ...(since === undefined ? {} : { since }) },
  };
}

type Sent = { step: Step | undefined; last: Step | undefined; run: Run; now: Millis };

function ofMessage(standing: Standing, { step, last, run, now }: Sent): RunReason {
  const { state } = standing;
  const waitingOn = reasonsOf(standing, now);
  const why = waitingOn.map(({ text }) => text).join("; ");
  const facts = { ...namesOf(step?.head), since: standing.createdAt, messageId: state.id, url: step?.url ?? run.url, waitingOn };
  if (step?.callType === "toCallback") return { reason: "call", text: `${named(step.head)} calls ${hostIn(step.url)}: ${why}`, ...facts };
  if (step && isSleep(step) && isPutOff(state, now)) {
    const until = state.dueAt ?? now;
    return { reason: "sleep", text: `${named(step.head)} sleeps until ${iso(until)}`, ...facts, until };
  }
  const isFollowed = step !== undefined && last !== undefined && last.position > step.position;
  return { reason: "endpoint", text: `${(isFollowed ? openCallText(step) : null) ?? callText(step)}: ${why}`, ...facts };
}

/** The same of a call that the endpoint has gone on in already. Null: nothing else is to be said of it. */
function openCallText({ id, head }: Step): string | null {
  const { kind } = parseStepId(id);
  if (kind === "initial") return "the first call of the endpoint has not ended yet";
  return kind === "result" ? `the call of the endpoint to go on after ${named(head)} has not ended yet` : null;
}

/** What the endpoint is called for. */
function callText(step: Step | undefined): string {
  const kind = step ? parseStepId(step.id).kind : "unreadable";
  const name = named(step?.head ?? null);
  if (kind === "initial") return "the endpoint is called for the first time";
  if (kind === "plan") return `the endpoint is called to run ${name}`;
  if (kind === "answer") return `the endpoint is told the answer to the call of ${name}`;
  return `the endpoint is called to go on after ${name}`;
}

function ofWaiter({ kind, event, step, child, createdAt, dueAt }: Waiter): RunReason {
  const { stepId, stepName } = step;
  const head = { stepId: Number(stepId), stepName: String(stepName).slice(0, 200) };
  const end = dueAt === null ? "" : `, until ${iso(dueAt)}`;
  const facts = { ...head, since: createdAt, ...(dueAt === null ? {} : { until: dueAt }) };
  if (kind === "invoke" && child) {
    const { runId, url } = child;
    const text = `${named(head)} waits for the end of the run ${JSON.stringify(runId)} of ${hostIn(url)} since ${iso(createdAt)}`;
    return { reason: "run", text, ...facts, child: { runId, url, createdAt: child.createdAt } };
  }
  const what = kind === "webhook" ? "a call to the webhook" : "the event";
  const text = `${named(head)} waits for ${what} ${JSON.stringify(event)} since ${iso(createdAt)}${end}`;
  return { reason: kind === "webhook" ? "webhook" : "event", text, ...facts, event };
}

/** A plan names the step that it plans. */
function namesOf(head: Step["head"] | undefined): { stepId?: number; stepName?: string } {
  if (!head) return {};
  return { stepId: head.stepId || (head.targetStep ?? 0), stepName: head.stepName };
}

function named(head: Pick<NonNullable<Step["head"]>, "stepId" | "stepName" | "targetStep"> | null): string {
  return head ? `step ${head.stepId || (head.targetStep ?? 0)} ${JSON.stringify(head.stepName)}` : "a step";
}

const hostIn = (url: string): string => parsedUrl(url)?.host ?? "?";
const iso = (time: Millis): string => new Date(time).toISOString();

/** The whole of it in one sentence. */
export function runText({ run, steps, asleep, kin }: Omit<RunStanding, "waiters" | "messages">, reasons: readonly RunReason[]): string {
  const done = stepsDone({ steps, asleep }).length;
  const origin = kin.origin ? `resumes ${kin.origin.runId}, ` : "";
  const far = `${origin}${done === 0 ? "no step" : done === 1 ? "1 step" : `${done} steps`} done`;
  const [first, ...others] = reasons;
  if (first) return `goes on since ${iso(run.createdAt)}, ${far}; ${first.text}${others.length > 0 ? `; and ${others.length} more` : ""}`;
  const when = run.endedAt === null ? "" : ` at ${iso(run.endedAt)}`;
  if (run.state === "RUN_FAILED") return `failed${when}, ${far}${failureText(run, steps)}`;
  return `${run.state === "RUN_CANCELED" ? "was cancelled" : "ended"}${when}, ${far}`;
}

function failureText({ failure, continuedBy, redaction }: Run, steps: readonly Step[]): string {
  if (!failure) return ", for a reason that is not known";
  const step = steps.find(({ messageId }) => messageId === failure.messageId);
  const { stepName } = failedStepOf(step && readRunPart(step.id), step?.head, failure.headers);
  const called = callText(step).replace("is called", "was called").replace("is told", "was told");
  const where = stepName === null ? `when ${called}` : `at step ${JSON.stringify(stepName)}`;
  const callback = failure.callback ? `; its failure callback is in state ${failure.callback.state}` : "";
  const next = continuedBy ? `; resumed as ${continuedBy.runId}` : "";
  return `, ${where}: ${reasonIn(failure, redaction)}${callback}${next}`;
}
