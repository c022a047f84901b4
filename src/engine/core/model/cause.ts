import type { Bytes } from "../values/basics.ts";
import { fingerprint } from "../values/fingerprint.ts";
import type { Redaction } from "./sendSettings.ts";
import type { DestinationResponse } from "./attempt.ts";
import type { FailedStep } from "./failureText.ts";
import { formatFailure, formatRunFailure, maxErrorLength, readResponseMessage } from "./failureText.ts";

/**
 * Why a message failed for good: its endpoint, the status of the last response, and what this response said.
 * Dead letters with the same cause have the same `id` and are one group. In `error`, `…` replaces the parts
 * that differ from one failure to the next.
 */
export type Cause = { id: string; error: string };

type FailedMessage = {
  url: string;
  redaction: Redaction | null;
  status: number | null;
  error: string | null;
  body: Bytes;
};

/** Returns the cause of a dead letter of a message. A redacted response is not part of it. */
export function findCause({ url, redaction, status, error: told, body }: FailedMessage): Cause {
  const failure = { error: told ?? "", status, ...readResponseMessage(body) };
  const text = formatRunFailure(failure, redaction).trim();
  const error = normalizeError(text);
  return { id: toCauseId([toEndpoint(url), status, error]), error: withCode(text, error) };
}

type FailedRun = Pick<DestinationResponse, "status" | "error" | "body"> & {
  /** The URL of the workflow. */
  url: string;
  step: FailedStep;
  redaction: Redaction | null;
};

/** Returns the cause of the failure of a run: its workflow, the step, and the error. */
export function findRunCause({ url, step, redaction, ...response }: FailedRun): Cause {
  const error = normalizeError(formatFailure(response, redaction));
  return { id: toCauseId([url, step.stepName, step.afterStep, error]), error };
}

/** All ids have the same length, so that no tag begins with another one. */
const toCauseId = (parts: readonly unknown[]): string =>
  fingerprint(JSON.stringify(parts)).padStart(causeIdLength, "0");

/**
 * Returns a normalized error with the code at its beginning, such as `ORA-00060`, which looks like an id. It
 * is shown, but does not identify the cause.
 */
function withCode(text: string, error: string): string {
  const [code] = /^[A-Z]{1,8}[-_]?\d{2,6}(?=: )/.exec(text) ?? [];
  return code === undefined ? error : `${code}${normalizeError(text.slice(code.length))}`;
}

/** The length of the id of a cause: 53 bits in base 36. */
export const causeIdLength = 11;

/** Reports whether a string may be the id of a cause. */
export const isCauseId = (text: string): boolean => /^[\da-z]{11}$/.test(text);

/**
 * Returns a URL without the parts that differ from one message to the next. The query is left out, and `…`
 * replaces the segments of the path that are numbers or ids.
 */
export function toEndpoint(url: string): string {
  const [before = ""] = url.split(/[?#]/, 1);
  const start = before.indexOf("/", before.indexOf("//") + 2);
  return start < 0 ? before : before.slice(0, start) + before.slice(start).replace(/[^/]+/g, shortenSegment);
}

const shortenSegment = (segment: string): string =>
  /^\d+$/.test(segment) || (segment.length > 8 && /\d/.test(segment)) ? "…" : segment;

/** The maximum length of a shown error, in characters. */
const maxShownLength = maxErrorLength / 4;

/**
 * Returns the first line of an error without the parts that vary: quoted texts, identifiers, numbers and
 * hexadecimals. The line is cut to its limit. Errors with equal results belong to one group. If the error
 * says that the code does not fit the history, the quoted names of the steps stay, because they identify the
 * cause.
 */
export function normalizeError(text: string): string {
  const [line = ""] = text
    .trim()
    .slice(0, maxErrorLength)
    .split(/[\r\n]/, 1);
  const mismatch =
    /^(?:a step|step \d+)(: history has "(?:[^"\\]|\\.)*", the endpoint ran "(?:[^"\\]|\\.)*")$/.exec(line);
  const normalized = mismatch ? `step …${mismatch[1]}` : withoutValues(line);
  return normalized.length > maxShownLength ? `${normalized.slice(0, maxShownLength)}…` : normalized;
}

const withoutValues = (line: string): string =>
  line
    .replace(/"[^"]*"|`[^`]*`|(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])/gu, "…")
    .replace(/[\p{L}\p{N}_-]+/gu, (word) => (isPlainWord(word) ? word : "…"))
    .replace(/…([.:/,-]?…)+/g, "…")
    .replace(/\s+/g, " ")
    .trim();

/**
 * Reports whether a word is plain text and not a value. A word is a value if it contains a digit, or if it
 * consists of at least 8 characters from a to f.
 */
const isPlainWord = (word: string): boolean => !/\p{N}/u.test(word) && !/^[a-f]{8,}$/i.test(word);
