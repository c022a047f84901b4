import { matchesUrlParts } from "./filter.ts";
import { toTag } from "./tags.ts";
import type { Millis } from "../model/message.ts";
import type { Run, RunState } from "../model/run.ts";

/** Which runs are meant. Several values of one filter: any of them. Different filters: all of them. Absent: no matter. */
export type RunFilter = {
  runIds?: readonly string[];
  /** Exact, and from the beginning. */
  urls?: readonly string[];
  urlStarts?: readonly string[];
  hosts?: readonly string[];
  paths?: readonly string[];
  states?: readonly RunState[];
  labels?: readonly string[];
  flowControlKeys?: readonly string[];
  callerIps?: readonly string[];
  /** Exactly these: several runs may have one id. */
  runs?: readonly { runId: string; createdAt: Millis }[];
  createdAt?: Millis;
  /** Of the creation; inclusive, as is `to`. */
  from?: Millis;
  to?: Millis;
};

export function matchesRunFilter(filter: RunFilter, run: Run): boolean {
  return (
    run.createdAt >= (filter.from ?? 0) &&
    run.createdAt <= (filter.to ?? Infinity) &&
    (filter.createdAt === undefined || run.createdAt === filter.createdAt) &&
    matchesAny(filter.runIds, run.runId) &&
    matchesAny(filter.urls, run.url) &&
    (filter.urlStarts?.some((start) => run.url.startsWith(start)) ?? true) &&
    matchesUrlParts(filter, run.url) &&
    matchesAny(filter.states, run.state) &&
    matchesAny(filter.callerIps, run.callerIp) &&
    matchesAny(filter.flowControlKeys, run.settings.flowControl?.key) &&
    (filter.labels?.some((label) => run.labels.includes(label)) ?? true) &&
    (filter.runs?.some(({ runId, createdAt }) => runId === run.runId && createdAt === run.createdAt) ?? true)
  );
}

const matchesAny = <T>(wanted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  wanted === undefined || (value !== null && value !== undefined && wanted.includes(value));

/** For each filter that runs have marks of, those marks: all that passes has one of each. */
export function listWantedRunTags(filter: RunFilter): string[][] {
  const wanted = [
    filter.runIds?.map(toTag.run),
    filter.runs?.map(({ runId }) => toTag.run(runId)),
    filter.urls?.map(toTag.url),
    filter.labels?.map(toTag.label),
    filter.flowControlKeys?.map(toTag.key),
    filter.callerIps?.map(toTag.callerIp),
    filter.states?.map(toTag.state),
  ];
  return wanted.filter((tags) => tags !== undefined);
}
