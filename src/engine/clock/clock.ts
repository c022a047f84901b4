import { randomFillSync } from "node:crypto";
import type { Duplex } from "node:stream";
import { LongWork } from "../core/node/longWork.ts";
import type { Millis } from "../core/values/basics.ts";

/** The time, and waiting for it. Simulations have their own. */
export interface Clock {
  now(): Millis;
  /**
   * Resolves at `until` or up to 1 ms later, or as soon as `wake` is aborted. Never rejects. If the clock is
   * set back, the wait does not become longer. If the clock is set forward, the wait may become shorter,
   * because a machine that was asleep must catch up on due times and looks the same.
   */
  sleep(until: Millis, wake: AbortSignal): Promise<void>;
}

/** A clock with alarms, which cost less than waiting. */
export interface AlarmClock extends Clock {
  /** Calls `callback` once after `delay`. Returns a function that cancels the call. */
  alarm(delay: Millis, callback: () => void): () => void;
}

/** The reason of an abort that only ends a wait. Without a reason, each abort makes an exception. */
export const woken = "woken";

/** The clock of this machine. */
export const systemClock: AlarmClock = { now: () => Date.now(), sleep, alarm };

function sleep(until: Millis, wake: AbortSignal): Promise<void> {
  // Measured by a monotonic clock too, so that setting the system clock back does not prolong the wait.
  const endsAt = performance.now() + until - Date.now();
  return new Promise((resolve) => {
    if (wake.aborted) return resolve();
    let timer: NodeJS.Timeout;
    const end = (): void => {
      clearTimeout(timer);
      wake.removeEventListener("abort", end);
      resolve();
    };
    const wait = (): void => {
      const left = Math.min(endsAt - performance.now(), until - Date.now());
      if (left <= 0) return end();
      // Node counts whole milliseconds, so a timer may fire up to 1 ms early, and would be set again.
      timer = setTimeout(wait, left === Infinity ? maxTimer : Math.min(Math.ceil(left), maxTimerStep) + 1);
    };
    wake.addEventListener("abort", end);
    wait();
  });
}

/**
 * The longest step of a wait. Node's timers stop while the machine is asleep and do not notice a changed
 * clock, so the clock is checked after every step.
 */
const maxTimerStep: Millis = 10_000;

/** Returns milliseconds since an arbitrary moment, with fractions, from a monotonic clock. */
export const elapsed = (): Millis => performance.now();

/** Returns the scheduler that shares the event loop among long tasks. A process must have only one. */
export const createLongWork = (): LongWork =>
  new LongWork({ soon: (run) => void setImmediate(run), elapsed });

/** The longest delay of a Node timer; a longer one would fire at once. */
const maxTimer: Millis = 2 ** 31 - 1;

/**
 * Calls `callback` once after `delay`, which is at most 24.8 days. Returns a function that cancels the call.
 * A call of `alarm` costs about 0.3 µs.
 */
export function alarm(delay: Millis, callback: () => void): () => void {
  const timer = setTimeout(callback, Math.min(delay, maxTimer));
  return () => clearTimeout(timer);
}

/**
 * Calls `callback` each time a socket has been idle for `after` milliseconds. Returns a function that stops
 * this.
 */
export function idleAlarm(
  socket: Duplex & { setTimeout(after: Millis): unknown },
  after: Millis,
  callback: () => void,
): () => void {
  const restart = (): void => {
    // Without this, the socket would report no second timeout before it is used again.
    socket.setTimeout(after);
    callback();
  };
  socket.setTimeout(after);
  socket.on("timeout", restart);
  return () => {
    socket.setTimeout(0);
    socket.off("timeout", restart);
  };
}

/** Returns a uniform, unpredictable random number of 53 bits, at least 0 and below 1. */
export function systemRandom(): number {
  if (drawnCount === randomPool.length) {
    randomFillSync(randomPool);
    drawnCount = 0;
  }
  const highBits = (randomPool[drawnCount++] ?? 0) >>> 5;
  const lowBits = (randomPool[drawnCount++] ?? 0) >>> 6;
  return (highBits * 2 ** 26 + lowBits) / 2 ** 53;
}

/** Random bits are fetched for 512 numbers at a time. A call per number would cost ten times as much. */
const randomPool = new Uint32Array(1024);
let drawnCount = randomPool.length;
