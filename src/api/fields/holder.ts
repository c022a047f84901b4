import type { Limiter } from "../../engine/core/model/limiter.ts";
import type { MessageState } from "../../engine/core/model/messageState.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { FieldsOf } from "./field.ts";
import { count, flag, list, longText, optional, text, time } from "./field.ts";

/** A holder of a slot, and what is stored of the message or callback that holds it now. */
type ShownHolder = {
  blocking: { messageId: string; callbackId?: string; text: string };
  message: StoredMessage | null;
  state: MessageState | undefined;
};

/** The fields of a holder of a slot at a queue or key. */
export const holderFields = {
  messageId: text(
    "The id of the message that holds the slot.",
    ({ blocking }) => blocking.messageId,
    "MESSAGE",
  ),
  callbackId: optional(text)(
    "The id of its callback that is not finished. Present if the message itself is finished.",
    ({ blocking }) => blocking.callbackId,
  ),
  text: longText(
    "The state of the message or its callback as a sentence.",
    ({ blocking }) => blocking.text,
    "STATE",
  ),
  url: optional(longText)(
    "The URL that the message or its callback is sent to.",
    ({ message }) => message?.url,
  ),
  createdAt: optional(time)(
    "When the message or its callback was accepted, in Unix milliseconds.",
    ({ message }) => message?.createdAt,
  ),
  attempts: optional(count)("The number of its attempts that have ended.", ({ state }) => state?.attempts),
} satisfies FieldsOf<ShownHolder>;

/** The fields of a page of the holders of the slots of a queue or key. */
export const holdersFields: FieldsOf<{
  limiter: Limiter;
  holders: readonly ShownHolder[];
  cursor: string | null;
}> = {
  used: count(
    "The number of slots that are held.",
    ({ limiter: { running, waitingDownstream = 0 } }) => running + waitingDownstream,
  ),
  limit: optional(count)(
    "The parallelism: the number of slots. Absent without a limit.",
    ({ limiter }) => limiter.parallelism,
  ),
  waiting: count("The number of messages that wait for a slot.", ({ limiter }) => limiter.waiting),
  paused: flag("Whether the queue or key is paused.", ({ limiter }) => limiter.paused),
  holders: list(holderFields)("The holders of the slots, oldest message first.", ({ holders }) => holders),
  cursor: optional(text)(
    "The cursor to pass for the next page. Absent on the last page.",
    ({ cursor }) => cursor,
  ),
};
