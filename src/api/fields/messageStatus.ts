import type { EndState, ListedState } from "../../engine/core/explain/listedState.ts";
import { endStates, listedStates } from "../../engine/core/explain/listedState.ts";
import type { Deduplication } from "../../engine/core/model/deduplication.ts";
import type { LogRow } from "../../engine/core/model/logRow.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { Millis } from "../../engine/core/values/basics.ts";
import { outcomeFields } from "./attempt.ts";
import type { FieldsOf, ShownReason } from "./field.ts";
import { count, list, object, optional, reasons, text, time, word } from "./field.ts";
import { messageFields } from "./message.ts";
import { aboutListedStates } from "./unfinished.ts";

/** A message with its attempts, and what it waits for or how it ended. `waiting` is null after its end. */
type MessageStatus = {
  message: StoredMessage;
  waiting: { state: ListedState; dueAt: Millis | null; attempts: number; on: readonly ShownReason[] } | null;
  finishedAt: Millis | null;
  ended: { state: EndState; dlqId: string | null } | null;
  outcomes: readonly LogRow[];
  deduplication: Deduplication | null;
  now: Millis;
};

/** The ways to find a repeated message: by the id of its sender, by its content, or by a call to a source. */
const deduplicationKinds = ["id", "content", "source"] as const;

const deduplicationFields: FieldsOf<MessageStatus> = {
  by: word(deduplicationKinds)(
    "How a repeated message is found. id: by its deduplication id. content: by its content. source: by the " +
      "event or the signature of a call to a source.",
    ({ message: { deduplication } }) =>
      deduplicationKinds.find((kind) => deduplication?.startsWith(kind.slice(0, 1))) ?? "source",
  ),
  id: optional(text)(
    "The deduplication id, or the id of the event.",
    ({ message }) => message.deduplicationId,
  ),
  until: optional(time)(
    "Until when a repeated message is dropped, and this one is returned instead, in Unix milliseconds. " +
      "Absent if a repeated message is accepted.",
    (status) => (isHolder(status) ? status.deduplication?.expiresAt : null),
  ),
  messageId: optional(text)("The message that is returned instead now, if it is another one.", (status) =>
    isHolder(status) ? null : findHeld(status)?.messageId,
  ),
};

/** Returns the row of the deduplication key of a message, if it has not expired. */
const findHeld = ({ deduplication, now }: MessageStatus): Deduplication | null =>
  deduplication !== null && deduplication.expiresAt > now ? deduplication : null;

const isHolder = (status: MessageStatus): boolean => findHeld(status)?.messageId === status.message.id;

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
  deduplication: optional(object(deduplicationFields))(
    "How repeated messages are found. Absent if the message is not deduplicated.",
    (status) => (status.message.deduplication === null ? null : status),
  ),
  outcomes: list(outcomeFields)(
    "The outcomes of the newest 50 attempts, newest first. The log has all of them.",
    ({ outcomes, message }) => outcomes.map((row) => ({ row, message })),
  ),
};
