import { spans } from "../../../../src/engine/core/values/limits.ts";
import type { Limiter } from "../../../../src/engine/core/model/limiter.ts";

import type { LimiterCheckContext } from "./limiterContext.ts";
import type { AssertHolds } from "../observedBatch.ts";
import type { PossibleLimits } from "./possibleLimits.ts";
import { accountWaitlist, isEndpointWaitlist } from "./waitlistNames.ts";

/**
 * Checks that messages waiting for an open gate, or for one that opens at a known time, are looked at in
 * time.
 */
export function checkDueTime(limiter: Limiter, { assertHolds, now }: LimiterCheckContext): void {
  const { id, waiting, paused, parallelism, running, rate, windowStart, windowUsed, period, dueAt } = limiter;
  if (waiting === 0) {
    const isKept =
      running + (limiter.waitingDownstream ?? 0) > 0 ||
      paused ||
      limiter.pinned.parallelism ||
      limiter.pinned.rate;
    return assertHolds(isKept || dueAt !== null, `an unused limiter is removed eventually: ${id}`);
  }
  const waitingDownstream = limiter.waitingDownstream ?? 0;
  const hasPlace =
    !paused &&
    (parallelism === null || running + waitingDownstream < parallelism) &&
    (rate === null || rate > waitingDownstream);
  const isWindowFull = rate !== null && windowUsed + waitingDownstream >= rate && now < windowStart + period;
  // The limit of an account may have changed, which does not update the rows of its endpoints. If all places
  // belong to messages that wait for the account, the change is noticed when one of these moves.
  const closed = isEndpointWaitlist(id) && running > 0 ? now + spans.waitlistCheck : Infinity;
  const opensAt = !hasPlace ? closed : isWindowFull ? windowStart + period : now;
  assertHolds(
    (dueAt ?? Infinity) <= opensAt + spans.limiterCheck,
    `no message waits forever: ${id} opens at ${opensAt} and is due at ${dueAt}`,
  );
}

/** Records states that a run must contain to be meaningful. */
export function coverStates(
  { id, waiting, paused, parallelism, running, rate, windowUsed }: Limiter,
  { cover }: LimiterCheckContext,
): void {
  const kind = id.startsWith("queue:")
    ? "queue"
    : id === accountWaitlist
      ? "account"
      : isEndpointWaitlist(id)
        ? "endpoint"
        : "key";
  if (running > 1) cover(`${kind} with several at once`);
  if (waiting === 0) return;
  if (paused) cover(`${kind} paused with waiting messages`);
  if (!paused && parallelism !== null && running >= parallelism) cover(`${kind} full with waiting messages`);
  if (!paused && rate !== null && windowUsed >= rate)
    cover(`${kind} with a full window and waiting messages`);
}

/** Checks that pinned limits do not follow the messages. */
export function checkPins({
  before,
  after,
  limits,
  assertHolds,
}: {
  before: Limiter;
  after: Limiter;
  limits: PossibleLimits;
  assertHolds: AssertHolds;
}): void {
  for (const limit of ["parallelism", "rate"] as const) {
    const isPinned = before.pinned[limit] && after.pinned[limit] && !limits.isPinned;
    assertHolds(
      !isPinned || before[limit] === after[limit],
      `a pinned limit does not change: ${limit} of ${after.id}, ${before[limit]} → ${after[limit]}`,
    );
  }
}

/** Checks that a removed limiter was unused. */
export function checkForgotten(
  limiter: Limiter,
  { assertHolds, now }: Pick<LimiterCheckContext, "assertHolds" | "now">,
): void {
  const { id, running, waiting, paused, pinned, updatedAt } = limiter;
  const isIdle = running === 0 && waiting === 0 && !paused && !pinned.parallelism && !pinned.rate;
  assertHolds(isIdle && now >= updatedAt + spans.idleKey, `only an unused limiter is removed: ${id}`);
  const isWindowOver =
    limiter.rate === null || limiter.windowUsed === 0 || now >= limiter.windowStart + limiter.period;
  assertHolds(isWindowOver, `a limiter is not removed before its window has ended: ${id}`);
}
