import type { Outcome } from "../core/model/attempt.ts";
import type { Millis } from "../core/values/basics.ts";
import type { AlarmClock } from "../clock/clock.ts";
import type { DeliveryCall } from "./deliver.ts";
import type { Running } from "./runningDeliveries.ts";

/**
 * How long a step waits for the response to the call in which it was posted. Endpoints respond when their
 * post has been accepted, usually within a millisecond.
 */
const longestWait: Millis = 50;

/** `end` is called instead of `begin` if nothing may begin when the wait ends, or if the call is aborted. */
type Following = {
  begin: () => DeliveryCall;
  mayBegin: () => boolean;
  end: (why: "aborted" | "held") => Outcome;
};

/**
 * Begins a call when the call that it follows has ended, so that the endpoint is not called again while it is
 * still responding. A call whose response does not end delays what was posted in it by at most `longestWait`,
 * and only once. A call that is aborted before its time never begins.
 */
export function beginAfter(followed: Running, clock: AlarmClock, following: Following): DeliveryCall {
  const { begin, mayBegin, end } = following;
  const now = clock.now();
  const left = (followed.followedAt ??= now) + longestWait - now;
  if (left <= 0) return begin();
  const { promise: outcome, resolve } = Promise.withResolvers<Outcome>();
  let call: DeliveryCall | null = null;
  let isWaiting = true;
  const finishWait = (isAborted: boolean): void => {
    if (!isWaiting) return;
    isWaiting = false;
    cancel();
    if (isAborted || !mayBegin()) return resolve(end(isAborted ? "aborted" : "held"));
    call = begin();
    resolve(call.outcome);
  };
  const cancel = clock.alarm(left, () => finishWait(false));
  void followed.call.outcome.then(() => finishWait(false));
  return { outcome, abort: () => (isWaiting ? finishWait(true) : call?.abort()) };
}
