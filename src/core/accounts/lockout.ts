import type { Millis } from "../model/message.ts";
import { minute } from "../values/time.ts";

/** Failed tries to prove something, from one place, since the first of them. */
export type Failures = { count: number; since: Millis };

/** So many may fail in a window; those that fail beyond are told to wait for its end. */
export const maxFailures = 20;
const window: Millis = minute;

const isOver = ({ since }: Failures, now: Millis): boolean => now < since || now >= since + window;

/** What is known once another try has failed. */
export function addFailure(known: Failures | undefined, now: Millis): Failures {
  return !known || isOver(known, now) ? { count: 1, since: now } : { count: known.count + 1, since: known.since };
}

/** For how long a try that failed is told to wait; 0: not at all. */
export function lockoutRemaining(known: Failures, now: Millis): Millis {
  return known.count <= maxFailures || isOver(known, now) ? 0 : known.since + window - now;
}
