import type { Routes } from "../../api/schema.ts";
import { formatCount } from "../../parts/words.ts";

type Overview = Routes["GET /v2/overview"]["response"];

/** Returns what is known while nothing needs attention: what waits at its limits, and what is in flight. */
export function describeCalm({ held, inFlight }: Pick<Overview, "held" | "inFlight">): string {
  const gates = Object.values(held);
  const waiting = gates.reduce((sum, { count }) => sum + count, 0);
  const more = gates.some((one) => one.more) ? "+" : "";
  return [
    "New messages are accepted.",
    waiting > 0 && `${formatCount(waiting)}${more} ${waiting === 1 ? "waits" : "wait"} at a limit.`,
    inFlight > 0 && `${formatCount(inFlight)} ${inFlight === 1 ? "is" : "are"} being delivered.`,
  ]
    .filter(Boolean)
    .join(" ");
}

/** Reports whether an account never had anything, as far as the overview shows. */
export const isUnused = ({ conditions, unfinished, inFlight, deadLetters, minutes }: Overview): boolean =>
  conditions.length === 0 &&
  unfinished.count + inFlight + deadLetters === 0 &&
  minutes.every(({ delivered, failed }) => delivered + failed === 0);

/** A point of a chart, as far as it decides whether it is shown. */
type Point = { failed?: number | undefined; retried?: number | undefined };

/**
 * Returns the points of a chart. The last one has just begun and would look like an outage, so it is left out
 * unless it has failures.
 */
export function pickShown<P extends Point>(points: readonly P[]): readonly P[] {
  const last = points.at(-1);
  return last && (last.failed ?? 0) + (last.retried ?? 0) > 0 ? points : points.slice(0, -1);
}
