import { randomFillSync } from "node:crypto";
import type { Duplex } from "node:stream";
import { LongWork } from "../core/fairness/longWork.ts";
import type { Millis } from "../core/model/message.ts";

/** The time, and waiting for it. Simulations bring their own. */
export interface Clock {
  now(): Millis;
  /**
   * Ends at `until`, or as soon as `wake` is aborted. Never rejects. A clock that is put back does not prolong it; one that is put
   * forward may shorten it, as a machine that was asleep has missed what was due.
   */
  sleep(until: Millis, wake: AbortSignal): Promise<void>;
}

/** The time of this machine. */
export const systemClock: Clock = { now: () => Date.now(), sleep };

function sleep(until: Millis, wake: AbortSignal): Promise<void> {
  // Measured by a clock that nobody sets, so that it takes as long as it should even if the other one is put back meanwhile.
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
      if (left > 0) timer = setTimeout(wait, Math.min(left, left === Infinity ? maxTimer : maxTimerStep));
      else end();
    };
    wake.addEventListener("abort", end);
    wait();
  });
}

/** Timers of Node stand still while the machine is asleep, and do not know that its clock was set: so often it is looked at. */
const maxTimerStep: Millis = 10_000;

/** A stopwatch that nobody sets: milliseconds since some moment, with fractions. */
export const elapsed = (): Millis => performance.now();

/** Returns what shares the event loop of this process. There is to be one for all that it does. */
export const createLongWork = (): LongWork => new LongWork({ soon: (run) => void setImmediate(run), elapsed });

/** What a timer of Node can count to; a longer one would ring at once. */
const maxTimer: Millis = 2 ** 31 - 1;

/** Rings once after `delay`, at most 24.8 days, unless it is silenced by calling what it returns. Costs about 0.3 µs. */
export function alarm(delay: Millis, callback: () => void): () => void {
  const timer = setTimeout(callback, Math.min(delay, maxTimer));
  return () => clearTimeout(timer);
}

/** Rings whenever nothing has come or gone over a socket for so long, until it is silenced by calling what it returns. */
export function idleAlarm(socket: Duplex & { setTimeout(after: Millis): unknown }, after: Millis, callback: () => void): () => void {
  const restart = (): void => {
    // By itself it would not ring a second time before anything has come or gone.
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

/** A uniform number from 0 up to, not including, 1, with 53 bits that nobody can foretell. */
export function systemRandom(): number {
  if (drawnCount === randomPool.length) {
    randomFillSync(randomPool);
    drawnCount = 0;
  }
  const highBits = (randomPool[drawnCount++] ?? 0) >>> 5;
  const lowBits = (randomPool[drawnCount++] ?? 0) >>> 6;
  return (highBits * 2 ** 26 + lowBits) / 2 ** 53;
}

/** Random bits are fetched for 512 numbers at a time: one call for each would cost ten times as much. */
const randomPool = new Uint32Array(1024);
let drawnCount = randomPool.length;
