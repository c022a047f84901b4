import type { Draft, Moment } from "../decision/command.ts";
import type { MessageId } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { RunPart, StepHead } from "../model/runPost.ts";
import { isBeingSent, isUnfinished } from "../model/messageState.ts";
import type { ActiveRun, CallType, LastCall, Run } from "../model/run.ts";
import { formatStepKey, parseStepKey, toStepId } from "../model/stepId.ts";
import { settleByStep } from "../sending/recordOutcome.ts";
import { spans } from "../values/limits.ts";

// A post does not name the delivery in which its endpoint made it. It follows from the history: the endpoint
// continues a run only in the last call, and each parallel branch only in the call with its own plan.

type OngoingRun = { run: Run; active: ActiveRun };

/** A step and its message, as `makeLastCall` needs them. */
type CarriedStep = {
  messageId: MessageId;
  stepKey: string;
  head: StepHead | null;
  first: RunPart["first"] | undefined;
};

/**
 * Returns the call that carries a step, and the numbers of the steps that the endpoint can begin in it.
 * Returns null if the outcome of the call decides something that a post cannot: whether the endpoint is a
 * workflow that needs no client, or which response the log keeps.
 */
export function makeLastCall(run: Run, { messageId, stepKey, head, first }: CarriedStep): LastCall | null {
  if (!settlesByStep(run) || first === "rest") return null;
  const { kind, number } = parseStepKey(stepKey);
  const concurrent = head?.concurrent ?? 1;
  if (kind === "initial") return { messageId, fromStep: 1, toStep: 1 };
  // The last result of a parallel group may be that of its first step.
  if (kind === "result") return makeRange(messageId, number + 1, number + concurrent);
  if (kind === "answer" && concurrent === 1) return makeRange(messageId, number, number);
  return null;
}

/**
 * Reports whether posts settle deliveries of a run. They do not if a post may belong to another run with the
 * same id, or if the log keeps the responses.
 */
const settlesByStep = ({ keepResponse, sharesId }: Run): boolean => !keepResponse && !sharesId;

const makeRange = (messageId: MessageId, fromStep: number, toStep: number): LastCall | null =>
  Number.isSafeInteger(toStep) ? { messageId, fromStep, toStep } : null;

/** A step that an endpoint posted for its run. `toCallback`: it asked for a request to a third party. */
type PostedStep = { ongoing: OngoingRun; head: StepHead | null; callType?: CallType };

/**
 * Settles the delivery in which an endpoint posted a step, if that delivery is known and unfinished. The post
 * shows that the delivery arrived. Its outcome then changes nothing. Returns the message of the delivery, if
 * it is known.
 */
export function settlePosted(draft: Draft, moment: Moment, posted: PostedStep): MessageId | undefined {
  const { run } = posted.ongoing;
  if (!settlesByStep(run)) return undefined;
  const { messageId } = findPostingCall(draft, posted.ongoing.active, posted);
  if (messageId !== undefined)
    settleCall(draft, moment, { run, state: draft.get("messages", run.account, messageId) });
  return messageId;
}

/** Settles the delivery in which an endpoint posted the end of its run. */
export function settleFinished(
  draft: Draft,
  moment: Moment,
  { run, active: { lastCall } }: OngoingRun,
): void {
  // The end of the run reads all of its messages.
  const states = draft.listRunRows("messages", { account: run.account, run: run.id });
  settleCall(draft, moment, { run, state: states.find(({ id }) => id === lastCall?.messageId) });
}

/**
 * Returns the message of the call in which a step was posted, as far as it is known. `stepId` is the step
 * that the call carries, if it names the message.
 */
function findPostingCall(
  draft: Draft,
  { account, run, lastCall }: ActiveRun,
  { head, callType }: Omit<PostedStep, "ongoing">,
): { messageId?: MessageId | undefined; stepId?: string } {
  if (!head) return {};
  if (head.stepId > 0 && head.concurrent > 1) {
    // The response of a third party has its own call, and the endpoint posts the result in that call.
    const kind = head.stepType === "Call" && callType === "step" ? "answer" : "plan";
    const stepId = toStepId(run, formatStepKey({ kind, number: head.stepId }));
    const carried = draft.inspectWithoutBody("steps", account, stepId);
    return { messageId: carried?.damaged ? undefined : carried?.messageId, stepId };
  }
  const number = head.stepId || (head.targetStep ?? 0);
  const isNext = lastCall !== null && number >= lastCall.fromStep && number <= lastCall.toStep;
  return { messageId: isNext ? lastCall.messageId : undefined };
}

function settleCall(
  draft: Draft,
  moment: Moment,
  { run, state }: { run: Run; state: MessageState | undefined },
): void {
  if (state && state.run === run.id && isUnfinished(state) && wasSent(moment, state))
    settleByStep(draft, moment, state);
}

/**
 * Reports whether a message was sent before this moment, because otherwise no post can come from it. A lease
 * that this batch has taken has not been sent yet.
 */
function wasSent({ now }: Moment, state: MessageState): boolean {
  if (state.leasedBy !== null && state.dueAt === now + spans.lease) return false;
  return isBeingSent(state) || state.attempts > 0;
}
