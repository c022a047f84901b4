import { readWaitlist } from "../admission/gate.ts";
import type { GateKind } from "../admission/gate.ts";
import type { MessageState } from "../model/messageState.ts";
import { isInAttempt, isUnfinished } from "../model/messageState.ts";
import type { Waiter } from "../model/run.ts";
import { parseStepKey, readRunPart } from "../model/stepId.ts";
import type { Millis } from "../values/basics.ts";
import { isDelayed } from "../workflows/log/view.ts";

/** The kinds of reasons why a run of a list waits. */
export const briefReasonNames = ["event", "webhook", "run", "sleep", "retry", "held", "sending"] as const;

/**
 * Why a run waits, as a list shows it: one reason, without reading its history. `event` is the id of the
 * event or of the webhook, `runId` that of an invoked run.
 */
export type BriefReason = {
  reason: (typeof briefReasonNames)[number];
  stepName?: string;
  event?: string;
  runId?: string;
  since?: Millis;
  until?: Millis;
  gate?: GateKind;
};

/** How many steps of a run have a result, and how many were planned and have none. */
export type StepCounts = { done: number; open: number };

/**
 * How far a run is. `steps`: null if it has too many to count for a list. `reason`: null if none is known.
 */
export type ListedProgress = { steps: StepCounts | null; reason: BriefReason | null };

/** Counts the steps of a run by the ids in its history. The initial payload is not a step. */
export function countSteps(ids: readonly string[]): StepCounts {
  const done = new Set<number>();
  const known = new Set<number>();
  for (const id of ids) {
    const { kind, number } = parseStepKey(readRunPart(id));
    if (kind === "initial" || kind === "unreadable") continue;
    known.add(number);
    if (kind === "result") done.add(number);
  }
  return { done: done.size, open: known.size - done.size };
}

/**
 * Returns why an active run waits: for its oldest waiter, or else for the message that continues it. Null if
 * neither is known.
 */
export function findBriefReason(
  waiters: readonly Waiter[],
  state: MessageState | undefined,
  now: Millis,
): BriefReason | null {
  const [waiter] = waiters.toSorted((a, b) => a.createdAt - b.createdAt);
  if (waiter) return explainWaiter(waiter);
  if (!state || !isUnfinished(state)) return null;
  const until = state.dueAt === null ? {} : { until: state.dueAt };
  if (isInAttempt(state))
    return { reason: "sending", ...(state.startedAt !== undefined && { since: state.startedAt }) };
  if (isDelayed(state, now)) return { reason: "sleep", ...until };
  const gate = readWaitlist(state)?.kind;
  if (gate !== undefined) return { reason: "held", gate };
  return state.attempts > 0 ? { reason: "retry", ...until } : null;
}

function explainWaiter({ kind, event, step, child, createdAt, dueAt }: Waiter): BriefReason {
  const common = {
    stepName: String(step["stepName"]).slice(0, 200),
    since: createdAt,
    ...(dueAt === null ? {} : { until: dueAt }),
  };
  if (kind === "invoke") return { reason: "run", ...common, ...(child && { runId: child.runId }) };
  return { reason: kind, ...common, event };
}
