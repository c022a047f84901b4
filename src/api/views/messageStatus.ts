import { readListedDueAt, readListedState } from "../../engine/core/explain/listedState.ts";
import type { WaitState } from "../../engine/core/explain/whyWaiting.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { MessageView } from "../../engine/store/catalog/queries.ts";
import { toJson } from "../fields/field.ts";
import { messageStatusFields } from "../fields/messageStatus.ts";
import { listShownReasons } from "./waitReasons.ts";

/**
 * Returns a message as the API shows it, with what it waits for, or how it ended. `waitState` is null if the
 * message has finished.
 */
export function messageStatusJson(
  view: MessageView,
  waitState: WaitState | null,
  { now, isOnHold }: { now: Millis; isOnHold: boolean },
): Record<string, unknown> {
  const { state } = view;
  if (!state || !waitState) return toJson(messageStatusFields, { ...view, now, waiting: null });
  const limiters = [waitState.queue, waitState.key];
  const paused = new Set(limiters.flatMap((limiter) => (limiter?.paused ? limiter.id : [])));
  const waiting = {
    state: readListedState(state, paused),
    dueAt: readListedDueAt(state, paused),
    attempts: state.attempts,
    on: listShownReasons(waitState, now, isOnHold),
  };
  return toJson(messageStatusFields, { ...view, now, waiting });
}
