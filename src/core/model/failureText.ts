import type { Answer, Bytes, HeaderList, Redaction, StepHead } from "./message.ts";
import { limits } from "../values/limits.ts";
import { shortText } from "../values/name.ts";
import type { RunFailure } from "./run.ts";
import { parseStepKey } from "./stepId.ts";

/** The step that failed, or where that cannot be told, the last one before it; by their names. */
export type FailedStep = { stepName: string | null; afterStep: string | null };

/**
 * What is known of the step at which a run failed: by the answer of the endpoint, whose client names it, or else by the
 * message that failed, and the step that it carried.
 */
export function failedStepOf(slot: string | undefined, head: StepHead | null | undefined, answered: HeaderList): FailedStep {
  const said = stepNamed(answered);
  if (said !== null) return { stepName: said, afterStep: null };
  const name = head ? head.stepName : null;
  // A result was sent for the next step to be run.
  const kind = slot === undefined ? null : parseStepKey(slot).kind;
  if (kind === null || kind === "initial" || kind === "result") return { stepName: null, afterStep: kind === "initial" ? null : name };
  return { stepName: name, afterStep: null };
}

/** The step at which an endpoint says that it has failed. */
export const stepNamed = (headers: HeaderList): string | null =>
  shortText(headers.find(([name]) => /^(svc|upstash)-error-step-name$/i.test(name))?.[1] ?? "", limits.nameLength) || null;

/** Why a run failed, in one text: what the house says, or else the endpoint. What hides bodies hides what is said in them. */
export const reasonOf = ({ error, status, body }: Pick<Answer, "error" | "status" | "body">, redaction: Redaction | null): string =>
  reasonIn({ error: error ?? "", status, ...saidIn(body) }, redaction);

/** The same of what is kept of it with the run. */
export function reasonIn({ error, status, said }: Pick<RunFailure, "error" | "status" | "said">, redaction: Redaction | null): string {
  if (error !== "") return error;
  if (said !== undefined && redaction?.body !== true) return said;
  return `the endpoint answered with status ${status ?? 0}`;
}

/** Of a longer answer no more is looked at. */
const mostRead = 64 * 1024;
/** What is looked at of an error. */
export const longestError = 1_200;

/** What an endpoint says of its failure. Clients answer with `{"error": "TypeError", "message": "…"}`. */
export function saidIn(body: Bytes): Pick<RunFailure, "said"> {
  if (body.byteLength > mostRead) return {};
  try {
    const answer: unknown = JSON.parse(new TextDecoder().decode(body));
    if (typeof answer !== "object" || answer === null || !("message" in answer) || typeof answer.message !== "string") return {};
    const kind = "error" in answer && typeof answer.error === "string" && answer.error !== "Error" ? `${answer.error}: ` : "";
    const said = shortText(`${kind}${answer.message}`, longestError);
    return said === "" ? {} : { said };
  } catch {
    return {};
  }
}
