import { partsPass } from "./filter.ts";
import { markOf } from "./tags.ts";
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

export function passesRun(filter: RunFilter, run: Run): boolean {
  return (
    run.createdAt >= (filter.from ?? 0) &&
    run.createdAt <= (filter.to ?? Infinity) &&
    (filter.createdAt === undefined || run.createdAt === filter.createdAt) &&
    any(filter.runIds, run.runId) &&
    any(filter.urls, run.url) &&
    (filter.urlStarts?.some((start) => run.url.startsWith(start)) ?? true) &&
    partsPass(filter, run.url) &&
    any(filter.states, run.state) &&
    any(filter.callerIps, run.callerIp) &&
    any(filter.flowControlKeys, run.settings.flowControl?.key) &&
    (filter.labels?.some((label) => run.labels.includes(label)) ?? true) &&
    (filter.runs?.some(({ runId, createdAt }) => runId === run.runId && createdAt === run.createdAt) ?? true)
  );
}

const any = <T>(wanted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  wanted === undefined || (value !== null && value !== undefined && wanted.includes(value));

/** For each filter that runs have marks of, those marks: all that passes has one of each. */
export function runMarksWanted(filter: RunFilter): string[][] {
  const wanted = [
    filter.runIds?.map(markOf.run),
    filter.runs?.map(({ runId }) => markOf.run(runId)),
    filter.urls?.map(markOf.url),
    filter.labels?.map(markOf.label),
    filter.flowControlKeys?.map(markOf.key),
    filter.callerIps?.map(markOf.callerIp),
    filter.states?.map(markOf.state),
  ];
  return wanted.filter((marks) => marks !== undefined);
}
