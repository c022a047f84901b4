import type { MessageId, Millis } from "../values/basics.ts";
import type { Step } from "../model/run.ts";
import type { StepKind } from "../model/stepId.ts";
import { formatStepKey, isInitial, parseStepId, readRunPart } from "../model/stepId.ts";

/**
 * The steps that a new run begins with, in order. `resend` is null for a step that is not sent again.
 * `notBefore` is the earliest time at which a step may be sent, or null for at once.
 */
export type ResumePlan = readonly { step: Step; resend: { notBefore: Millis | null } | null }[];

/** Returns the plan of a run that starts from the beginning: its initial payload. */
export const planRestart = (steps: readonly Step[]): ResumePlan =>
  steps.filter(isInitial).map((step) => ({ step, resend: { notBefore: null } }));

/**
 * Returns the steps with which a failed run continues.
 *
 * - A step with a result keeps it and is never run again.
 * - For a step without a result, the response of its third party is sent again if there is one, and otherwise
 *   its plan.
 * - A request to a third party that has no response is left out, because the endpoint will make another
 *   request.
 * - If every known step has its result, the last result is sent again, or the initial payload if there is no
 *   result. The endpoint received it before, but failed without posting the next step.
 * - A result is not sent again if later steps have followed it. It is also not sent again if it waits for
 *   other parallel steps: the endpoint would ignore it until these steps have finished.
 */
export function planResume(
  steps: readonly Step[],
  unfinished: ReadonlyMap<MessageId, Millis | null>,
): ResumePlan {
  const stepKeys = new Set(steps.map(({ id }) => readRunPart(id)));
  const kept = steps.filter((step) => !isAbandonedCall(step, stepKeys, unfinished));
  const open = kept.filter((step) => isOpen(step, stepKeys));
  // It is not known whether other steps have followed an unreadable step, so it is sent again if it was
  // unfinished.
  const unreadable = kept.filter(
    (step) => parseStepId(step.id).kind === "unreadable" && unfinished.has(step.messageId),
  );
  const last = kept.findLast(leadsToNextStep);
  const resent = new Set(open.length > 0 || !last ? [...open, ...unreadable] : [last, ...unreadable]);
  return kept.map((step) => ({
    step,
    resend: resent.has(step) ? { notBefore: unfinished.get(step.messageId) ?? null } : null,
  }));
}

const hasStep = (slots: ReadonlySet<string>, kind: StepKind, number: number): boolean =>
  slots.has(formatStepKey({ kind, number }));

function isAbandonedCall(
  step: Step,
  stepKeys: ReadonlySet<string>,
  unfinished: ReadonlyMap<MessageId, unknown>,
): boolean {
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
