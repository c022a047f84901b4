import { minute, second } from "../../core/values/time.ts";
import type { Millis } from "../../core/model/message.ts";
import { Rejected } from "./verdict.ts";

/** A time that a sender gave, and how far it may be from ours. `name` is where it stands. */
export type Stamp = { name: string; at: Millis; now: Millis; tolerance: Millis };

/** Rejects a call that was signed too long ago, or in the future: it may be one that was overheard, and is sent again. */
export function checkFreshness({ name, at, now, tolerance }: Stamp): void {
  const age = now - at;
  if (Math.abs(age) <= tolerance) return;
  const far = `${secondsOf(Math.abs(age))} seconds ${age > 0 ? "ago" : "in the future"}`;
  throw new Rejected(`${name}: signed ${far}, of which the limit is ${secondsOf(tolerance)}; is one of the clocks wrong?`);
}

/** A time written as a whole number of units since 1970; rejects anything else. */
export function stampOf(name: string, text: string, unit: Millis = second): Millis {
  if (!/^\d{1,15}$/.test(text))
    throw new Rejected(`${name}: has no timestamp, a whole number of ${unit === second ? "seconds" : "milliseconds"} since 1970`);
  return Number(text) * unit;
}

/** What the senders who publish a tolerance mostly ask for. */
export const usualTolerance: Millis = 5 * minute;

const secondsOf = (time: Millis): number => Math.round(time / second);
