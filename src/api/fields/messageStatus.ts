import type { EndState, ListedState } from "../../engine/core/explain/listedState.ts";
import { endStates, listedStates } from "../../engine/core/explain/listedState.ts";
import type { LogRow } from "../../engine/core/model/logRow.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { outcomeFields } from "./attempt.ts";
import type { FieldsOf, ShownReason } from "./field.ts";
import { count, list, optional, reasons, text, time, word } from "./field.ts";
import { messageFields } from "./message.ts";
import { aboutListedStates } from "./unfinished.ts";

/** A message with its attempts, and what it waits for or how it ended. `waiting` is null after its end. */
type MessageStatus = {
  message: StoredMessage;
  waiting: { state: ListedState; dueAt: Millis | null; attempts: number; on: readonly ShownReason[] } | null;
  finishedAt: Millis | null;
  ended: { state: EndState; dlqId: string | null } | null;
  outcomes: readonly LogRow[];
};

/** The fields of a message with its state. */
export const messageStatusFields: FieldsOf<MessageStatus> = {
  ...messageFields,
  state: optional(word([...listedStates, ...endStates]))(
    `The state of the message. ${aboutListedStates} delivered, failed, cancelled: has finished. Absent ` +
      "if it finishes while it is read.",
    ({ waiting, ended }) => (waiting ?? ended)?.state,
  ),
  dueAt: optional(time)(
    "When the next attempt is due. Present for pending and retrying, in Unix milliseconds.",
    ({ waiting }) => waiting?.dueAt,
  ),
  finishedAt: optional(time)(
    "When the message finished. Absent if it is unfinished, in Unix milliseconds.",
    ({ waiting, finishedAt }) => (waiting ? null : finishedAt),
  ),
  dlqId: optional(text)(
    "For failed, the id of the dead letter. Absent if the dead letter has been removed.",
    ({ waiting, ended }) => (waiting ? null : ended?.dlqId),
  ),
  attempts: optional(count)(
    "The number of attempts that have ended. Absent if the message is finished.",
    ({ waiting }) => waiting?.attempts,
  ),
  waitingOn: optional(reasons)(
    "Reasons why the message waits: first what holds it back now, then what will hold it back later. " +
      "Absent if the message is finished.",
    ({ waiting }) => waiting?.on,
  ),
  outcomes: list(outcomeFields)(
    "The outcomes of the newest 50 attempts, newest first. The log has all of them.",
    ({ outcomes, message }) => outcomes.map((row) => ({ row, message })),
  ),
};
