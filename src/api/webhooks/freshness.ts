import { minute, second } from "../../core/values/time.ts";
import type { Millis } from "../../core/model/message.ts";
import { CallRejection } from "./verificationResult.ts";

/** A time that a sender gave, and how far it may be from ours. `name` is where it stands. */
export type SignedTime = { name: string; at: Millis; now: Millis; tolerance: Millis };

/** Rejects a call that was signed too long ago, or in the future: it may be one that was overheard, and is sent again. */
export function checkFreshness({ name, at, now, tolerance }: SignedTime): void {
  const age = now - at;
  if (Math.abs(age) <= tolerance) return;
  const distance = `${toSeconds(Math.abs(age))} seconds ${age > 0 ? "ago" : "in the future"}`;
  throw new CallRejection(`${name}: signed ${distance}, of which the limit is ${toSeconds(tolerance)}; is one of the clocks wrong?`);
}

/** A time written as a whole number of units since 1970; rejects anything else. */
export function parseTimestamp(name: string, text: string, unit: Millis = second): Millis {
  if (!/^\d{1,15}$/.test(text))
    throw new CallRejection(`${name}: has no timestamp, a whole number of ${unit === second ? "seconds" : "milliseconds"} since 1970`);
  return Number(text) * unit;
}

/** What the senders who publish a tolerance mostly ask for. */
export const defaultTolerance: Millis = 5 * minute;

const toSeconds = (time: Millis): number => Math.round(time / second);
