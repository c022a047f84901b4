import type { Draft } from "../decision/command.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import type { ActiveRun, LastCall, RunProgress } from "../model/run.ts";
import { countRetries } from "../sending/retry.ts";

// The progress of a run in the calls of one message: see `engine/core/workflows/runOn.ts`.

/** Returns the progress that a run has made in the calls of this message; null if it has made none. */
export function findProgress(draft: Draft, message: WithoutBody<StoredMessage>): RunProgress | null {
  const lastCall = findLastCall(draft, message)?.lastCall;
  return lastCall?.messageId === message.id ? (lastCall.progress ?? null) : null;
}

function findLastCall(
  draft: Draft,
  { account, run }: WithoutBody<StoredMessage>,
): (ActiveRun & { lastCall: LastCall }) | null {
  if (run?.kind !== "step") return null;
  const active = draft.get("activeRuns", account, run.runId);
  return active?.run === run.run && active.lastCall ? { ...active, lastCall: active.lastCall } : null;
}

/** The attempts of a message since the last progress of its run: retries, and lost ones. */
export type AttemptsSince = { retried: number; lost: number };

/** Returns the attempts that count for the step that runs now. */
export const countSince = (state: MessageState, progress: RunProgress | null): AttemptsSince => ({
  retried: countRetries(state) - (progress?.retried ?? 0),
  lost: state.lostAttempts - (progress?.lost ?? 0),
});

/** Reports whether a step has run on in this attempt of a message. */
export const hasProgressed = ({ attempts }: MessageState, progress: RunProgress | null): boolean =>
  progress?.attempt === attempts;

/**
 * Ends the right of the running call to run on, because its lease is given back. The message is sent again
 * under the same number of the attempt.
 */
export function endOwner(draft: Draft, state: MessageState): void {
  if (state.run === null || !state.reportsOutcome) return;
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  const active = message && !message.damaged ? findLastCall(draft, message) : null;
  const { lastCall } = active ?? {};
  if (!active || lastCall?.messageId !== state.id || !lastCall.progress) return;
  draft.put("activeRuns", {
    ...active,
    lastCall: { ...lastCall, progress: { ...lastCall.progress, call: "" } },
  });
}
