import { parseGoDuration } from "../values/duration.ts";
import { isSuccessStatus } from "../values/status.ts";
import { day, second } from "../values/time.ts";
import { Refusal } from "../values/errors.ts";
import { evaluateRetryDelay } from "../values/expression.ts";
import { canonicalName, headerValue } from "../values/headers.ts";
import type { StoredMessage, HeaderList, MessageState, Millis, Outcome } from "../model/message.ts";

/** What follows from an attempt. */
export type NextAction = { kind: "delivered" } | { kind: "retry"; at: Millis } | { kind: "failed" };

type Attempt = {
  message: Pick<StoredMessage, "retries" | "retryDelay">;
  outcome: Pick<Outcome, "status" | "headers" | "isFinal">;
  /** Retries already made, not counting the one this may lead to: 0 after the first attempt. */
  retried: number;
  now: Millis;
};

/**
 * Judges an attempt: 200 to 299 is delivered; anything else, no answer included, is tried again while retries are left, unless
 * the destination forbids it. The wait is what the destination asks for, else the message's retry delay, else the default backoff.
 */
export function decideNextAction({ message, outcome, retried, now }: Attempt): NextAction {
  const { status, headers } = outcome;
  if (isSuccessStatus(status)) return { kind: "delivered" };
  if (retried >= message.retries || outcome.isFinal === true || forbidsRetry(outcome)) return { kind: "failed" };
  return { kind: "retry", at: now + (requestedDelay(headers, now) ?? readOwnDelay(message, retried)) };
}

/** `min(86400, e^(2.5 n))` seconds before the nth retry: 12 s, 2 min 28 s, 30 min 8 s, 6 h 7 min, then a day. In whole milliseconds, no jitter. */
export const backoff = (n: number): Millis => Math.floor(Math.min(day, Math.exp(2.5 * n) * second));

const nonRetryable = ["Svc-NonRetryable-Error", "Upstash-NonRetryable-Error"].map(canonicalName);

/** Status 489 with the header under either brand, whichever the message was published with. Neither does it alone. */
const forbidsRetry = ({ status, headers }: Attempt["outcome"]): boolean =>
  status === 489 && nonRetryable.some((name) => headerValue(headers, name)?.trim().toLowerCase() === "true");

const delayHeaders = ["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Reset-Requests", "X-RateLimit-Reset-Tokens"].map(canonicalName);

/**
 * The wait that the destination asks for, by the first of its headers that can be used. One that is malformed or asks for more
 * than a day counts as absent, so the next is looked at: a proxy's odd `Retry-After` shall not hide the limit it stands before.
 */
function requestedDelay(headers: HeaderList, now: Millis): Millis | null {
  for (const name of delayHeaders) {
    const value = headerValue(headers, name)?.trim();
    const delay = value === undefined ? null : parseDelay(value, now);
    if (delay !== null && delay <= day) return delay;
  }
  return null;
}

/** Seconds, an RFC 1123 date, or a Go duration; a time that has passed means at once. */
function parseDelay(value: string, now: Millis): Millis | null {
  if (/^[\d.]+$/.test(value)) return parseSeconds(value, now);
  return /^[a-z]{3}, \d/i.test(value) ? parseDate(value, now) : parseGoDuration(value);
}

/**
 * A number is a count of seconds. One above a day cannot be meant so, and if it is a Unix time within a day of now, it is
 * that: many servers send `X-RateLimit-Reset` in this form. Any other is left as it is, too long to be used.
 */
function parseSeconds(value: string, now: Millis): Millis | null {
  const duration = parseGoDuration(`${value}s`);
  if (duration === null || duration <= day || Math.abs(duration - now) > day) return duration;
  return Math.max(0, duration - now);
}

const rfc1123 = /^[a-z]{3}, \d{1,2} [a-z]{3} \d{4} \d\d:\d\d:\d\d GMT$/i;

/** The day of the week is not checked; the rest settles the moment. */
function parseDate(value: string, now: Millis): Millis | null {
  const at = rfc1123.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}

/**
 * An expression was checked when the message was accepted. Should one be stored that no longer parses, the default applies:
 * one message must not stop the others it is settled with.
 */
function readOwnDelay({ retryDelay }: Attempt["message"], retried: number): Millis {
  if (retryDelay === null) return backoff(retried + 1);
  try {
    return evaluateRetryDelay(retryDelay, retried);
  } catch (error) {
    if (error instanceof Refusal) return backoff(retried + 1);
    throw error;
  }
}

/** Returns how many attempts of a message count as retries. An attempt whose lease expired does not count. */
export const countRetries = ({ attempts, lostAttempts }: Pick<MessageState, "attempts" | "lostAttempts">): number =>
  attempts - lostAttempts;
