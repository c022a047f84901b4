/**
 * An open loop: messages are due at a fixed rate per second, regardless of how long answers take. Times are
 * in microseconds.
 */
export type Pace = { startAt: number; rate: number; messages: number };

/** Returns when message `number` must be sent. */
export function dueAt({ startAt, rate }: Pace, number: number): number {
  return startAt + Math.round((number * 1e6) / rate);
}
