import { makeCallbackInput } from "./callback.ts";
import type { Draft, Moment } from "../decision/command.ts";
import { accept } from "./createMessage.ts";
import type { Failure } from "./recordOutcome.ts";
import { readWithBody } from "./recordOutcome.ts";
import type { CallbackSettings } from "../model/sendSettings.ts";
import type { StoredMessage } from "../model/message.ts";
import { readMessageBytes } from "../accounts/plans.ts";
import { countRetries } from "./retry.ts";

/** Creates the callback of a message, if it has one. It reports the outcome of an attempt. */
export function createCallback(draft: Draft, moment: Moment, attempt: Failure): void {
  const { callback, id: messageId } = attempt.message;
  if (!callback) return;
  const reportsOn = { kind: "callback", messageId, dlqId: null } as const;
  acceptCallback(draft, moment, { attempt, callback, reportsOn });
}

/** Creates the failure callback of a message, if it has one. It reports the dead letter `dlqId`. */
export function createFailureCallback(
  draft: Draft,
  moment: Moment,
  { attempt, dlqId }: { attempt: Failure; dlqId: string },
): void {
  const { failureCallback: callback, id: messageId } = attempt.message;
  if (!callback) return;
  const reportsOn = { kind: "failureCallback", messageId, dlqId } as const;
  acceptCallback(draft, moment, { attempt, callback, reportsOn });
}

type Report = {
  attempt: Failure;
  callback: CallbackSettings;
  reportsOn: NonNullable<StoredMessage["reportsOn"]>;
};

function acceptCallback(draft: Draft, moment: Moment, { attempt, callback, reportsOn }: Report): void {
  const { account, message, state, outcome } = attempt;
  const input = makeCallbackInput({
    callback,
    message: readWithBody(draft, message),
    retried: countRetries(state),
    outcome,
    reportsOn,
    maxBytes: readMessageBytes(account, moment),
  });
  // A callback with a delay shares no slot, so that the queue does not wait for it.
  accept(draft, moment, { account, input, slot: (callback.delay ?? 0) > 0 ? null : state.slot });
}
