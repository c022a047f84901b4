import type { Limiter } from "../model/limiter.ts";
import type { Millis } from "../values/basics.ts";
import type { Schedule } from "../model/schedule.ts";
import { nextCronTime } from "../values/cron.ts";

// If the clock was far ahead for a while and is right again, the times that the wrong clock made move back by
// its lead. See docs/decisions/0050.

/** The clock, and the latest time that the store used, which is ahead of it. */
export type ClockLead = { clock: Millis; usedAt: Millis };

/**
 * Moves a time that the wrong clock made back by its lead. The rest of a delay stays the same. The result is
 * not before the clock.
 */
export const shiftTime = ({ clock, usedAt }: ClockLead, time: Millis): Millis =>
  Math.max(clock, time - (usedAt - clock));

/**
 * Reports whether the wrong clock made a time, if nothing tells when it was made: it is nearer to the latest
 * time used than to the clock.
 */
export const isOfWrongClock = ({ clock, usedAt }: ClockLead, time: Millis): boolean =>
  time > clock + (usedAt - clock) / 2;

/** Returns a limiter with the times that the wrong clock made moved back, or null if it has none. */
export function shiftLimiter(lead: ClockLead, limiter: Limiter): Limiter | null {
  const { dueAt, windowStart, lastDueAt } = limiter;
  const shift = (time: Millis): Millis => (isOfWrongClock(lead, time) ? shiftTime(lead, time) : time);
  const shifted = {
    dueAt: dueAt === null ? null : shift(dueAt),
    windowStart: shift(windowStart),
    lastDueAt: shift(lastDueAt),
  };
  const isSame =
    shifted.dueAt === dueAt && shifted.windowStart === windowStart && shifted.lastDueAt === lastDueAt;
  return isSame ? null : { ...limiter, ...shifted };
}

/**
 * Returns a schedule that fires next at the first time of its expression after the clock. Returns null if it
 * fires before, is paused, or is damaged.
 */
export function reschedule({ clock }: ClockLead, schedule: Schedule): Schedule | null {
  if (schedule.damaged || schedule.dueAt === null || schedule.dueAt <= clock) return null;
  const dueAt = nextCronTime(schedule.cron, clock);
  return dueAt === schedule.dueAt ? null : { ...schedule, dueAt };
}
