/**
 * Wakes the load when a message of an open loop is due. Timers of the event loop keep whole milliseconds, which is more than
 * what is to be measured; a thread that sleeps on a futex is late by less than a tenth of that.
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
  for (let wait = time - microseconds(); wait > 0; wait = time - microseconds()) Atomics.wait(never, 0, 0, wait / 1e3);
}
