/**
 * Wakes the load when a message of an open loop is due. Timers of the event loop have a resolution of 1 ms,
 * which is too coarse. A thread that sleeps on a futex is less than 0.1 ms late.
 */
import { parentPort } from "node:worker_threads";
import { microseconds } from "./clock.ts";
import { dueAt, type Pace } from "./pace.ts";

const never = new Int32Array(new SharedArrayBuffer(4));

parentPort?.once("message", (pace: Pace) => {
  for (let number = 0; number < pace.messages; number += 1) {
    sleepUntil(dueAt(pace, number));
    parentPort?.postMessage(null);
  }
});
parentPort?.postMessage("ready");

function sleepUntil(time: number): void {
  for (let wait = time - microseconds(); wait > 0; wait = time - microseconds())
    Atomics.wait(never, 0, 0, wait / 1e3);
}
