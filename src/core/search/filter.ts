import type { MarkedList } from "./tags.ts";
import { markOf, markedStates } from "./tags.ts";
import type { CallbackState, DeadLetter, Envelope, LogState, Millis } from "../model/message.ts";

/** Which messages are meant. Several values of one filter: any of them. Different filters: all of them. Absent: no matter. */
export type Filter = {
  messageIds?: readonly string[];
  dlqIds?: readonly string[];
  urls?: readonly string[];
  hosts?: readonly string[];
  paths?: readonly string[];
  labels?: readonly string[];
  callerIps?: readonly string[];
  states?: readonly LogState[];
  responseStatuses?: readonly number[];
  topicNames?: readonly string[];
  queueNames?: readonly string[];
  scheduleIds?: readonly string[];
  flowControlKeys?: readonly string[];
  /** Of dead letters: only those of workflow runs, or none of them. Of unfinished messages: with `false` none of runs. */
  ofRuns?: boolean;
  /** Of dead letters of runs. */
  runIds?: readonly string[];
  /** A run is meant by its id, or by how that begins. */
  runIdStarts?: readonly string[];
  runUrls?: readonly string[];
  runsCreatedAt?: readonly Millis[];
  callbackStates?: readonly CallbackState[];
  /** Inclusive, as is `to`. Of the creation, of the failure, or of the log entry: whatever is listed. */
  from?: Millis;
  to?: Millis;
};

/** What a filter can see of a thing that is listed. */
export type Seen = {
  envelope: Envelope;
  time: Millis;
  dlqId?: string;
  state?: LogState;
  responseStatus?: number | null;
  letter?: Pick<DeadLetter, "run" | "failureCallback">;
};

/** Does a thing pass the filter? */
export function passes(filter: Filter, seen: Seen): boolean {
  const { envelope, time } = seen;
  return (
    time >= (filter.from ?? 0) &&
    time <= (filter.to ?? Infinity) &&
    any(filter.messageIds, envelope.id) &&
    any(filter.dlqIds, seen.dlqId) &&
    any(filter.urls, envelope.url) &&
    any(filter.callerIps, envelope.callerIp) &&
    any(filter.states, seen.state) &&
    any(filter.responseStatuses, seen.responseStatus) &&
    any(filter.topicNames, envelope.group) &&
    any(filter.queueNames, envelope.queue) &&
    any(filter.scheduleIds, envelope.scheduleId) &&
    any(filter.flowControlKeys, envelope.flowControl?.key) &&
    (filter.labels?.some((label) => envelope.labels.includes(label)) ?? true) &&
    partsPass(filter, envelope.url) &&
    runPasses(filter, seen.letter)
  );
}

function runPasses({ ofRuns, runIds, runIdStarts, runUrls, runsCreatedAt, callbackStates }: Filter, letter: Seen["letter"]): boolean {
  const run = letter?.run;
  return (
    (ofRuns === undefined || ofRuns === (run !== undefined)) &&
    any(runIds, run?.runId) &&
    (runIdStarts === undefined || runIdStarts.some((start) => run?.runId.startsWith(start))) &&
    any(runUrls, run?.url) &&
    any(runsCreatedAt, run?.createdAt) &&
    any(callbackStates, run && letter.failureCallback?.state)
  );
}

const any = <T>(wanted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  wanted === undefined || (value !== null && value !== undefined && wanted.includes(value));

/** Whether a URL has one of the hosts, and one of the paths. */
export function partsPass({ hosts, paths }: Pick<Filter, "hosts" | "paths">, url: string): boolean {
  if (!hosts && !paths) return true;
  const { host, pathname } = new URL(url);
  return (
    any(
      hosts?.map((name) => name.toLowerCase()),
      host,
    ) && any(paths, pathname)
  );
}

/** More values of one filter are not gone through one by one. */
export const mostValues = 50;

/** The hosts of all that passes. Null: any, or too many to go through one by one. */
export function hostsWanted({ hosts, urls }: Filter): string[] | null {
  const wanted = hosts?.map((host) => host.toLowerCase()) ?? urls?.flatMap((url) => (URL.canParse(url) ? [new URL(url).host] : []));
  const distinct = wanted && [...new Set(wanted)];
  return distinct && distinct.length <= mostValues ? distinct : null;
}

/**
 * The marks by which a list can be searched for what passes: everything that passes has one of each group. None: all of
 * the list has to be looked at. The groups that are likely to be the smallest come first.
 */
export function marksWanted(filter: Filter, list: MarkedList): string[][] {
  const isLetters = list === "dlq";
  const groups = [
    isLetters ? filter.messageIds?.map(markOf.message) : undefined,
    filter.scheduleIds?.map(markOf.schedule),
    filter.labels?.map(markOf.label),
    filter.queueNames?.map(markOf.queue),
    filter.flowControlKeys?.map(markOf.key),
    filter.topicNames?.map(markOf.group),
    isLetters ? filter.urls?.map(markOf.url) : undefined,
    isLetters ? filter.runUrls?.map(markOf.url) : undefined,
    isLetters ? filter.callerIps?.map(markOf.callerIp) : undefined,
    isLetters ? filter.responseStatuses?.map(markOf.status) : undefined,
    isLetters ? filter.runIds?.map(markOf.run) : undefined,
    isLetters && filter.ofRuns ? [markOf.workflow] : undefined,
    list === "log" && filter.states?.every((state) => markedStates.has(state)) ? filter.states.map(markOf.state) : undefined,
  ];
  return groups.flatMap((group) => (group ? [[...new Set(group)]] : []));
}
