import type { Draft } from "../decision/command.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";

/**
 * Returns a message with the history that it carries now. If steps have run on in its calls, this is the
 * whole history.
 */
export function withGrownHistory<M extends WithoutBody<StoredMessage>>(
  draft: Draft,
  message: M,
  state: MessageState,
): M {
  const { run } = message;
  // Only the outcome of a message that has run on, or was sent first, is reported.
  if (run?.kind !== "step" || !state.reportsOutcome) return message;
  const active = draft.get("activeRuns", message.account, run.runId);
  if (active?.run !== run.run || active.lastCall?.messageId !== message.id || !active.lastCall.progress)
    return message;
  return { ...message, run: { ...run, position: active.steps - 1, size: active.size } };
}

/** Returns a message whose attempt ends, with the size of the history that its next delivery carries. */
export function withGrownSize(draft: Draft, state: MessageState): MessageState {
  if (state.run === null || !state.reportsOutcome) return state;
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  if (!message || message.damaged) return state;
  const { run } = withGrownHistory(draft, message, state);
  return run === message.run || !run ? state : { ...state, size: run.size };
}
