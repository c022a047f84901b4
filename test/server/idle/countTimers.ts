/** Loaded before a server: writes a line to `TIMERS_FILE` for each timer, with its delay and its caller. */
import { appendFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";

const file = process.env["TIMERS_FILE"] ?? "";

function note(delay: unknown): void {
  const time = typeof delay === "number" ? delay : 0;
  const [, , , caller = ""] = new Error("a timer").stack?.split("\n") ?? [];
  appendFileSync(file, `${time} ${caller.trim()}\n`);
}

const noted = <F extends (...given: never[]) => unknown>(set: F, delayAt: number): F =>
  Object.assign((...given: Parameters<F>) => {
    note(given[delayAt]);
    return set(...given);
  }, set);

globalThis.setTimeout = timers.setTimeout = noted(timers.setTimeout, 1);
globalThis.setInterval = timers.setInterval = noted(timers.setInterval, 1);
promises.setTimeout = noted(promises.setTimeout, 0);
syncBuiltinESMExports();

// While the clock of a machine is corrected, a wait takes another timer for its rest.
Date.now = () => Math.floor(performance.timeOrigin + performance.now());
