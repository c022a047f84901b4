import { z } from "zod";
import { headerMap } from "../../engine/core/sending/callback.ts";
import { redactHeaders } from "../../engine/core/model/redaction.ts";
import { findFailedStep, formatFailure } from "../../engine/core/model/failureText.ts";
import type { DeadLetterEntry } from "../../engine/store/queries/deadLetters.ts";
import { deadLetterJson, omitMissing } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";
import { deadLetterSchema } from "./schemas.ts";

const callbackStates = [
  "CALLBACK_INPROGRESS",
  "CALLBACK_SUCCESS",
  "CALLBACK_FAIL",
  "CALLBACK_CANCELED",
] as const;

/** The state of a failure callback. */
export const callbackStateSchema = z.enum(callbackStates, {
  error: `must be one of ${callbackStates.join(", ")}`,
});

/** An entry of the dead letter queue, for a message or a workflow run, as the API shows it. */
export const entrySchema = deadLetterSchema.extend({
  error: z
    .string()
    .nullable()
    .describe(
      "For a message, why the last attempt had no response, or null if it had one. For a run, why the run " +
        "failed.",
    ),
  workflowRunId: z
    .string()
    .optional()
    .describe("The id of the failed run. This field and the following fields are present only for runs."),
  workflowCreatedAt: z.int().optional().describe("When the run was created, in Unix milliseconds."),
  workflowUrl: z.string().optional().describe("The URL of the workflow."),
  failureFunctionState: callbackStateSchema
    .optional()
    .describe(
      "The state of the failure callback, as in failureCallbackInfo. CALLBACK_INPROGRESS: being delivered. " +
        "CALLBACK_SUCCESS: delivered. CALLBACK_FAIL: failed for good. CALLBACK_CANCELED: cancelled.",
    ),
  failureCallbackHeader: z
    .record(z.string(), z.array(z.string()))
    .optional()
    .describe("The headers of the failure callback: names to lists of values."),
  stepName: z
    .string()
    .optional()
    .describe(
      "The name of the failed step: the step that the endpoint reported, or else the step of the failed " +
        "message. Absent if it is unknown.",
    ),
  afterStep: z
    .string()
    .optional()
    .describe("The name of the last step before the failure. Present only if stepName is unknown."),
});

/** Returns an entry of the dead letter queue as the API shows it. */
export function entryJson(entry: DeadLetterEntry): Record<string, unknown> {
  const { deadLetter: deadLetterRow, message, failed } = entry;
  if (!deadLetterRow.run) return deadLetterJson(entry);
  const callbackHeaders = failed?.run?.settings.failureCallback?.headers ?? [];
  // The failed message carries the whole history. Users recognize the run by its payload, so that is shown.
  const shown = failed ? { ...entry, message: { ...message, body: failed.payload } } : entry;
  return omitMissing({
    ...deadLetterJson(shown),
    failureCallback: deadLetterRow.run.failureUrl,
    failureCallbackHeader:
      callbackHeaders.length > 0
        ? headerMap(redactHeaders(callbackHeaders, message.redaction, sha256))
        : null,
    error: formatFailure(deadLetterRow, message.redaction),
    workflowRunId: deadLetterRow.run.runId,
    workflowCreatedAt: deadLetterRow.run.createdAt,
    workflowUrl: deadLetterRow.run.url,
    failureFunctionState: deadLetterRow.failureCallback?.state,
    ...findFailedStep(message.run?.stepKey, failed?.step?.head, deadLetterRow.headers),
  });
}
