import type { Millis } from "../values/basics.ts";
import { minute } from "../values/time.ts";

/** The failed attempts to authenticate from one origin. `since` is the time of the first attempt. */
export type Failures = { count: number; since: Millis };

/**
 * The number of attempts that may fail in a window. After further failures, the caller must wait for the end
 * of the window.
 */
export const maxFailures = 20;
const window: Millis = minute;

const isOver = ({ since }: Failures, now: Millis): boolean => now < since || now >= since + window;

/** Returns the failures after another failed attempt. */
export function addFailure(known: Failures | undefined, now: Millis): Failures {
  return !known || isOver(known, now)
    ? { count: 1, since: now }
    : { count: known.count + 1, since: known.since };
}

/** Returns how long a caller with these failures must wait; 0 if it need not wait. */
export function lockoutRemaining(known: Failures, now: Millis): Millis {
  return known.count <= maxFailures || isOver(known, now) ? 0 : known.since + window - now;
}
