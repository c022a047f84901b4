import { endedByOperator } from "../model/attempt.ts";
import type { LogRow } from "../model/logRow.ts";
import type { Millis } from "../values/basics.ts";
import { isSuccessStatus } from "../values/status.ts";

/** The newest log entries that show how hosts respond. */
export const hostLogEntries = 1_000;

/** The attempts to one host among some log entries. Times are in milliseconds. */
export type HostAttempts = {
  host: string;
  attempts: number;
  failures: number;
  /**
   * The duration that half of the attempts did not exceed, and the one that 95 % did not exceed. Null if no
   * duration is known. The duration of an attempt that a step settled is not known.
   */
  p50: Millis | null;
  p95: Millis | null;
  lastFailure: { time: Millis; status: number | null; error: string | null } | null;
};

/** The parts of a log entry that describe an attempt. */
export type Attempted = Pick<LogRow, "time" | "status" | "error" | "attempt" | "settledHost">;

/** Returns the host of an attempt; undefined if a log entry records none. */
export const readAttemptHost = ({ attempt, settledHost }: Attempted): string | undefined =>
  attempt?.host ?? settledHost;

/** Reports whether the host accepted the message of an attempt. */
export const wasAccepted = ({ status, settledHost }: Attempted): boolean =>
  settledHost !== undefined || isSuccessStatus(status);

/** Reports whether an attempt shows how its host does. An attempt that an operator ended does not. */
export const showsHost = ({ error }: Pick<Attempted, "error">): boolean => error !== endedByOperator;

/** Returns the attempts of log entries by host. The host with the largest share of failures comes first. */
export function sumAttemptsByHost(rows: readonly Attempted[]): HostAttempts[] {
  const byHost = Map.groupBy(
    rows.filter((row) => readAttemptHost(row) !== undefined && showsHost(row)),
    (row) => readAttemptHost(row) ?? "",
  );
  return [...byHost].map(([host, ended]) => sumAttempts(host, ended)).sort(compareByFailures);
}

function sumAttempts(host: string, ended: readonly Attempted[]): HostAttempts {
  const durations = ended.flatMap(({ attempt }) => attempt?.duration ?? []).sort((a, b) => a - b);
  const failed = ended.filter((one) => !wasAccepted(one));
  const last = failed.reduce<Attempted | null>(
    (newest, row) => (newest === null || row.time > newest.time ? row : newest),
    null,
  );
  return {
    host,
    attempts: ended.length,
    failures: failed.length,
    p50: readQuantile(durations, 0.5),
    p95: readQuantile(durations, 0.95),
    lastFailure: last && { time: last.time, status: last.status, error: last.error },
  };
}

/** Returns the smallest of the sorted values that a share of the values does not exceed; null if none is. */
export const readQuantile = (sorted: readonly Millis[], share: number): Millis | null =>
  sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;

/** Orders hosts by their share of failures, then by the number of failures, then by name. */
const compareByFailures = (a: HostAttempts, b: HostAttempts): number =>
  b.failures / b.attempts - a.failures / a.attempts || b.failures - a.failures || (a.host < b.host ? -1 : 1);

/** The attempts to a host in one span of time. `inFlight`: the most that ran at its end. */
export type HostPoint = {
  start: Millis;
  attempts: number;
  failures: number;
  p50: Millis | null;
  p95: Millis | null;
  inFlight: number;
};

type HostSpans = { from: Millis; step: Millis; points: number };

/**
 * Returns the attempts to a host over time: in each span those that ended in it, and how many ran at its end.
 * `running`: when the attempts in flight began.
 */
export function sumHostPoints(
  rows: readonly Attempted[],
  running: readonly Millis[],
  { from, step, points }: HostSpans,
): HostPoint[] {
  const byPoint = Map.groupBy(rows, ({ time }) => Math.floor((time - from) / step));
  const spans = [
    ...rows.map(({ time, attempt }) => ({ begin: attempt?.startedAt ?? time, end: time })),
    ...running.map((begin) => ({ begin, end: Infinity })),
  ];
  return Array.from({ length: points }, (_, at) => {
    const start = from + at * step;
    const end = start + step;
    const { attempts, failures, p50, p95 } = sumAttempts("", byPoint.get(at) ?? []);
    const inFlight = spans.filter((one) => one.begin < end && one.end >= end).length;
    return { start, attempts, failures, p50, p95, inFlight };
  });
}
