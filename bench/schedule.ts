/** An open loop: message after message at a fixed rate a second, however long the answers take. Times in microseconds. */
export type Schedule = { startAt: number; rate: number; messages: number };

/** When message `number` of the schedule is to be sent. */
export function dueAt({ startAt, rate }: Schedule, number: number): number {
  return startAt + Math.round((number * 1e6) / rate);
}
