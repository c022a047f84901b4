import type { Draft, Moment } from "../decision/command.ts";
import type { DestinationResponse } from "../model/attempt.ts";
import { endedByOperator } from "../model/attempt.ts";
import type { MessageState } from "../model/messageState.ts";
import { noResponse, scheduleRetry } from "./recordOutcome.ts";
import { countRetries, readRetryDelay } from "./retry.ts";

/** The error of an attempt that no puller received. */
export const notPulledError = "no puller received the attempt";

/** The error of an attempt that a client had pulled, and gave back. */
export const returnedError = "the client that pulled the attempt gave it back";

/** The error of an attempt that somebody held, and of which nobody reported the outcome. */
export const unreportedError = "timed out: the holder of the attempt reported no outcome in time";

/** The error of an attempt whose token may have been shown, and whose lease was given back. */
export const givenBackError = "the server stopped during the attempt";

/**
 * Records that the request of an ended attempt has ended, regardless of its outcome. The attempt uses up
 * neither a retry nor a lost attempt, and no callback reports it.
 */
export function recordEndedAttempt(
  draft: Draft,
  moment: Moment,
  { state, outcome: { timing } }: { state: MessageState; outcome: DestinationResponse },
): void {
  const message = draft.inspectWithoutBody("storedMessages", state.account, state.id);
  // A message that is damaged fails when it is claimed.
  const delay = message && !message.damaged ? readRetryDelay(message, countRetries(state)) : 0;
  scheduleRetry(draft, moment, {
    state: { ...state, endedAttempts: (state.endedAttempts ?? 0) + 1 },
    outcome: { ...noResponse, error: endedByOperator, ...(timing && { timing }) },
    at: moment.now + delay,
  });
}
