import type { StoredMessage } from "../../core/model/message.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import { firstIdAt, lastIdTime, readIdTime } from "../../core/values/ids.ts";
import { causeIdLength, isCauseId, toEndpoint } from "../../core/model/cause.ts";
import type { DeadLetter } from "../../core/model/deadLetter.ts";
import { findFailedStep } from "../../core/model/failureText.ts";
import type { FailedStep } from "../../core/model/failureText.ts";
import type { Step } from "../../core/model/run.ts";
import { causeStart, runCauseStart, tagPrefix, tagStart, toTag } from "../../core/search/tags.ts";
import type { FailureGroup } from "../../core/workflows/failureGroups.ts";
import { makeTrendBounds, sortGroups } from "../../core/workflows/failureGroups.ts";
import type { StorageReads, TagSpan } from "../layout/storageReads.ts";
import { countFittingPage, readMessages, toKeys } from "../layout/storageReads.ts";
import { readFailedSteps, toFailedStepId } from "./failedSteps.ts";

/** The maximum number of causes that one request counts. */
const maxCauses = 500;
/** The dead letters of a cause are counted up to this number. */
export const maxOfCause = 10_000;
/** Those in a part of the trend are counted up to this number. */
const maxInPart = 1_000;

/** A request for the causes of all dead letters. `trend`: the time for which the groups show a trend. */
export type CauseQuery = {
  account: AccountId;
  /** Whether the dead letters are those of messages or of runs. */
  of: "messages" | "runs";
  from?: Millis | undefined;
  to?: Millis | undefined;
  /** Only these causes are counted. */
  causes?: readonly string[] | undefined;
  trend: { from: Millis; to: Millis };
  /** The cause after which the request continues. */
  cursor: string | null;
  /** The maximum number of groups. */
  count: number;
};

/**
 * The largest groups of dead letters. `entries`: the number of dead letters that were counted.
 * `causes`: the number of causes that were found. `cursor`: null if these are all.
 */
export type CausePage = { groups: FailureGroup[]; entries: number; causes: number; cursor: string | null };

/** Where the tags of the causes are: how they begin, and how long each is with the space after it. */
type Tags = { start: string; prefixOf(cause: string): string; width: number };

const makeTags = (beginning: string, toCauseTag: (cause: string) => string): Tags => {
  const prefixOf = (cause: string): string => tagPrefix("dlq", toCauseTag(cause));
  return { start: tagStart("dlq", beginning), prefixOf, width: prefixOf("0".repeat(causeIdLength)).length };
};

const tagsOf: Readonly<Record<CauseQuery["of"], Tags>> = {
  messages: makeTags(causeStart, toTag.cause),
  runs: makeTags(runCauseStart, toTag.runCause),
};

const readCause = ({ start }: Tags, tag: string): string =>
  tag.slice(start.length, start.length + causeIdLength);

/**
 * Groups all dead letters of messages or of runs by cause. It counts the tags of the causes where they
 * are stored, so it reads one dead letter of each group that it returns.
 */
export async function groupByCause(storageReads: StorageReads, query: CauseQuery): Promise<CausePage> {
  const { account } = query;
  const tags = tagsOf[query.of];
  const after = firstIdAt("dlq", query.from ?? 0);
  const before = query.to === undefined ? "~" : firstIdAt("dlq", Math.min(query.to, lastIdTime) + 1);
  const spans = await listSpans(storageReads, query, { after, before });
  const counts = await storageReads.countTags({
    account,
    ranges: spans.map(({ tag }) => ({ after: tag + after, before: tag + before })),
    limit: maxOfCause + 1,
  });
  const found = spans
    .map((span, at) => toGroup(tags, span, counts[at] ?? 0))
    .filter(({ count }) => count > 0);
  const shown = sortGroups(found).slice(0, query.count);
  const last = query.causes || spans.length < maxCauses ? null : (spans.at(-1)?.tag ?? null);
  return {
    groups: await describe(storageReads, query, shown),
    entries: found.reduce((sum, { count }) => sum + count, 0),
    causes: found.length,
    cursor: last === null ? null : readCause(tags, last),
  };
}

type Bounds = { after: string; before: string };

const listSpans = async (
  storageReads: StorageReads,
  { account, of, causes, cursor }: CauseQuery,
  bounds: Bounds,
): Promise<TagSpan[]> => {
  const { start, width, prefixOf } = tagsOf[of];
  const read = async (first: string, limit: number): Promise<readonly TagSpan[]> =>
    storageReads.tagSpans({ account, start: first, end: `${start}~`, width, ...bounds, limit });
  if (!causes) return [...(await read(cursor === null ? start : `${prefixOf(cursor)}~`, maxCauses))];
  const chosen = [...new Set(causes)].filter(isCauseId);
  const spans = await Promise.all(chosen.map((cause) => read(prefixOf(cause), 1)));
  return spans.flat().filter(({ tag }) => chosen.includes(readCause(tagsOf[of], tag)));
};

/** Returns a group before its dead letter was read. */
const toGroup = (tags: Tags, { tag, first, last }: TagSpan, count: number): FailureGroup => ({
  cause: readCause(tags, tag),
  count: Math.min(count, maxOfCause),
  isCut: count > maxOfCause,
  firstAt: readIdTime(first.slice(tags.width)),
  lastAt: readIdTime(last.slice(tags.width)),
  dlqId: last.slice(tags.width),
  ...{ url: "", error: "", status: null, stepName: null, afterStep: null, trend: [] },
});

/** Adds what the latest dead letter of each group says, and the trend. */
async function describe(
  storageReads: StorageReads,
  { account, of, trend, from, to: until }: CauseQuery,
  groups: readonly FailureGroup[],
): Promise<FailureGroup[]> {
  const ids = groups.map(({ dlqId }) => dlqId);
  const rows = await storageReads.rows("deadLetters", toKeys(account, ids), { bodies: false });
  const byId = new Map(rows.map((row) => [row.id, row]));
  const messageIds = rows.map(({ messageId }) => messageId);
  const messages: ReadonlyMap<string, StoredMessage> = await readMessages(storageReads, account, messageIds);
  const steps = of === "runs" ? await readFailedSteps(storageReads, account, messages.values()) : null;
  const bounds = makeTrendBounds(trend);
  const { prefixOf } = tagsOf[of];
  const parts = bounds.slice(1).map((to, at) => ({ from: bounds[at] ?? 0, to }));
  // No part before the first or after the last dead letter of a cause has any, unless others were left out.
  const isWhole = from === undefined && until === undefined;
  const ranges = groups.flatMap(({ cause, firstAt, lastAt }, group) =>
    parts.flatMap(({ from, to }, part) =>
      isWhole && (to <= firstAt || from > lastAt)
        ? []
        : {
            ...{ group, part, after: prefixOf(cause) + firstIdAt("dlq", from) },
            before: prefixOf(cause) + firstIdAt("dlq", to),
          },
    ),
  );
  const counts = await storageReads.countTags({ account, ranges, limit: maxInPart });
  const trends = groups.map(() => parts.map(() => 0));
  for (const [at, { group, part }] of ranges.entries()) (trends[group] ?? [])[part] = counts[at] ?? 0;
  return groups.flatMap((group, at) => {
    const row = byId.get(group.dlqId);
    const message = row && messages.get(row.messageId);
    // The row may have been removed since it was counted.
    if (!message) return [];
    const place = steps ? describeRun(row, message, steps) : describeMessage(row, message);
    return [{ ...group, ...place, error: row.cause ?? "", trend: trends[at] ?? [] }];
  });
}

const describeMessage = ({ status }: DeadLetter, { url }: StoredMessage) => ({
  url: toEndpoint(url),
  status,
});

/** Returns the workflow and the failed step of a run. `steps` has the step of its message by its id. */
const describeRun = (
  { run, headers }: DeadLetter,
  message: StoredMessage,
  steps: ReadonlyMap<string, Step>,
): FailedStep & { url: string } => ({
  url: run?.url ?? "",
  ...findFailedStep(message.run?.stepKey, steps.get(toFailedStepId(message))?.head, headers),
});

/** The number of bytes of bodies that one transaction may load to find causes. */
const portionBytes = 4 * 1024 * 1024;

/**
 * Returns dead letters that have no cause yet, among those after an id, in portions for one
 * transaction each. `last`: the last dead letter that was looked at; null at the end.
 */
export async function listWithoutCause(
  storageReads: StorageReads,
  account: AccountId,
  { after, limit }: { after: string; limit: number },
): Promise<{ portions: string[][]; last: string | null }> {
  const rows = await storageReads.range("deadLetters", { account, after, limit, bodies: false });
  const ids = rows.flatMap(({ id, cause, damaged }) => (cause === undefined && !damaged ? id : []));
  const sizes = await storageReads.sizes("deadLetters", toKeys(account, ids));
  const portions: string[][] = [];
  while (ids.length > 0) {
    const fitting = countFittingPage(
      ids.map((id) => sizes.get(id) ?? 0),
      portionBytes,
    );
    portions.push(ids.splice(0, Math.min(fitting, 100)));
  }
  return { portions, last: rows.length < limit ? null : (rows.at(-1)?.id ?? null) };
}
