import { z } from "zod";
import { endStates, listedStates, readListedDueAt, readListedState } from "../../core/sending/listedState.ts";
import type { WaitState } from "../../core/sending/whyWaiting.ts";
import { listWaitReasons } from "../../core/sending/whyWaiting.ts";
import type { Millis } from "../../core/model/message.ts";
import type { MessageView } from "../../store/queries/index.ts";
import { omitMissing } from "./messages.ts";
import { messageSchema } from "./schemas.ts";
import { aboutListedStates } from "./unfinished.ts";
import { waitReasonSchema } from "./waitReasonSchema.ts";

/**
 * Returns the fields of a message that change: its state and what it waits for, or how it ended. `waitState`
 * is null if the message has finished.
 */
export function statusJson(
  { state, finishedAt, ended }: MessageView,
  waitState: WaitState | null,
  now: Millis,
): Record<string, unknown> {
  if (!state || !waitState) return omitMissing({ state: ended?.state, finishedAt, dlqId: ended?.dlqId });
  const limiters = [waitState.queue, waitState.key];
  const paused = new Set(limiters.flatMap((limiter) => (limiter?.paused ? limiter.id : [])));
  return omitMissing({
    state: readListedState(state, paused),
    dueAt: readListedDueAt(state, paused),
    waitingOn: listWaitReasons(waitState, now),
  });
}

const millis = (about: string) => z.int().optional().describe(`${about}, in Unix milliseconds.`);

/** A message with its state, as the API shows it. */
export const messageStatusSchema = messageSchema.extend({
  state: z
    .enum([...listedStates, ...endStates])
    .optional()
    .describe(
      `The state of the message. ${aboutListedStates} delivered, failed, cancelled: has finished. Absent ` +
        "if it finishes while it is read.",
    ),
  dueAt: millis("When the next attempt is due. Present for pending and retrying"),
  finishedAt: millis("When the message finished. Absent if it is unfinished"),
  dlqId: z
    .string()
    .optional()
    .describe("For failed, the id of the dead letter. Absent if the dead letter has been removed."),
  waitingOn: z
    .array(waitReasonSchema)
    .optional()
    .describe(
      "Reasons why the message waits: first what holds it back now, then what will hold it back later. " +
        "Absent if the message is finished.",
    ),
});
