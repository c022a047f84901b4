import type { ListedProgress } from "../../core/explain/runProgress.ts";
import { countSteps, findBriefReason } from "../../core/explain/runProgress.ts";
import { listRunBounds, readRunKey } from "../../core/model/stepId.ts";
import { maxFilterValues } from "../../core/search/filter.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { AccountId, MessageId, Millis } from "../../core/values/basics.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { RunKey } from "../../core/model/runPost.ts";
import type { ActiveRun, Notification, Run, Step, Waiter } from "../../core/model/run.ts";
import type { RunLineage } from "../../core/workflows/log/view.ts";
import type { RunFilter } from "../../core/search/runFilter.ts";
import { matchesRunFilter, listWantedRunTags } from "../../core/search/runFilter.ts";
import { readChunks } from "./pages.ts";
import type { TagLookup } from "./byTag.ts";
import { pickSmallest } from "./byTag.ts";
import type { BodyOptions, Range, StorageReads } from "../layout/storageReads.ts";
import { countFittingPage, toKeys, scanLimit } from "../layout/storageReads.ts";
import type { WaitedEventsPage, WaitedEventsQuery } from "./waitedEvents.ts";
import { listWaitedEvents } from "./waitedEvents.ts";

/**
 * A request for a page of at most `count` runs. With `ascending`, the oldest is first, otherwise the newest.
 * `cursor`: the id after which the page starts, or null. `messageId`: the page contains only the run of this
 * message.
 */
export type RunQuery = {
  account: AccountId;
  filter: RunFilter;
  cursor: string | null;
  count: number;
  ascending?: boolean;
  messageId?: MessageId;
};
/** A page of runs. `cursor` is null at the end. */
export type RunPage = { runs: Run[]; cursor: string | null };

/** A run in a light list. `active` is null if it has ended. `progress` is there if the request wants it. */
export type RunEntry = {
  run: Run;
  active: ActiveRun | null;
  lineage: RunLineage;
  progress?: ListedProgress;
};
/** A request for a page of a light list. `progressAt`: how far the runs are at this time is read as well. */
export type RunEntryQuery = RunQuery & { progressAt?: Millis };
/** A page of a light list. `cursor` is null at the end. */
export type RunEntryPage = { entries: RunEntry[]; cursor: string | null };

type EventStretch = { after?: string; limit: number };

const chunk = 1_000;

/** Returns the queries of workflow runs. */
export function createRunQueries(storageReads: StorageReads) {
  const run = async (account: AccountId, key: RunKey): Promise<Run | null> =>
    (
      await dropMissingDeadLetters(storageReads, account, await storageReads.rows("runs", [[account, key]]))
    )[0] ?? null;
  return {
    run,
    /** Returns the active run with this id. */
    activeRun: async (account: AccountId, runId: string): Promise<{ run: Run; active: ActiveRun } | null> => {
      const [active] = await storageReads.rows("activeRuns", [[account, runId]]);
      const found = active ? await run(account, active.run) : null;
      return active && found ? { run: found, active } : null;
    },
    /**
     * Returns runs that pass the filter, newest first. `cursor` is set if the page ends before the list does.
     */
    runs: (query: RunQuery): Promise<RunPage> => listRuns(storageReads, query),
    /** Returns runs as `runs` does, without their results, and with how far the active ones are. */
    listRunEntries: (query: RunEntryQuery): Promise<RunEntryPage> => listRunEntries(storageReads, query),
    /** Returns the history of a run in order. With `bodies: false`, its steps have no bodies. */
    history: async (account: AccountId, key: RunKey, options: BodyOptions = {}): Promise<Step[]> => {
      const steps = await readAllRunRows(storageReads, "steps", { account, run: key, ...options });
      return steps.sort((a, b) => a.position - b.position);
    },
    /** Returns steps by their ids, in the order of the given ids. */
    steps: async (account: AccountId, ids: readonly string[]): Promise<Step[]> => {
      const byId = new Map(
        (await storageReads.rows("steps", toKeys(account, ids))).map((step) => [step.id, step]),
      );
      return ids.flatMap((id) => byId.get(id) ?? []);
    },
    listWaiters: (account: AccountId, key: RunKey): Promise<readonly Waiter[]> =>
      readAllRunRows(storageReads, "waiters", { account, run: key }),
    listNotifications: (
      account: AccountId,
      key: RunKey,
      options?: BodyOptions,
    ): Promise<readonly Notification[]> =>
      readAllRunRows(storageReads, "notifications", { account, run: key, ...options }),
    /** Returns the events that steps wait for, in the order of their ids. */
    listWaitedEvents: (query: WaitedEventsQuery): Promise<WaitedEventsPage> =>
      listWaitedEvents(storageReads, query),
    listRunMessages: (account: AccountId, key: RunKey): Promise<readonly MessageState[]> =>
      storageReads.runMessages(account, key),
    /**
     * Returns the waiters of all runs for an event, in the order of the waiters' ids. The list starts after
     * the id `after`.
     */
    listEventWaiters: (
      account: AccountId,
      event: string,
      { after, limit }: EventStretch,
    ): Promise<readonly Waiter[]> =>
      storageReads.eventWaiters(event, { account, limit, ...(after === undefined ? {} : { after }) }),
  };
}

async function listRuns(storageReads: StorageReads, query: RunQuery): Promise<RunPage> {
  const page = await withBodies(storageReads, query.account, await findRuns(storageReads, query));
  return { ...page, runs: await dropMissingDeadLetters(storageReads, query.account, page.runs) };
}

/** Returns these runs without the `dlqId` of dead letters that no longer exist. */
export async function dropMissingDeadLetters(
  storageReads: StorageReads,
  account: AccountId,
  found: readonly Run[],
): Promise<Run[]> {
  const dlqIds = found.flatMap(({ failure }) => failure?.dlqId ?? []);
  if (dlqIds.length === 0) return [...found];
  const deadLetters = await storageReads.sizes("deadLetters", toKeys(account, dlqIds));
  return found.map((run) => {
    const { failure } = run;
    return failure?.dlqId && !deadLetters.has(failure.dlqId)
      ? { ...run, failure: { ...failure, dlqId: null } }
      : run;
  });
}

async function listRunEntries(storageReads: StorageReads, query: RunEntryQuery): Promise<RunEntryPage> {
  const { account, progressAt } = query;
  const page = await findRuns(storageReads, query);
  const started = page.runs.filter(({ state }) => state === "RUN_STARTED");
  const activeRuns = await storageReads.rows(
    "activeRuns",
    toKeys(
      account,
      started.map(({ runId }) => runId),
    ),
  );
  const active = new Map(activeRuns.map((row) => [row.run, row]));
  // A run that ended between the reads is read again, so that no run is shown as active without its progress.
  const endedSince = started.filter(({ id }) => !active.has(id)).map(({ id }) => id);
  const readRuns = async (keys: readonly RunKey[]): Promise<Map<RunKey, Run>> =>
    new Map(
      (await storageReads.rows("runs", toKeys(account, keys), { bodies: false })).map((run) => [run.id, run]),
    );
  const ended = await readRuns(endedSince);
  const runs = await dropMissingDeadLetters(
    storageReads,
    account,
    page.runs.map((run) => ended.get(run.id) ?? run),
  );
  const related = await readRuns(
    runs
      .flatMap(({ origin, continuedBy }) => [origin, continuedBy?.key ?? null])
      .filter((key) => key !== null),
  );
  const findRelated = (key: RunKey | null | undefined): Run | null =>
    key ? (related.get(key) ?? null) : null;
  const entries = runs.map((run) => ({
    run,
    active: active.get(run.id) ?? null,
    lineage: { origin: findRelated(run.origin), next: findRelated(run.continuedBy?.key) },
  }));
  if (progressAt === undefined) return { cursor: page.cursor, entries };
  return { cursor: page.cursor, entries: await withProgress(storageReads, entries, progressAt) };
}

/** The steps of a run are counted for a list if its history has at most this many entries. */
const maxCountedEntries = 100;
/** The number of waiters of a run that are read for a list. */
const maxListedWaiters = 5;

/** Adds how far each run is, with three reads for all of them. */
async function withProgress(
  storageReads: StorageReads,
  entries: readonly RunEntry[],
  now: Millis,
): Promise<RunEntry[]> {
  const [first] = entries;
  if (!first) return [];
  const { account } = first.run;
  const isCounted = ({ run, active }: RunEntry): boolean => (active?.steps ?? run.steps) <= maxCountedEntries;
  const messageOf = ({ active }: RunEntry): MessageId[] =>
    active && active.waiting === 0 ? [active.lastCall?.messageId ?? active.firstMessage] : [];
  const keysOf = (some: readonly RunEntry[]): RunKey[] => some.map(({ run }) => run.id);
  const [stepIds, waiters, states] = await Promise.all([
    storageReads.stepIdsOfRuns({
      account,
      runs: keysOf(entries.filter(isCounted)),
      limit: maxCountedEntries,
    }),
    storageReads.waitersOfRuns({
      account,
      runs: keysOf(entries.filter(({ active }) => (active?.waiting ?? 0) > 0)),
      limit: maxListedWaiters,
    }),
    storageReads.rows("messages", toKeys(account, entries.flatMap(messageOf))),
  ]);
  const idsOf = Map.groupBy(stepIds, readRunKey);
  const waitersOf = Map.groupBy(waiters, ({ run }) => run);
  const stateOf = new Map(states.map((state) => [state.id, state]));
  return entries.map((entry) => {
    const { id } = entry.run;
    const [message = ""] = messageOf(entry);
    const steps = isCounted(entry) ? countSteps(idsOf.get(id) ?? []) : null;
    const reason = entry.active && findBriefReason(waitersOf.get(id) ?? [], stateOf.get(message), now);
    return { ...entry, progress: { steps, reason } };
  });
}

/** Returns a page of runs without their results. */
export async function findRuns(storageReads: StorageReads, query: RunQuery): Promise<RunPage> {
  const { account, filter, count, messageId } = query;
  if (messageId !== undefined) return findRunOfMessage(storageReads, { ...query, messageId });
  const range = { account, descending: query.ascending !== true, ...toIdRange(query) };
  const lookups = listWantedRunTags(filter)
    .filter((tags) => tags.length <= maxFilterValues)
    .map((tags): TagLookup => ({ list: "runs", tags }));
  const tagLookup = await pickSmallest(storageReads, lookups, range);
  const found: Run[] = [];
  let lastId: string | null = null;
  let scanned = 0;
  for await (const rows of readChunks(storageReads, "runs", { range, tagLookup, pageRows: count + 1 })) {
    for (const row of rows) {
      // One more run than fits shows that there is another page.
      if (found.length === count) return { runs: found, cursor: lastId };
      lastId = row.id;
      if (matchesRunFilter(filter, row)) found.push(row);
      if (++scanned >= scanLimit) return { runs: found, cursor: lastId };
    }
  }
  return { runs: found, cursor: null };
}

async function findRunOfMessage(
  storageReads: StorageReads,
  { account, filter, cursor, ascending, messageId }: RunQuery & { messageId: MessageId },
): Promise<RunPage> {
  const [message] = await storageReads.rows("storedMessages", [[account, messageId]], { bodies: false });
  const key = message?.run?.run;
  const found =
    key === undefined || (cursor !== null && (ascending ? key <= cursor : key >= cursor))
      ? []
      : await storageReads.rows("runs", [[account, key]], { bodies: false });
  return { runs: found.filter((run) => matchesRunFilter(filter, run)), cursor: null };
}

/** Returns the page with the results of its runs. The page ends early if it would exceed the maximum size. */
async function withBodies(
  storageReads: StorageReads,
  account: AccountId,
  { runs: page, cursor }: RunPage,
): Promise<RunPage> {
  const keys = toKeys(
    account,
    page.map(({ id }) => id),
  );
  const sizes = await storageReads.sizes("runs", keys);
  const count = countFittingPage(page.map(({ id }) => sizes.get(id) ?? 0));
  const byId = new Map((await storageReads.rows("runs", keys.slice(0, count))).map((run) => [run.id, run]));
  const shown = page.slice(0, count);
  return {
    runs: shown.flatMap(({ id }) => byId.get(id) ?? []),
    cursor: count < page.length ? (shown.at(-1)?.id ?? null) : cursor,
  };
}

function toIdRange({ filter, cursor, ascending }: RunQuery): Pick<Range, "after" | "before"> {
  const first = filter.createdAt ?? filter.from;
  const last = filter.createdAt ?? filter.to;
  const start = first === undefined ? undefined : firstIdAt("run", first);
  const end = last === undefined ? undefined : firstIdAt("run", last + 1);
  const after = ascending ? (cursor ?? start) : start;
  const before = ascending ? end : (cursor ?? end);
  return { ...(after === undefined ? {} : { after }), ...(before === undefined ? {} : { before }) };
}

type RunTableRows = { steps: Step; waiters: Waiter; notifications: Notification };

/** Returns the rows whose ids begin with the id of the run. */
async function readAllRunRows<T extends keyof RunTableRows>(
  storageReads: StorageReads,
  table: T,
  { run, ...range }: { account: AccountId; run: RunKey } & BodyOptions,
): Promise<RunTableRows[T][]> {
  const found: RunTableRows[T][] = [];
  const { after: start, before } = listRunBounds(run);
  for (let after = start; ;) {
    const rows: readonly RunTableRows[T][] = await storageReads.range(table, {
      ...range,
      after,
      before,
      limit: chunk,
    });
    found.push(...rows);
    const last = rows.at(-1);
    if (!last || rows.length < chunk) return found;
    after = last.id;
  }
}
