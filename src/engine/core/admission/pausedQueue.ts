import type { Draft, Moment } from "../decision/command.ts";
import { spans } from "../values/limits.ts";
import type { MessageState } from "../model/messageState.ts";
import { leaveWaitlist, recordCounted } from "./counters.ts";
import { queueGate } from "./gate.ts";
import { findLimiter } from "./limiter.ts";

/**
 * Reports whether a message has a slot of a paused queue. Such a message is not sent, even if all other gates
 * are open.
 */
export const isQueuePaused = (draft: Draft, { account, id, queue, slot }: MessageState): boolean =>
  queue !== null && slot === id && findLimiter(draft, { account, gate: queueGate(queue) })?.paused === true;

/**
 * Postpones a message that has a slot of a paused queue, by `spans.pausedQueueCheck`. The message leaves its
 * waitlist, so that it does not block the messages behind it. Returns false if its queue is not paused.
 */
export function deferIfQueuePaused(draft: Draft, moment: Moment, state: MessageState): boolean {
  if (!isQueuePaused(draft, state)) return false;
  leaveWaitlist(draft, moment, state);
  const deferred = {
    state: "pending",
    waitlist: null,
    leasedBy: null,
    dueAt: moment.now + spans.pausedQueueCheck,
  } as const;
  draft.put("messages", { ...recordCounted([], state), ...deferred });
  return true;
}
