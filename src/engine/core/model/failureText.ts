import type { DestinationResponse } from "./attempt.ts";
import type { Bytes, HeaderList } from "../values/basics.ts";
import type { Redaction } from "./sendSettings.ts";
import type { StepHead } from "./runPost.ts";
import { limits } from "../values/limits.ts";
import { truncateText } from "../values/name.ts";
import type { RunFailure } from "./run.ts";
import { parseStepKey } from "./stepId.ts";

/**
 * The name of the step that failed (`stepName`). If it is not known, `afterStep` is the name of the last step
 * before the failure.
 */
export type FailedStep = { stepName: string | null; afterStep: string | null };

/**
 * Returns what is known about the step at which a run failed. If the response of the endpoint names the step,
 * that name is used. Otherwise the step of the failed message is used.
 */
export function findFailedStep(
  stepKey: string | undefined,
  head: StepHead | null | undefined,
  responseHeaders: HeaderList,
): FailedStep {
  const reportedName = readFailedStepName(responseHeaders);
  if (reportedName !== null) return { stepName: reportedName, afterStep: null };
  const name = head ? head.stepName : null;
  // A message with a result makes the endpoint run the next step. That step failed; its name is not known.
  const kind = stepKey === undefined ? null : parseStepKey(stepKey).kind;
  if (kind === null || kind === "initial" || kind === "result")
    return { stepName: null, afterStep: kind === "initial" ? null : name };
  return { stepName: name, afterStep: null };
}

/** Returns the name of the step at which an endpoint reports its failure; null if it names none. */
export const readFailedStepName = (headers: HeaderList): string | null =>
  truncateText(
    headers.find(([name]) => /^(svc|upstash)-error-step-name$/i.test(name))?.[1] ?? "",
    limits.nameLength,
  ) || null;

/**
 * Reports whether the response to a failure callback says that the workflow has no function for it. Clients
 * set the failure callback of every run.
 */
export const lacksFailureFunction = (headers: HeaderList): boolean =>
  headers.some(
    ([name, value]) =>
      /^(svc|upstash)-workflow-failure-callback-notfound$/i.test(name) && value.toLowerCase() === "true",
  );

/**
 * Returns why a run failed: the server's error or, if there is none, the message of the endpoint. If the
 * redaction hides bodies, it hides the message of the endpoint too.
 */
export const formatFailure = (
  { error, status, body }: Pick<DestinationResponse, "error" | "status" | "body">,
  redaction: Redaction | null,
): string => formatRunFailure({ error: error ?? "", status, ...readFailureMessage(body) }, redaction);

/**
 * Returns why a run failed, from the failure that the run records. The redaction applies as in
 * `formatFailure`.
 */
export function formatRunFailure(
  { error, status, said }: Pick<RunFailure, "error" | "status" | "said">,
  redaction: Redaction | null,
): string {
  if (error !== "") return error;
  if (said !== undefined && redaction?.body !== true) return said;
  return `the endpoint answered with status ${status ?? 0}`;
}

/** A longer body is not searched for a message. */
const maxReadBytes = 64 * 1024;
/** The largest number of characters that are kept of an endpoint's error. */
export const maxErrorLength = 1_200;

/**
 * Returns what an endpoint says about its failure. Clients respond with `{"error": "TypeError", "message":
 * "…"}`.
 */
export function readFailureMessage(body: Bytes): Pick<RunFailure, "said"> {
  if (body.byteLength > maxReadBytes) return {};
  const text = new TextDecoder().decode(body);
  // Most other bodies are HTML or plain text. To create an error for each takes longer than to group it.
  if (!/^\s*\{/.test(text)) return {};
  try {
    const answer: unknown = JSON.parse(text);
    if (
      typeof answer !== "object" ||
      answer === null ||
      !("message" in answer) ||
      typeof answer.message !== "string" ||
      answer.message === ""
    )
      return {};
    const prefix =
      "error" in answer && typeof answer.error === "string" && answer.error !== "Error"
        ? `${answer.error}: `
        : "";
    const said = truncateText(`${prefix}${answer.message}`, maxErrorLength);
    return said === "" ? {} : { said };
  } catch {
    return {};
  }
}

/**
 * Returns what any destination says about a failure: the message of a client as in `readFailureMessage`, or
 * `{"error": "…"}` or `{"error": {"message": "…"}}`, or the first line of plain text.
 */
export function readResponseMessage(body: Bytes): Pick<RunFailure, "said"> {
  if (body.byteLength > maxReadBytes) return {};
  const text = new TextDecoder().decode(body).trim();
  if (!text.startsWith("{")) return toSaid(readFirstLine(text));
  const known = readFailureMessage(body);
  return known.said === undefined ? toSaid(readErrorField(text)) : known;
}

function toSaid(text: string): Pick<RunFailure, "said"> {
  const said = truncateText(text, maxErrorLength);
  return said === "" ? {} : { said };
}

function readErrorField(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    const told = typeof error === "object" && error && "message" in error ? error.message : error;
    return typeof told === "string" ? told : "";
  } catch {
    return "";
  }
}

/** Returns the first line of plain text. It is empty for HTML, for other JSON and for binary data. */
function readFirstLine(text: string): string {
  const [line = ""] = text.split(/[\r\n]/, 1);
  return /^[<["]|^(?:null|true|false)$|[\p{Cc}\uFFFD]/u.test(line) ? "" : line;
}
