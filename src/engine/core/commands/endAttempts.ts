import type { Decision } from "../decision/command.ts";
import { abortRequest, readStart } from "../admission/lease.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import { recordEndedAttempt } from "../sending/endedAttempt.ts";
import { noResponse } from "../sending/recordOutcome.ts";

/** A running attempt, by its number. */
export type RunningAttempt = { messageId: MessageId; attempt: number };

/** `host`: all attempts are to this host, which the audit log names. */
type EndedAttempts = { account: AccountId; attempts: readonly RunningAttempt[]; host?: string };

/**
 * Ends running attempts. The node that sends such a message closes its connection, and the message is then
 * due again after its retry delay. Until then, it keeps its lease and its slots at the gates. An attempt with
 * another number is not ended, nor is one that has been ended before, so a repeated call changes nothing. An
 * attempt that its receiver holds ends at once.
 */
export const endAttempts: Decision<EndedAttempts, { ended: number }> = {
  hint: ({ account, attempts }) => ({ messages: attempts.map(({ messageId }) => [account, messageId]) }),
  decide: ({ account, attempts }, draft, moment) => {
    let ended = 0;
    for (const { messageId, attempt } of attempts) {
      const state = draft.get("messages", account, messageId);
      if (!state || state.attempts !== attempt) continue;
      if (state.state === "acknowledging") {
        recordEndedAttempt(draft, moment, { state, outcome: noResponse });
      } else if (state.state === "active") {
        draft.put("messages", { ...state, state: "ending" });
        abortRequest(draft, moment, state);
      } else continue;
      ended++;
    }
    return { ended };
  },
};

/**
 * Returns the attempts among some messages that an operator may end: those that began until a time.
 */
export const pickRunning = (states: readonly MessageState[], startedBefore: Millis): RunningAttempt[] =>
  states
    .filter((state) => state.state === "active" && (readStart(state) ?? 0) <= startedBefore)
    .map(({ id, attempts }) => ({ messageId: id, attempt: attempts }));
