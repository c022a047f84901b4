import { readAccountLimiters } from "../admission/accountLimits.ts";
import { keyGate } from "../admission/gate.ts";
import { findLimiter } from "../admission/limiter.ts";
import type { Draft, Moment } from "../decision/command.ts";
import type { MessageInput } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { ActiveRun, LastCall, Run } from "../model/run.ts";
import { historySize } from "../model/run.ts";
import type { RunOnRequest, RunPost, StepHead } from "../model/runPost.ts";
import { toStepId, toStepKey } from "../model/stepId.ts";
import { countRetries } from "../sending/retry.ts";
import { lazyHistoryBytes, limits } from "../values/limits.ts";

// A step that runs on is stored like any other step, but creates no message: the endpoint continues with the
// next step in the same call. The message of the call is the lease of the chain. It carries the history as
// far as it has grown, so it is sent again with all results if the call breaks off. The rule only decides. If
// it refuses, the step is posted like any other, which is always correct.

type OngoingRun = { run: Run; active: ActiveRun };

/** A posted step, and the call in which its endpoint can continue. */
export type RunOnInput = Pick<MessageInput, "delay" | "notBefore" | "body" | "flowControl"> & {
  post: Extract<RunPost, { kind: "step" | "call" }>;
};

/** `stored`: the call has posted the step before. Otherwise `lastCall` is that of the run after the step. */
export type RunOnDecision = { state: MessageState } & ({ stored: true } | { lastCall: LastCall });

/** Returns how a step runs on, or null if its call may not continue after it. */
export function decideRunOn(
  draft: Draft,
  moment: Moment,
  { ongoing, input }: { ongoing: OngoingRun; input: RunOnInput },
): RunOnDecision | null {
  const { head, runOn: request } = input.post;
  const { run, active } = ongoing;
  const { lastCall } = active;
  if (!request || !head || lastCall?.messageId !== request.messageId) return null;
  const state = draft.get("messages", run.account, lastCall.messageId);
  if (state?.state !== "active" || state.attempts !== request.attempt) return null;
  const { progress } = lastCall;
  const isOwner = progress?.attempt === request.attempt && progress.call === request.call;
  // Two requests of one attempt may have arrived. Only the first that posted continues.
  if (progress?.attempt === request.attempt && !isOwner) return null;
  // The response to the post was lost, and the same call posts the step again.
  if (isOwner && head.stepId === lastCall.fromStep - 1) return { state, stored: true };
  if (!isNextOfSequence(draft, ongoing, { ...input, head, lastCall })) return null;
  // Older clients give each step its own settings. A step that has its own key must pass that key.
  if (!run.features.captured && (input.flowControl?.key ?? null) !== state.flowControlKey) return null;
  if (active.size + historySize(input.body.byteLength) > lazyHistoryBytes) return null;
  if (active.steps + 1 >= limits.steps || !mayContinue(draft, moment, state)) return null;
  const next = head.stepId + 1;
  return { state, lastCall: extendCall({ request, state, next }) };
}

const extendCall = ({
  request: { messageId, attempt, call },
  state,
  next,
}: {
  request: RunOnRequest;
  state: MessageState;
  next: number;
}): LastCall => ({
  ...{ messageId, fromStep: next, toStep: next },
  progress: { attempt, retried: countRetries(state), lost: state.lostAttempts, call },
});

type Candidate = Pick<RunOnInput, "post" | "delay" | "notBefore"> & { head: StepHead; lastCall: LastCall };

/** Reports whether a step is the next result of a sequence, and nothing delays it. */
function isNextOfSequence(
  draft: Draft,
  { run }: OngoingRun,
  { post, delay, notBefore, head, lastCall: { fromStep, toStep } }: Candidate,
): boolean {
  if (post.kind !== "step" || head.stepType !== "Run" || head.concurrent !== 1) return false;
  if (head.stepId === 0 || delay !== null || notBefore !== null) return false;
  if (head.stepId < fromStep || head.stepId > toStep) return false;
  // After a parallel group, the range has numbers of the group as well.
  return (
    fromStep === toStep ||
    draft.inspectWithoutBody("steps", run.account, toStepId(run.id, toStepKey("step", head, 0))) === undefined
  );
}

/**
 * Reports whether the call may continue. It may not if others wait for its places, if a new message would
 * have to wait, or if this node starts no deliveries.
 */
function mayContinue(draft: Draft, moment: Moment, state: MessageState): boolean {
  if (moment.runsOn === false) return false;
  const { account, host, flowControlKey } = state;
  const key = flowControlKey === null ? null : findLimiter(draft, { account, gate: keyGate(flowControlKey) });
  if (key === undefined || key?.paused === true || (key && key.rate !== null)) return false;
  if (key && key.parallelism !== null && key.running > key.parallelism) return false;
  const limiters = [...(key ? [key] : []), ...readAccountLimiters(draft, moment, state)];
  if (limiters.some(({ waiting, waitingDownstream = 0 }) => waiting + waitingDownstream > 0)) return false;
  if (draft.get("hostWaitlists", account, host) || draft.capacity.hasBacklog(account)) return false;
  return draft.capacity.mayKeepPlace(account, host);
}
