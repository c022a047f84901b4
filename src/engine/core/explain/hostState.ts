import type { HostAttempts } from "../accounts/hostStatistics.ts";
import type { Condition } from "./condition.ts";

/** The states of a host, the most urgent first. */
export const hostStates = ["failing", "hanging", "unstable", "healthy", "unknown"] as const;

/** How a host does. */
export type HostState = (typeof hostStates)[number];

/** The shares of failures from which a host is failing, and from which it is unstable. */
const failingFrom = 0.5;
const unstableFrom = 0.02;

/** A host: its latest attempts, or null if it has none, and the conditions of its account. */
export type JudgedHost = {
  host: string;
  attempts: Pick<HostAttempts, "attempts" | "failures"> | null;
  conditions: readonly Pick<Condition, "kind" | "subject">[];
};

/** Returns how a host does, from what is in flight and from what has ended. */
export function readHostState({ host, attempts, conditions }: JudgedHost): HostState {
  const isOf = (kind: Condition["kind"]): boolean =>
    conditions.some((condition) => condition.kind === kind && condition.subject === host);
  if (isOf("host.failing")) return "failing";
  if (isOf("host.hanging")) return "hanging";
  if (attempts === null) return "unknown";
  const share = attempts.failures / attempts.attempts;
  return share >= failingFrom ? "failing" : share >= unstableFrom ? "unstable" : "healthy";
}
