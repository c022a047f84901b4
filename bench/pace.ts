/** An open loop: message after message at a fixed rate a second, however long the answers take. Times in microseconds. */
export type Pace = { startAt: number; rate: number; messages: number };

/** When message `number` is to be sent. */
export function dueAt({ startAt, rate }: Pace, number: number): number {
  return startAt + Math.round((number * 1e6) / rate);
}
