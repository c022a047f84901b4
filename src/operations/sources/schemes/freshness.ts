import { minute, second } from "../../../engine/core/values/time.ts";
import type { Millis } from "../../../engine/core/values/basics.ts";
import { CallRejection } from "./verificationResult.ts";

/**
 * A time that a sender signed, and how far it may differ from this server's clock. `name` is the field that
 * has it.
 */
export type SignedTime = { name: string; at: Millis; now: Millis; tolerance: Millis };

/**
 * Rejects a call that was signed too long ago or in the future. It may have been intercepted and sent again.
 */
export function assertFresh({ name, at, now, tolerance }: SignedTime): void {
  const age = now - at;
  if (Math.abs(age) <= tolerance) return;
  const distance = `${toSeconds(Math.abs(age))} seconds ${age > 0 ? "ago" : "in the future"}`;
  throw new CallRejection(
    `${name}: signed ${distance}, which exceeds the limit of ${toSeconds(tolerance)}; check both clocks`,
  );
}

/** Returns a time that is written as a whole number of units since 1970. Rejects any other text. */
export function parseTimestamp(name: string, text: string, unit: Millis = second): Millis {
  if (!/^\d{1,15}$/.test(text))
    throw new CallRejection(
      `${name}: has no timestamp; it must be a whole number of ` +
        `${unit === second ? "seconds" : "milliseconds"} since 1970`,
    );
  return Number(text) * unit;
}

/** The most common tolerance among senders that publish one. */
export const defaultTolerance: Millis = 5 * minute;

const toSeconds = (time: Millis): number => Math.round(time / second);
