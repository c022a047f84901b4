import { matchesUrlParts } from "./filter.ts";
import { toTag } from "./tags.ts";
import type { RunFilter } from "../model/filters.ts";
import type { Run } from "../model/run.ts";

export type { RunFilter } from "../model/filters.ts";

/** Reports whether a run matches a filter. */
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

const matchesAny = <T>(accepted: readonly T[] | undefined, value: T | null | undefined): boolean =>
  accepted === undefined || (value !== null && value !== undefined && accepted.includes(value));

/**
 * Returns groups of tags by which runs can be searched. Each matching run has at least one tag of every
 * group.
 */
export function listWantedRunTags(filter: RunFilter): string[][] {
  const tagLists = [
    filter.runIds?.map(toTag.run),
    filter.runs?.map(({ runId }) => toTag.run(runId)),
    filter.urls?.map(toTag.url),
    filter.labels?.map(toTag.label),
    filter.flowControlKeys?.map(toTag.key),
    filter.callerIps?.map(toTag.callerIp),
    filter.states?.map(toTag.state),
  ];
  return tagLists.filter((tags) => tags !== undefined);
}
