import { z } from "zod";
import { headerMap } from "../../core/sending/callback.ts";
import { redactHeaders } from "../../core/model/redaction.ts";
import { findFailedStep, formatFailure } from "../../core/model/failureText.ts";
import type { DeadLetterEntry } from "../../store/queries/deadLetters.ts";
import { deadLetterJson, omitMissing } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";
import { deadLetterSchema } from "./schemas.ts";

const callbackStates = ["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"] as const;

/** What became of a failure callback. */
export const callbackStateSchema = z.enum(callbackStates, { error: `is none of ${callbackStates.join(", ")}` });

/** An entry of the dead letter queue, of a message or of a workflow run, as it is shown. */
export const entrySchema = deadLetterSchema.extend({
  error: z
    .string()
    .nullable()
    .describe("Of a message: why there was no response to the last attempt, null if there was one. Of a run: why it failed."),
  workflowRunId: z.string().optional().describe("The run that failed. What follows is there for runs only."),
  workflowCreatedAt: z.int().optional().describe("When it began, in unix milliseconds."),
  workflowUrl: z.string().optional(),
  failureFunctionState: callbackStateSchema.optional().describe("What became of the failure callback, as in failureCallbackInfo."),
  failureCallbackHeader: z.record(z.string(), z.array(z.string())).optional().describe("Headers that the failure callback has."),
  stepName: z
    .string()
    .optional()
    .describe("The step that failed: as the endpoint says, or else the one that it was called to run. Absent where neither tells."),
  afterStep: z.string().optional().describe("Otherwise the last step before it, if there was one."),
});

/** An entry, as it is shown. */
export function entryJson(entry: DeadLetterEntry): Record<string, unknown> {
  const { deadLetter: deadLetterRow, message, failed } = entry;
  if (!deadLetterRow.run) return deadLetterJson(entry);
  const callbackHeaders = failed?.run?.settings.failureCallback?.headers ?? [];
  // The message that failed carries the history. People know the run by its payload.
  const shown = failed ? { ...entry, message: { ...message, body: failed.payload } } : entry;
  return omitMissing({
    ...deadLetterJson(shown),
    failureCallback: deadLetterRow.run.failureUrl,
    failureCallbackHeader: callbackHeaders.length > 0 ? headerMap(redactHeaders(callbackHeaders, message.redaction, sha256)) : null,
    error: formatFailure(deadLetterRow, message.redaction),
    workflowRunId: deadLetterRow.run.runId,
    workflowCreatedAt: deadLetterRow.run.createdAt,
    workflowUrl: deadLetterRow.run.url,
    failureFunctionState: deadLetterRow.failureCallback?.state,
    ...findFailedStep(message.run?.stepKey, failed?.step?.head, deadLetterRow.headers),
  });
}
