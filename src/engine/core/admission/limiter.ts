import type { Draft, Key, Moment } from "../decision/command.ts";
import { defaults, spans } from "../values/limits.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { FlowControl } from "../model/sendSettings.ts";
import type { Limiter } from "../model/limiter.ts";
import type { LimiterGate } from "./gate.ts";
import { formatGate, parseGate } from "./gate.ts";

// A limiter is the row of a gate: its limits, its counters, and the time at which its waitlist must be
// checked. Queues, flow-control keys and the limits of accounts are limiters. This file has the arithmetic of
// one row; `counters.ts` decides which event changes which counter.

/** The limiter of an account that belongs to a gate. */
export type LimiterName = { account: AccountId; gate: LimiterGate };

/**
 * Returns a limiter that has counted nothing. A new queue has a parallelism of 1; any other gate has no
 * limits yet.
 */
export function newLimiter({ account, gate }: LimiterName, now: Millis): Limiter {
  return {
    account,
    id: formatGate(gate),
    createdAt: now,
    updatedAt: now,
    dueAt: null,
    paused: false,
    parallelism: gate.kind === "queue" ? 1 : null,
    running: 0,
    waiting: 0,
    rate: null,
    period: defaults.period,
    windowStart: now,
    windowUsed: 0,
    lastDueAt: now,
    pinned: { parallelism: false, rate: false },
  };
}

/** Returns the key of a limiter among the rows of `limiters`. */
export const toLimiterKey = ({ account, gate }: LimiterName): Key => [account, formatGate(gate)];

/** Returns the limiter of a gate, or undefined if it does not exist. */
export const findLimiter = (draft: Draft, name: LimiterName): Limiter | undefined =>
  draft.get("limiters", ...toLimiterKey(name));

/** Returns the limiter of a gate, or a new one if it does not exist. */
export const readLimiter = (draft: Draft, { now }: Pick<Moment, "now">, name: LimiterName): Limiter =>
  findLimiter(draft, name) ?? newLimiter(name, now);

/**
 * Returns the rate period of a limiter at `now`. A new period starts at the first look after the last period
 * has ended. A clock that was set back does not prolong a period.
 */
export function readWindow(
  { windowStart, windowUsed, period }: Limiter,
  now: Millis,
): Pick<Limiter, "windowStart" | "windowUsed"> {
  return now >= windowStart + period
    ? { windowStart: now, windowUsed: 0 }
    : { windowStart: Math.min(windowStart, now), windowUsed };
}

/** Returns a limiter whose window starts now, and in which no message has started. */
export const restartWindow = (limiter: Limiter, now: Millis): Limiter => ({
  ...limiter,
  windowStart: now,
  windowUsed: 0,
});

/** Returns how many more messages the limits allow now. */
export function freeRoom(limiter: Limiter, now: Millis): number {
  if (limiter.paused) return 0;
  return Math.max(0, Math.min(parallelRoom(limiter), rateRoom(limiter, now)));
}

/** Returns how many more messages without a reservation may pass. */
export const unreservedRoom = (limiter: Limiter, now: Millis): number =>
  Math.max(0, freeRoom(limiter, now) - (limiter.waitingDownstream ?? 0));

/** One limit that lets no further message pass. `used` includes the slots that are reserved. */
export type Closure =
  | { by: "pause" }
  | { by: "parallelism"; used: number; limit: number }
  | { by: "rate"; used: number; limit: number; until: Millis };

/**
 * Returns everything that keeps a message without a reservation from passing now. The list is empty if and
 * only if `unreservedRoom` is above 0.
 */
export function listClosures(limiter: Limiter, now: Millis): Closure[] {
  const { paused, running, parallelism, rate, period, waitingDownstream: reserved = 0 } = limiter;
  const closures: Closure[] = paused ? [{ by: "pause" }] : [];
  if (parallelism !== null && parallelRoom(limiter) <= reserved)
    closures.push({ by: "parallelism", used: running + reserved, limit: parallelism });
  if (rate !== null && rateRoom(limiter, now) <= reserved) {
    const { windowStart, windowUsed } = readWindow(limiter, now);
    closures.push({ by: "rate", used: windowUsed + reserved, limit: rate, until: windowStart + period });
  }
  return closures;
}

const rateRoom = (limiter: Limiter, now: Millis): number =>
  limiter.rate === null ? Infinity : limiter.rate - readWindow(limiter, now).windowUsed;

const parallelRoom = ({ parallelism, running }: Limiter): number =>
  parallelism === null ? Infinity : parallelism - running;

/**
 * Writes a limiter with the time at which a claim must check it: when its waitlist can move, or when the
 * limiter expires. The limiter of an endpoint is removed as soon as it counts nothing, because an account may
 * send to any number of endpoints.
 */
export function putLimiter(draft: Draft, { now }: Pick<Moment, "now">, limiter: Limiter): void {
  const { kind } = parseGate(limiter.id);
  if (kind === "endpoint" && isIdle(limiter)) return draft.drop("limiters", limiter.account, limiter.id);
  const updatedAt = kind === "queue" ? limiter.updatedAt : now;
  const windowStart = Math.min(limiter.windowStart, now);
  draft.put("limiters", { ...limiter, updatedAt, windowStart, dueAt: nextCheck(limiter, kind, now) });
}

function nextCheck(limiter: Limiter, kind: LimiterGate["kind"] | "capacity", now: Millis): Millis | null {
  const idle = kind === "queue" ? spans.idleQueue : spans.idleKey;
  if (limiter.waiting === 0)
    return isIdle(limiter) ? Math.max(now + idle, limiter.lastDueAt + idle, windowEnd(limiter)) : null;
  if (unreservedRoom(limiter, now) > 0) return now;
  // Messages with a reservation pass next here. When one of them moves, the limiter is written again.
  const reserved = limiter.waitingDownstream ?? 0;
  const isOnlyRateClosed =
    !limiter.paused && parallelRoom(limiter) > reserved && limiter.rate !== null && limiter.rate > reserved;
  if (isOnlyRateClosed) return readWindow(limiter, now).windowStart + limiter.period;
  // A command that changes the limit of an account does not know the endpoints of the account, so the limiter
  // of a busy endpoint is checked at intervals. If all slots are reserved by messages in the waitlist of the
  // account, the limiter is written when one of them moves. The number of checked limiters is therefore at
  // most the number of deliveries in flight.
  return kind === "endpoint" && limiter.running > 0 ? now + spans.waitlistCheck : null;
}

/**
 * Returns the end of the current rate period. If the row of a key were removed earlier, the key would allow
 * more than its rate.
 */
const windowEnd = ({ rate, windowStart, period }: Limiter): Millis =>
  rate === null ? 0 : windowStart + period;

/**
 * Reports whether a limiter counts nothing, is not paused and has no pinned limits. The next message would
 * create the same limiter.
 */
export const isIdle = ({ running, waiting, waitingDownstream = 0, paused, pinned }: Limiter): boolean =>
  running === 0 && waiting === 0 && waitingDownstream === 0 && !paused && !pinned.parallelism && !pinned.rate;

/** Returns a limiter with the limits of the message that was accepted last. Pinned limits stay. */
export function withLimits(
  limiter: Limiter,
  { parallelism, rate, period }: Omit<FlowControl, "key">,
  now: Millis,
): Limiter {
  const newRate = { rate, period: period ?? defaults.period };
  const isSameRate = limiter.rate === newRate.rate && limiter.period === newRate.period;
  return {
    ...limiter,
    ...(limiter.pinned.parallelism ? {} : { parallelism }),
    ...(limiter.pinned.rate || isSameRate ? {} : { ...readWindow(limiter, now), ...newRate }),
  };
}

/** Returns a limiter that counts one more delivery, which starts now. */
export function countDelivery(limiter: Limiter, now: Millis): Limiter {
  const { windowStart, windowUsed } = readWindow(limiter, now);
  return { ...limiter, running: limiter.running + 1, windowStart, windowUsed: windowUsed + 1 };
}

/** Writes a limiter that was changed by a request and returns it as it is stored. */
export function putChanged(draft: Draft, moment: Moment, limiter: Limiter): Limiter {
  putLimiter(draft, moment, { ...limiter, updatedAt: moment.now });
  return draft.get("limiters", limiter.account, limiter.id) ?? limiter;
}
