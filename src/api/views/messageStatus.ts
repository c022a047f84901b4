import { z } from "zod";
import {
  endStates,
  listedStates,
  readListedDueAt,
  readListedState,
} from "../../engine/core/explain/listedState.ts";
import type { WaitState } from "../../engine/core/explain/whyWaiting.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { MessageView } from "../../engine/store/catalog/queries.ts";
import { omitMissing, outcomeJson } from "./messages.ts";
import { messageSchema, outcomeSchema } from "./schemas.ts";
import { aboutListedStates } from "./unfinished.ts";
import { listShownReasons } from "./waitReasons.ts";
import { waitReasonSchema } from "./waitReasonSchema.ts";

/**
 * Returns the fields of a message that change: its state and what it waits for, or how it ended. `waitState`
 * is null if the message has finished.
 */
export function statusJson(
  { message, state, finishedAt, ended, outcomes }: MessageView,
  waitState: WaitState | null,
  { now, isOnHold }: { now: Millis; isOnHold: boolean },
): Record<string, unknown> {
  const shown = { outcomes: outcomes.map((row) => outcomeJson(row, message)) };
  if (!state || !waitState)
    return { ...omitMissing({ state: ended?.state, finishedAt, dlqId: ended?.dlqId }), ...shown };
  const limiters = [waitState.queue, waitState.key];
  const paused = new Set(limiters.flatMap((limiter) => (limiter?.paused ? limiter.id : [])));
  const fields = omitMissing({
    state: readListedState(state, paused),
    dueAt: readListedDueAt(state, paused),
    attempts: state.attempts,
    waitingOn: listShownReasons(waitState, now, isOnHold),
  });
  return { ...fields, ...shown };
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
  attempts: z
    .int()
    .min(0)
    .optional()
    .describe("The number of attempts that have ended. Absent if the message is finished."),
  outcomes: z
    .array(outcomeSchema)
    .describe("The outcomes of the newest 50 attempts, newest first. The log has all of them."),
  waitingOn: z
    .array(waitReasonSchema)
    .optional()
    .describe(
      "Reasons why the message waits: first what holds it back now, then what will hold it back later. " +
        "Absent if the message is finished.",
    ),
});
