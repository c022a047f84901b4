import type { Waiter } from "../../engine/core/model/run.ts";
import type { WaitedEvent } from "../../engine/store/queries/waitedEvents.ts";
import { maxCountedWaiters } from "../../engine/store/queries/waitedEvents.ts";
import type { FieldsOf } from "./field.ts";
import { count, mark, object, optional, text, time, word } from "./field.ts";

const oldestFields: FieldsOf<Waiter> = {
  workflowRunId: text("The id of the run.", ({ runId }) => runId),
  kind: word(["event", "webhook"])(
    "event: its step waits for a notification. webhook: for a call to its webhook.",
    ({ kind }) => (kind === "webhook" ? kind : "event"),
  ),
  since: time("When its step began to wait, in Unix milliseconds.", ({ createdAt }) => createdAt),
  timeoutAt: optional(time)("When its wait times out, in Unix milliseconds.", ({ dueAt }) => dueAt),
};

/** The fields of an event that steps wait for. */
export const waitedEventFields: FieldsOf<WaitedEvent> = {
  eventId: text("The id of the event.", ({ event }) => event),
  waiting: count(`The number of steps that wait, counted up to ${maxCountedWaiters}.`, ({ count }) => count),
  more: mark("Present if more steps wait than `waiting` says.", ({ more }) => more),
  oldestRun: optional(object(oldestFields))(
    "The oldest run that waits. Absent if its wait has just ended.",
    ({ oldest }) => oldest,
  ),
};
