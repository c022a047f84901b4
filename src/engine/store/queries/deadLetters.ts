import { toIdRange } from "./pages.ts";
import { matchesFilter } from "../../core/search/filter.ts";
import { readIdTime } from "../../core/values/ids.ts";
import type { AccountId, Bytes, Millis } from "../../core/values/basics.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { DeadLetter } from "../../core/model/deadLetter.ts";
import type { FailureGroup } from "../../core/workflows/failureGroups.ts";
import { groupFailures, makeTrendBounds, summarizeFailure } from "../../core/workflows/failureGroups.ts";
import { noBytes } from "../../core/values/basics.ts";
import { readFailedSteps, toFailedStepId } from "./failedSteps.ts";
import { readChunks, withMessages } from "./pages.ts";
import { pickTagLookup } from "./byTag.ts";
import type { Run, Step } from "../../core/model/run.ts";
import { initialStepKey, toStepId } from "../../core/model/stepId.ts";
import type { ListQuery, StorageReads } from "../layout/storageReads.ts";
import { readMessages, countFittingPage, toKeys, scanLimit } from "../layout/storageReads.ts";

/** A dead letter with its message. `failed` is present for a dead letter of a run. */
export type DeadLetterEntry = { deadLetter: DeadLetter; message: StoredMessage; failed?: FailedRun };
/**
 * A failed run, the step whose message failed, and the initial payload of the run. Null: the row no longer
 * exists.
 */
export type FailedRun = { run: Run | null; step: Step | null; payload: Bytes };
/** A page of dead letters. `cursor` is null at the end. */
export type DeadLetterPage = { entries: DeadLetterEntry[]; cursor: string | null };

/** A request for a page of dead letters. Without bodies, a page has no runs either. */
export type DeadLetterQuery = ListQuery & { bodies?: false };
/** A request for groups. `trend`: the time for which they show a trend. */
export type GroupQuery = ListQuery & { trend?: { from: Millis; to: Millis } };
/** Dead letters by cause. `entries`: the number of dead letters in all groups. `cursor`: null at the end. */
export type FailureGroupPage = { groups: FailureGroup[]; entries: number; cursor: string | null };

/** Returns a page of the dead letters that pass a filter, with their messages and their runs. */
export async function listDeadLetters(
  storageReads: StorageReads,
  query: DeadLetterQuery,
): Promise<DeadLetterPage> {
  const page = await listWithoutBodies(storageReads, query);
  if (query.bodies === false) return page;
  const { account } = query;
  const { entries, cursor } = await withBodies(storageReads, { account, page, bodies: "all" });
  return { entries: await withRuns(storageReads, account, entries), cursor };
}

/**
 * Groups the dead letters of a page by cause. Only the groups leave the storage, because a page has up to a
 * thousand dead letters.
 */
export async function groupDeadLetters(
  storageReads: StorageReads,
  { trend, ...query }: GroupQuery,
): Promise<FailureGroupPage> {
  const { account } = query;
  const page = await listWithoutBodies(storageReads, query);
  const { entries, cursor } = await withBodies(storageReads, { account, page, bodies: "responses" });
  const steps = await readFailedSteps(storageReads, account, listRunMessages(entries));
  const failures = entries.map(({ deadLetter, message }) =>
    summarizeFailure({ deadLetter, message, head: steps.get(toFailedStepId(message))?.head ?? null }),
  );
  const bounds = trend ? makeTrendBounds(trend) : [];
  return { groups: groupFailures(failures, bounds), entries: failures.length, cursor };
}

/**
 * Adds the runs to dead letters that belong to runs. The only body that is loaded is the initial payload of
 * each run.
 */
export async function withRuns(
  storageReads: StorageReads,
  account: AccountId,
  entries: readonly DeadLetterEntry[],
): Promise<DeadLetterEntry[]> {
  const runKeys = entries.flatMap(({ deadLetter: { run } }) => run?.key ?? []);
  if (runKeys.length === 0) return [...entries];
  const payloadIds = runKeys.map((key) => toStepId(key, initialStepKey));
  const [runs, stepById, payloads] = await Promise.all([
    storageReads.rows("runs", toKeys(account, runKeys), { bodies: false }),
    readFailedSteps(storageReads, account, listRunMessages(entries)),
    storageReads.rows("steps", toKeys(account, payloadIds)),
  ]);
  const payloadByRun = new Map(payloads.map((step) => [step.run, step.body]));
  const runById = new Map(runs.map((run) => [run.id, run]));
  return entries.map((entry) => {
    const { run } = entry.deadLetter;
    if (!run) return entry;
    const step = stepById.get(toFailedStepId(entry.message)) ?? null;
    return Object.assign(entry, {
      failed: { run: runById.get(run.key) ?? null, step, payload: payloadByRun.get(run.key) ?? noBytes },
    });
  });
}

/** Returns the messages of the dead letters that belong to runs. */
const listRunMessages = (entries: readonly DeadLetterEntry[]): StoredMessage[] =>
  entries.flatMap(({ deadLetter: { run }, message }) => (run ? message : []));

/**
 * Returns the page with the bodies of its rows, all of them or only the responses. The page ends early if it
 * would exceed the maximum size.
 */
async function withBodies(
  storageReads: StorageReads,
  { account, page, bodies }: { account: AccountId; page: DeadLetterPage; bodies: "all" | "responses" },
): Promise<DeadLetterPage> {
  const { entries, cursor } = page;
  const isWhole = bodies === "all";
  const deadLetterKeys = entries.map(({ deadLetter }) => [account, deadLetter.id] as const);
  const messageKeys = isWhole ? entries.map(({ message }) => [account, message.id] as const) : [];
  const payloadId = ({ deadLetter: { run } }: DeadLetterEntry): string =>
    run && isWhole ? toStepId(run.key, initialStepKey) : "";
  const payloadKeys = toKeys(
    account,
    entries.flatMap((entry) => payloadId(entry) || []),
  );
  const deadLetterSizes = await storageReads.sizes("deadLetters", deadLetterKeys);
  const messageSizes = await storageReads.sizes("storedMessages", messageKeys);
  const payloadSizes = await storageReads.sizes("steps", payloadKeys);
  const count = countFittingPage(
    entries.map((entry) => {
      const { deadLetter, message } = entry;
      return (
        (deadLetterSizes.get(deadLetter.id) ?? 0) +
        (messageSizes.get(message.id) ?? 0) +
        (payloadSizes.get(payloadId(entry)) ?? 0)
      );
    }),
  );
  const deadLetters = await storageReads.rows("deadLetters", deadLetterKeys.slice(0, count));
  const messages = isWhole
    ? await storageReads.rows("storedMessages", messageKeys.slice(0, count))
    : entries.slice(0, count).map(({ message }) => message);
  const deadLetterById = new Map(deadLetters.map((deadLetter) => [deadLetter.id, deadLetter]));
  const messageById = new Map(messages.map((message) => [message.id, message]));
  const found = entries.slice(0, count).flatMap((entry) => {
    const deadLetter = deadLetterById.get(entry.deadLetter.id);
    const message = messageById.get(entry.message.id);
    // The row may have been removed since it was listed.
    return deadLetter && message ? [{ deadLetter, message }] : [];
  });
  return {
    entries: found,
    cursor: count < entries.length ? (entries[count - 1]?.deadLetter.id ?? null) : cursor,
  };
}

/** Returns the page without bodies. */
async function listWithoutBodies(storageReads: StorageReads, query: ListQuery): Promise<DeadLetterPage> {
  const { account, filter, order, cursor, count } = query;
  const descending = order === "latestFirst";
  const range = { account, descending, ...toIdRange("dlq", filter, { cursor, descending }) };
  const tagLookup = filter.dlqIds ? null : await pickTagLookup(storageReads, { list: "dlq", filter, range });
  const chunks = readChunks(storageReads, "deadLetters", { range, tagLookup, pageRows: count + 1 });
  const source = filter.dlqIds
    ? listNamedDeadLetters(storageReads, query, filter.dlqIds)
    : withMessages(storageReads, { account, chunks, toMessageId: ({ messageId }) => messageId });
  const entries: DeadLetterEntry[] = [];
  let lastId: string | null = null;
  let scanned = 0;
  for await (const { row: deadLetter, message } of source) {
    // One more entry than fits shows that there is another page.
    if (entries.length === count) return { entries, cursor: lastId };
    lastId = deadLetter.id;
    const time = readIdTime(deadLetter.id);
    if (
      message &&
      matchesFilter(filter, {
        message,
        time,
        dlqId: deadLetter.id,
        responseStatus: deadLetter.status,
        deadLetter,
      })
    )
      entries.push({ deadLetter, message });
    if (++scanned >= scanLimit) return { entries, cursor: lastId };
  }
  return { entries, cursor: null };
}

/** Returns the dead letters with the given ids, in the order of the list. */
async function* listNamedDeadLetters(
  storageReads: StorageReads,
  { account, order, cursor }: ListQuery,
  ids: readonly string[],
) {
  const deadLetters = [...(await storageReads.rows("deadLetters", toKeys(account, ids), { bodies: false }))];
  deadLetters.sort((a, b) => (a.id < b.id ? -1 : 1));
  if (order === "latestFirst") deadLetters.reverse();
  const messages = await readMessages(
    storageReads,
    account,
    deadLetters.map(({ messageId }) => messageId),
  );
  for (const row of deadLetters) {
    if (cursor === null || (order === "latestFirst" ? row.id < cursor : row.id > cursor))
      yield { row, message: messages.get(row.messageId) };
  }
}
