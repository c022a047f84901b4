import type { TaggedList } from "./tags.ts";
import { toTag, taggedStates } from "./tags.ts";
import type { StoredMessage } from "../model/message.ts";
import type { LogState } from "../model/logRow.ts";
import type { Millis } from "../values/basics.ts";
import type { DeadLetter } from "../model/deadLetter.ts";
import type { Filter } from "../model/filters.ts";

export type { Filter } from "../model/filters.ts";

/** The properties of a listed item that a filter can see. */
export type FilteredItem = {
  message: StoredMessage;
  time: Millis;
  dlqId?: string;
  state?: LogState;
  responseStatus?: number | null;
  deadLetter?: Pick<DeadLetter, "run" | "failureCallback" | "tags">;
};

/** Reports whether an item matches a filter. */
export function matchesFilter(filter: Filter, item: FilteredItem): boolean {
  const { message, time } = item;
  return (
    time >= (filter.from ?? 0) &&
    time <= (filter.to ?? Infinity) &&
    matchesAny(filter.messageIds, message.id) &&
    matchesAny(filter.dlqIds, item.dlqId) &&
    matchesAny(filter.urls, message.url) &&
    matchesAny(filter.callerIps, message.callerIp) &&
    matchesAny(filter.states, item.state) &&
    matchesAny(filter.responseStatuses, item.responseStatus) &&
    matchesAny(filter.topicNames, message.group) &&
    matchesAny(filter.queueNames, message.queue) &&
    matchesAny(filter.scheduleIds, message.scheduleId) &&
    matchesAny(filter.flowControlKeys, message.flowControl?.key) &&
    (filter.labels?.some((label) => message.labels.includes(label)) ?? true) &&
    (filter.causes?.some((cause) => hasCause(item.deadLetter, cause)) ?? true) &&
    matchesUrlParts(filter, message.url) &&
    matchesRunFields(filter, item.deadLetter)
  );
}

/** Reports whether a dead letter of a message or of a run has a cause. */
const hasCause = (deadLetter: FilteredItem["deadLetter"], cause: string): boolean =>
  deadLetter?.tags.includes((deadLetter.run ? toTag.runCause : toTag.cause)(cause)) ?? false;

function matchesRunFields(
  { belongsToRun, runIds, runIdStarts, runUrls, runsCreatedAt, callbackStates }: Filter,
  deadLetter: FilteredItem["deadLetter"],
): boolean {
  const run = deadLetter?.run;
  return (
    (belongsToRun === undefined || belongsToRun === (run !== undefined)) &&
    matchesAny(runIds, run?.runId) &&
    (runIdStarts === undefined || runIdStarts.some((start) => run?.runId.startsWith(start))) &&
    matchesAny(runUrls, run?.url) &&
    matchesAny(runsCreatedAt, run?.createdAt) &&
    matchesAny(callbackStates, run && deadLetter.failureCallback?.state)
  );
}

const matchesAny = <T>(accepted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  accepted === undefined || (value !== null && value !== undefined && accepted.includes(value));

/** Reports whether a URL has one of the hosts and one of the paths. */
export function matchesUrlParts({ hosts, paths }: Pick<Filter, "hosts" | "paths">, url: string): boolean {
  if (!hosts && !paths) return true;
  const { host, pathname } = new URL(url);
  return (
    matchesAny(
      hosts?.map((name) => name.toLowerCase()),
      host,
    ) && matchesAny(paths, pathname)
  );
}

/** If a filter has more values than this, they are not looked up one by one. */
export const maxFilterValues = 50;

/**
 * Returns the hosts of all matching messages. Returns null if they may have any host, or if there are too
 * many hosts to look up one by one.
 */
export function listWantedHosts({ hosts, urls }: Filter): string[] | null {
  const tags =
    hosts?.map((host) => host.toLowerCase()) ??
    urls?.flatMap((url) => (URL.canParse(url) ? [new URL(url).host] : []));
  const distinct = tags && [...new Set(tags)];
  return distinct && distinct.length <= maxFilterValues ? distinct : null;
}

/**
 * Returns groups of tags by which a list can be searched. Each matching item has at least one tag of every
 * group. If there are no groups, the whole list must be searched. Groups that are likely to be small come
 * first.
 */
export function listWantedTags(filter: Filter, list: TaggedList): string[][] {
  const isDeadLetters = list === "dlq";
  const groups = [
    isDeadLetters ? filter.messageIds?.map(toTag.message) : undefined,
    isDeadLetters ? filter.causes?.flatMap((id) => [toTag.cause(id), toTag.runCause(id)]) : undefined,
    filter.scheduleIds?.map(toTag.schedule),
    filter.labels?.map(toTag.label),
    filter.queueNames?.map(toTag.queue),
    filter.flowControlKeys?.map(toTag.key),
    filter.topicNames?.map(toTag.group),
    isDeadLetters ? filter.urls?.map(toTag.url) : undefined,
    isDeadLetters ? filter.runUrls?.map(toTag.url) : undefined,
    isDeadLetters ? filter.callerIps?.map(toTag.callerIp) : undefined,
    isDeadLetters ? filter.responseStatuses?.map(toTag.status) : undefined,
    isDeadLetters ? filter.runIds?.map(toTag.run) : undefined,
    isDeadLetters && filter.belongsToRun ? [toTag.workflow] : undefined,
    list === "log" && filter.states?.every((state) => taggedStates.has(state))
      ? filter.states.map(toTag.state)
      : undefined,
  ];
  return groups.flatMap((group) => (group ? [[...new Set(group)]] : []));
}
