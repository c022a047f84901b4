import { z } from "zod";
import { findFailedStep } from "../../engine/core/model/failureText.ts";
import type { DeadLetterEntry } from "../../engine/store/queries/deadLetters.ts";
import { callbackStates, deadLetterFields } from "../fields/deadLetter.ts";
import { entryFields, failedRunFields } from "../fields/deadLetterEntry.ts";
import { toJson } from "../fields/field.ts";
import { toSchema } from "./fieldSchema.ts";

/** The state of a failure callback. */
export const callbackStateSchema = z.enum(callbackStates, {
  error: `must be one of ${callbackStates.join(", ")}`,
});

/** An entry of the dead letter queue, for a message or a workflow run, as the API shows it. */
export const entrySchema = toSchema(entryFields);

/** Returns an entry of the dead letter queue as the API shows it. */
export function entryJson(entry: DeadLetterEntry): Record<string, unknown> {
  const { deadLetter, message, failed } = entry;
  const { run: of } = deadLetter;
  if (!of) return toJson(deadLetterFields, entry);
  // The failed message carries the whole history. Users recognize the run by its payload, so that is shown.
  const shown = failed ? { ...entry, message: { ...message, body: failed.payload } } : entry;
  const step = findFailedStep(message.run?.stepKey, failed?.step?.head, deadLetter.headers);
  return { ...toJson(deadLetterFields, shown), ...toJson(failedRunFields, { ...entry, of, step }) };
}
