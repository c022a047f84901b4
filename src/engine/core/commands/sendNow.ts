import type { Decision } from "../decision/command.ts";
import type { AccountId, MessageId } from "../values/basics.ts";
import { isUnfinished } from "../model/messageState.ts";

/** The result of `sendNow`. `changed` is false if the message was due already, or is being sent. */
export type SentNow = { changed: boolean };

/**
 * Makes a message due now that waits for its delay or its next retry. It still passes all gates, in their
 * order: limits, pauses and earlier messages hold it. Null: the message does not exist, or has finished.
 */
export const sendNow: Decision<{ account: AccountId; messageId: MessageId }, SentNow | null> = {
  decide: ({ account, messageId }, draft, moment) => {
    const state = draft.get("messages", account, messageId);
    if (!state || !isUnfinished(state)) return null;
    if (state.state !== "pending" || state.dueAt === null || state.dueAt <= moment.now)
      return { changed: false };
    draft.put("messages", { ...state, dueAt: moment.now });
    return { changed: true };
  },
};
