import type { DestinationResponse, Bytes, HeaderList, Redaction, StepHead } from "./message.ts";
import { limits } from "../values/limits.ts";
import { truncateText } from "../values/name.ts";
import type { RunFailure } from "./run.ts";
import { parseStepKey } from "./stepId.ts";

/** The step that failed, or where that cannot be told, the last one before it; by their names. */
export type FailedStep = { stepName: string | null; afterStep: string | null };

/**
 * What is known of the step at which a run failed: by the answer of the endpoint, whose client names it, or else by the
 * message that failed, and the step that it carried.
 */
export function findFailedStep(stepKey: string | undefined, head: StepHead | null | undefined, responseHeaders: HeaderList): FailedStep {
  const reportedName = readFailedStepName(responseHeaders);
  if (reportedName !== null) return { stepName: reportedName, afterStep: null };
  const name = head ? head.stepName : null;
  // A result was sent for the next step to be run.
  const kind = stepKey === undefined ? null : parseStepKey(stepKey).kind;
  if (kind === null || kind === "initial" || kind === "result") return { stepName: null, afterStep: kind === "initial" ? null : name };
  return { stepName: name, afterStep: null };
}

/** The step at which an endpoint says that it has failed. */
export const readFailedStepName = (headers: HeaderList): string | null =>
  truncateText(headers.find(([name]) => /^(svc|upstash)-error-step-name$/i.test(name))?.[1] ?? "", limits.nameLength) || null;

/** Why a run failed, in one text: what the house says, or else the endpoint. What hides bodies hides what is said in them. */
export const formatFailure = (
  { error, status, body }: Pick<DestinationResponse, "error" | "status" | "body">,
  redaction: Redaction | null,
): string => formatRunFailure({ error: error ?? "", status, ...readFailureMessage(body) }, redaction);

/** The same of what is kept of it with the run. */
export function formatRunFailure(
  { error, status, said }: Pick<RunFailure, "error" | "status" | "said">,
  redaction: Redaction | null,
): string {
  if (error !== "") return error;
  if (said !== undefined && redaction?.body !== true) return said;
  return `the endpoint answered with status ${status ?? 0}`;
}

/** Of a longer answer no more is looked at. */
const maxReadBytes = 64 * 1024;
/** What is looked at of an error. */
export const maxErrorLength = 1_200;

/** What an endpoint says of its failure. Clients answer with `{"error": "TypeError", "message": "…"}`. */
export function readFailureMessage(body: Bytes): Pick<RunFailure, "said"> {
  if (body.byteLength > maxReadBytes) return {};
  try {
    const answer: unknown = JSON.parse(new TextDecoder().decode(body));
    if (typeof answer !== "object" || answer === null || !("message" in answer) || typeof answer.message !== "string") return {};
    const prefix = "error" in answer && typeof answer.error === "string" && answer.error !== "Error" ? `${answer.error}: ` : "";
    const said = truncateText(`${prefix}${answer.message}`, maxErrorLength);
    return said === "" ? {} : { said };
  } catch {
    return {};
  }
}
