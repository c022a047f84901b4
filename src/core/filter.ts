import type { Envelope, LogState, Millis } from "./message.ts";

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
  /** Inclusive, as is `to`. Of the creation, of the failure, or of the log entry: whatever is listed. */
  from?: Millis;
  to?: Millis;
};

/** What a filter can see of a thing that is listed. */
export type Seen = { envelope: Envelope; time: Millis; dlqId?: string; state?: LogState; responseStatus?: number | null };

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
    (filter.labels?.some((label) => envelope.labels.includes(label)) ?? true) &&
    partsPass(filter, envelope.url) &&
    !namesWhatNoMessageHas(filter)
  );
}

const any = <T>(wanted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  wanted === undefined || (value !== null && value !== undefined && wanted.includes(value));

function partsPass({ hosts, paths }: Filter, url: string): boolean {
  if (!hosts && !paths) return true;
  const { host, pathname } = new URL(url);
  return (
    any(
      hosts?.map((name) => name.toLowerCase()),
      host,
    ) && any(paths, pathname)
  );
}

const namesWhatNoMessageHas = ({ topicNames, queueNames, scheduleIds, flowControlKeys }: Filter): boolean =>
  [topicNames, queueNames, scheduleIds, flowControlKeys].some((names) => names !== undefined);
