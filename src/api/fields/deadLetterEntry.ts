import type { DeadLetter } from "../../engine/core/model/deadLetter.ts";
import type { FailedStep } from "../../engine/core/model/failureText.ts";
import { formatFailure } from "../../engine/core/model/failureText.ts";
import type { StoredMessage } from "../../engine/core/model/message.ts";
import type { Run } from "../../engine/core/model/run.ts";
import { readHeaders } from "./content.ts";
import { callbackStates, deadLetterFields } from "./deadLetter.ts";
import type { FieldsOf } from "./field.ts";
import { headers, nullable, optional, text, time, word } from "./field.ts";

/** A dead letter of a run. `of` names the run, and `failed` is what is stored of it. */
type FailedRunEntry = {
  deadLetter: DeadLetter;
  message: StoredMessage;
  of: NonNullable<DeadLetter["run"]>;
  failed?: { run: Run | null };
  step: FailedStep;
};

/** The fields that an entry has only for a run, and those that differ then. */
export const failedRunFields: FieldsOf<FailedRunEntry> = {
  failureCallback: optional(text)("The URL of the failure callback.", ({ of }) => of.failureUrl),
  failureCallbackHeader: optional(headers)(
    "The headers of the failure callback: names to lists of values.",
    ({ failed, message }) => {
      const callbackHeaders = failed?.run?.settings.failureCallback?.headers ?? [];
      return callbackHeaders.length > 0 ? readHeaders(callbackHeaders, message.redaction) : null;
    },
  ),
  error: nullable(text)(
    "For a message, why the last attempt had no response, or null if it had one. For a run, why the run " +
      "failed.",
    ({ deadLetter, message }) => formatFailure(deadLetter, message.redaction),
  ),
  workflowRunId: optional(text)(
    "The id of the failed run. This field and the following fields are present only for runs.",
    ({ of }) => of.runId,
  ),
  workflowCreatedAt: optional(time)(
    "When the run was created, in Unix milliseconds.",
    ({ of }) => of.createdAt,
  ),
  workflowUrl: optional(text)("The URL of the workflow.", ({ of }) => of.url),
  failureFunctionState: optional(word(callbackStates))(
    "The state of the failure callback, as in failureCallbackInfo. CALLBACK_INPROGRESS: being delivered. " +
      "CALLBACK_SUCCESS: delivered. CALLBACK_FAIL: failed for good. CALLBACK_CANCELED: cancelled.",
    ({ deadLetter }) => deadLetter.failureCallback?.state,
  ),
  stepName: optional(text)(
    "The name of the failed step: the step that the endpoint reported, or else the step of the failed " +
      "message. Absent if it is unknown.",
    ({ step }) => step.stepName,
  ),
  afterStep: optional(text)(
    "The name of the last step before the failure. Present only if stepName is unknown.",
    ({ step }) => step.afterStep,
  ),
};

/** The fields of an entry of the dead letter queue, for a message or a workflow run. */
export const entryFields = { ...deadLetterFields, ...failedRunFields };
