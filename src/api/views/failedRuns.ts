import { z } from "zod";
import { headerMap } from "../../core/sending/callback.ts";
import { redactHeaders } from "../../core/model/redaction.ts";
import { failedStepOf, reasonOf } from "../../core/model/failureText.ts";
import type { DeadLetterEntry } from "../../store/queries/index.ts";
import { deadLetterJson, present } from "./messages.ts";
import { sha256 } from "../http/sha256.ts";
import { deadLetter } from "./shapes.ts";

const callbackStates = ["CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"] as const;

/** What became of a failure callback. */
export const callbackState = z.enum(callbackStates, { error: `is none of ${callbackStates.join(", ")}` });

/** An entry of the dead letter queue, of a message or of a workflow run, as it is shown. */
export const entryShape = deadLetter.extend({
  error: z
    .string()
    .nullable()
    .describe("Of a message: why there was no response to the last attempt, null if there was one. Of a run: why it failed."),
  workflowRunId: z.string().optional().describe("The run that failed. What follows is there for runs only."),
  workflowCreatedAt: z.int().optional().describe("When it began, in unix milliseconds."),
  workflowUrl: z.string().optional(),
  failureFunctionState: callbackState.optional().describe("What became of the failure callback, as in failureCallbackInfo."),
  failureCallbackHeader: z.record(z.string(), z.array(z.string())).optional().describe("Headers that the failure callback has."),
  stepName: z
    .string()
    .optional()
    .describe("The step that failed: as the endpoint says, or else the one that it was called to run. Absent where neither tells."),
  afterStep: z.string().optional().describe("Otherwise the last step before it, if there was one."),
});

/** An entry, as it is shown. */
export function entryJson(entry: DeadLetterEntry): Record<string, unknown> {
  const { letter, envelope, failed } = entry;
  if (!letter.run) return deadLetterJson(entry);
  const told = failed?.run?.settings.failureCallback?.headers ?? [];
  // The message that failed carries the history. People know the run by its payload.
  const shown = failed ? { ...entry, envelope: { ...envelope, body: failed.payload } } : entry;
  return present({
    ...deadLetterJson(shown),
    failureCallback: letter.run.failureUrl,
    failureCallbackHeader: told.length > 0 ? headerMap(redactHeaders(told, envelope.redaction, sha256)) : null,
    error: reasonOf(letter, envelope.redaction),
    workflowRunId: letter.run.runId,
    workflowCreatedAt: letter.run.createdAt,
    workflowUrl: letter.run.url,
    failureFunctionState: letter.failureCallback?.state,
    ...failedStepOf(envelope.run?.slot, failed?.step?.head, letter.headers),
  });
}
