import type { Decision } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { abortRequest } from "../admission/lease.ts";
import { log } from "../admission/messageLog.ts";
import type { Cancelled, NotDone } from "../values/errors.ts";
import { toFailedMember } from "../values/errors.ts";
import type { AccountId, MessageId } from "../values/basics.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import { isUnfinished } from "../model/messageState.ts";
import { releaseDeduplication } from "./releaseDeduplication.ts";
import { reportCallback } from "./recordOutcome.ts";

/**
 * Cancels unfinished messages. The request of a message in flight is aborted, but may still arrive. The
 * message keeps its slots at the gates until the request has ended, but its outcome changes nothing. Messages
 * of a workflow run are not cancelled, and the result lists them in `failed`. They end if the run is
 * cancelled.
 */
export const cancel: Decision<{ account: AccountId; messageIds: readonly MessageId[] }, Cancelled> = {
  decide: ({ account, messageIds }, draft, moment) => {
    let cancelled = 0;
    const failed: NotDone[] = [];
    for (const id of new Set(messageIds)) {
      const state = draft.get("messages", account, id);
      const message = draft.inspectWithoutBody("storedMessages", account, id);
      if (!state || !message || state.run !== null || !isUnfinished(state)) {
        failed.push({ id, reason: formatCancelFailure(state, message) });
        continue;
      }
      // A receiver that holds an attempt learns of the cancel when it reports.
      if (state.leasedBy === null || state.state === "acknowledging") {
        draft.drop("messages", account, id);
        log(draft, moment, { message: state, row: { states: ["CANCEL_REQUESTED", "CANCELLED"] } });
        release(draft, moment, state);
      } else {
        draft.put("messages", { ...state, state: "cancelling" });
        log(draft, moment, { message: state, row: { states: ["CANCEL_REQUESTED"] } });
        abortRequest(draft, moment, state);
      }
      releaseDeduplication(draft, message);
      reportCallback(draft, message, { state: "CALLBACK_CANCELED" });
      cancelled++;
    }
    return { cancelled, ...toFailedMember(failed) };
  },
};

function formatCancelFailure(
  state: MessageState | undefined,
  message: WithoutBody<StoredMessage> | undefined,
): string {
  if (!message) return "the message does not exist";
  if (!state || state.state === "settled") return "the message has finished or was already cancelled";
  if (state.run === null) return "the message was already cancelled; its request is still running";
  const runId = JSON.stringify(message.run?.runId.slice(0, 200));
  return `the message belongs to the run ${runId}; cancel the run instead`;
}
