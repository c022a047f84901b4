import { parseDuration } from "../values/duration.ts";
import { isSuccessStatus } from "../values/status.ts";
import { day, second } from "../values/time.ts";
import { Refusal } from "../values/errors.ts";
import { evaluateRetryDelay } from "../values/expression.ts";
import { canonicalName, headerValue } from "../values/headers.ts";
import type { StoredMessage } from "../model/message.ts";
import type { HeaderList, Millis } from "../values/basics.ts";
import type { MessageState } from "../model/messageState.ts";
import type { Outcome } from "../model/attempt.ts";

/** The action that follows an attempt. */
export type NextAction = { kind: "delivered" } | { kind: "retry"; at: Millis } | { kind: "failed" };

type Attempt = {
  message: Pick<StoredMessage, "retries" | "retryDelay">;
  outcome: Pick<Outcome, "status" | "headers" | "isFinal">;
  /**
   * The number of retries made so far, without the retry that this attempt may cause. It is 0 after the first
   * attempt.
   */
  retried: number;
  now: Millis;
};

/**
 * Returns what follows from an attempt. A status from 200 to 299 means delivered. After any other outcome,
 * including no response, the message is retried while retries are left, unless the destination forbids it.
 * The wait is the first of these that exists: the time that the destination asks for, the retry delay of the
 * message, the default backoff.
 */
export function decideNextAction({ message, outcome, retried, now }: Attempt): NextAction {
  const { status, headers } = outcome;
  if (isSuccessStatus(status)) return { kind: "delivered" };
  if (retried >= message.retries || outcome.isFinal === true || forbidsRetry(outcome))
    return { kind: "failed" };
  return { kind: "retry", at: now + (requestedDelay(headers, now) ?? readRetryDelay(message, retried)) };
}

/**
 * Returns the default wait before the nth retry, `min(86400, e^(2.5 n))` seconds: 12 s, 2 min 28 s, 30 min 8
 * s, 6 h 7 min, then a day. The result is in whole milliseconds, without jitter.
 */
export const backoff = (n: number): Millis => Math.floor(Math.min(day, Math.exp(2.5 * n) * second));

const nonRetryable = ["Svc-NonRetryable-Error", "Upstash-NonRetryable-Error"].map(canonicalName);

/**
 * Reports whether a response forbids a retry. The response must have status 489 and also the header, under
 * either brand, regardless of the brand of the message.
 */
export const forbidsRetry = ({ status, headers }: Pick<Outcome, "status" | "headers">): boolean =>
  status === 489 && nonRetryable.some((name) => headerValue(headers, name)?.trim().toLowerCase() === "true");

const delayHeaders = [
  "Retry-After",
  "X-RateLimit-Reset",
  "X-RateLimit-Reset-Requests",
  "X-RateLimit-Reset-Tokens",
].map(canonicalName);

/**
 * Returns the wait that the destination asks for, from the first usable header; null if there is none. A
 * header that is malformed or asks for more than a day counts as absent, and the next header is used. A
 * malformed `Retry-After` of a proxy therefore does not hide the limit of the server behind it.
 */
function requestedDelay(headers: HeaderList, now: Millis): Millis | null {
  for (const name of delayHeaders) {
    const value = headerValue(headers, name)?.trim();
    const delay = value === undefined ? null : parseDelay(value, now);
    if (delay !== null && delay <= day) return delay;
  }
  return null;
}

/** Parses seconds, an RFC 1123 date, or a Go duration. A time in the past means 0. */
function parseDelay(value: string, now: Millis): Millis | null {
  if (/^[\d.]+$/.test(value)) return parseSeconds(value, now);
  return /^[a-z]{3}, \d/i.test(value) ? parseDate(value, now) : parseDuration(value);
}

/**
 * Parses a number of seconds. A number above a day that is a Unix time within a day of now is read as that
 * time, because many servers send `X-RateLimit-Reset` in this form. Any other number above a day is returned
 * unchanged, and is too long to be used.
 */
function parseSeconds(value: string, now: Millis): Millis | null {
  const duration = parseDuration(`${value}s`);
  if (duration === null || duration <= day || Math.abs(duration - now) > day) return duration;
  return Math.max(0, duration - now);
}

const rfc1123 = /^[a-z]{3}, \d{1,2} [a-z]{3} \d{4} \d\d:\d\d:\d\d GMT$/i;

/**
 * Returns the wait until an RFC 1123 date. The day of the week is not checked, because the rest determines
 * the time.
 */
function parseDate(value: string, now: Millis): Millis | null {
  const at = rfc1123.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}

/**
 * Returns the retry delay of the message or, if it has none, the default backoff. Its expression was checked
 * when the message was accepted. If a stored expression cannot be parsed, the default applies, so that one
 * message does not stop the others of its batch.
 */
export function readRetryDelay({ retryDelay }: Pick<StoredMessage, "retryDelay">, retried: number): Millis {
  if (retryDelay === null) return backoff(retried + 1);
  try {
    return evaluateRetryDelay(retryDelay, retried);
  } catch (error) {
    if (error instanceof Refusal) return backoff(retried + 1);
    throw error;
  }
}

/**
 * Returns how many attempts of a message count as retries. An attempt whose lease expired does not count, nor
 * does one that an operator ended, or whose reused connection ended without a response.
 */
export const countRetries = ({
  attempts,
  lostAttempts,
  endedAttempts = 0,
}: Pick<MessageState, "attempts" | "lostAttempts" | "endedAttempts">): number =>
  attempts - lostAttempts - endedAttempts;
