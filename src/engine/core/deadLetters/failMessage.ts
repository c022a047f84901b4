import { findCause } from "../model/cause.ts";
import type { Draft, Moment } from "../decision/command.ts";
import { release } from "../admission/admission.ts";
import { log } from "../admission/messageLog.ts";
import { toTag } from "../search/tags.ts";
import { releaseDeduplication } from "../sending/releaseDeduplication.ts";
import type { Failure } from "../sending/recordOutcome.ts";
import {
  toLoggedResponse,
  toFailureCallbackInfo,
  putDeadLetter,
  toDeadLetterResponse,
  reportCallback,
} from "../sending/recordOutcome.ts";
import { failRunMessage, belongsToRun } from "../workflows/runOutcome.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import { countRetries } from "../sending/retry.ts";
import { createCallback, createFailureCallback } from "../sending/createCallback.ts";

/** Moves a message to the dead letter queue, frees its deduplication key, and creates its callbacks. */
export function failMessage(draft: Draft, moment: Moment, failure: Failure): void {
  const { account, message, state, outcome } = failure;
  if (belongsToRun(message)) return failRunMessage(draft, moment, { ...failure, message });
  const id = moment.newId("dlq");
  // A failure callback of a run gets no dead letter. Its outcome is shown in the dead letter of the run.
  const dlqId = message.run ? null : id;
  const logId = log(draft, moment, {
    message: state,
    timing: outcome.timing,
    row: { states: ["ERROR", "FAILED"], dlqId, ...toLoggedResponse(outcome) },
  });
  const cause = findCause({ ...outcome, url: message.url, redaction: message.redaction });
  const deadLetter: DeadLetter = {
    account: account.id,
    id,
    messageId: state.id,
    logId,
    ...toDeadLetterResponse(outcome),
    cause: cause.error,
    retried: countRetries(state),
    failureCallback: message.failureCallback ? { state: "CALLBACK_INPROGRESS" } : null,
    tags: [
      ...state.tags,
      toTag.url(message.url),
      ...(message.callerIp === null ? [] : [toTag.callerIp(message.callerIp)]),
      toTag.cause(cause.id),
    ],
  };
  draft.drop("messages", state.account, state.id);
  if (dlqId !== null) putDeadLetter(draft, deadLetter);
  releaseDeduplication(draft, message);
  reportCallback(draft, message, { ...toFailureCallbackInfo(outcome), state: "CALLBACK_FAIL" });
  createCallback(draft, moment, failure);
  createFailureCallback(draft, moment, { attempt: failure, dlqId: id });
  release(draft, moment, state);
}
