import type { Millis } from "../values/basics.ts";
import { second } from "../values/time.ts";

/** A destination fails if at least this many attempts in a row have failed. The first success ends that. */
export const failingAfter = 10;
/** The part of its usual share that a failing destination gets while others wait: at least one delivery. */
const reducedPart = 1 / 8;
/**
 * How long others count as waiting after one of them got no delivery. Waitlists are checked every second, so
 * destinations that still wait are noted again.
 */
const waitingTime: Millis = 2 * second;
/** The maximum number of destinations of which failures are known. The oldest are forgotten. */
const maxLanes = 10_000;

/** Returns how many deliveries a failing destination may have, if it could have this many otherwise. */
export const reduceShare = (share: number): number =>
  share > 0 ? Math.max(1, Math.floor(share * reducedPart)) : share;

/**
 * The failures of a destination in a row. `failures`: their number, up to `failingAfter`. `since` and `last`:
 * the times of the first and the latest one.
 */
export type LaneFailures = { failures: number; since: Millis; last: Millis };

/** A host whose last attempts have all failed. */
export type HostFailures = LaneFailures & { host: string };

/**
 * The destinations whose attempts all fail, as one node sees them. While messages of other destinations wait
 * for capacity, these get less of it. They are never cut off, and nothing else changes for their messages.
 */
export class FailingLanes {
  /** The attempts that have failed since the last success, by lane (`laneName`). */
  readonly #failures = new Map<string, LaneFailures>();
  #waitedAt: Millis = Number.NEGATIVE_INFINITY;

  /** Counts the outcome of an attempt. */
  count(lane: string, { hasSucceeded, now }: { hasSucceeded: boolean; now: Millis }): void {
    const known = this.#failures.get(lane);
    if (hasSucceeded) {
      if (known) this.#failures.delete(lane);
    } else if (known) {
      if (known.failures < failingAfter) known.failures++;
      known.last = now;
    } else {
      this.#failures.set(lane, { failures: 1, since: now, last: now });
      if (this.#failures.size > maxLanes) this.#forgetOldest();
    }
  }

  /** Reports whether all attempts to a destination fail. */
  isFailing(lane: string): boolean {
    return (this.#failures.get(lane)?.failures ?? 0) >= failingAfter;
  }

  /** The destinations whose last attempts have failed, by lane (`laneName`). */
  get all(): ReadonlyMap<string, LaneFailures> {
    return this.#failures;
  }

  /**
   * Returns the rule at this time. `noteWaiting` notes that a message got no capacity for its destination; a
   * failing destination does not count as waiting. `isReduced` reports whether a destination gets less.
   */
  at(now: Millis): { noteWaiting(lane: string): void; isReduced(lane: string): boolean } {
    return {
      noteWaiting: (lane) => {
        if (!this.isFailing(lane)) this.#waitedAt = now;
      },
      isReduced: (lane) => Math.abs(now - this.#waitedAt) < waitingTime && this.isFailing(lane),
    };
  }

  #forgetOldest(): void {
    const [oldest] = this.#failures.keys();
    if (oldest !== undefined) this.#failures.delete(oldest);
  }
}
