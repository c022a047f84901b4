import type {
  ExpiredNeed,
  RunRowsNeed,
  Rows,
  RunTableName,
  StepsNeed,
  TableName,
} from "../../src/engine/core/decision/command.ts";
import type { Commands } from "../../src/engine/store/catalog/commands.ts";
import { firstIdAt } from "../../src/engine/core/values/ids.ts";
import { readCountedRows } from "../../src/engine/core/limits/rowLimits.ts";
import { findCountedColumns } from "../../src/engine/core/limits/storageQuota.ts";
import { toDayNumber, dayPrefix } from "../../src/engine/core/search/timeIndex.ts";
import type { AccountId, Millis } from "../../src/engine/core/values/basics.ts";
import type { MessageState } from "../../src/engine/core/model/messageState.ts";
import { holders } from "../../src/engine/core/model/messageState.ts";
import { serverEndedDueAt } from "../../src/engine/core/admission/lease.ts";
import type { Run, Step } from "../../src/engine/core/model/run.ts";
import type { Usage } from "../../src/engine/core/model/counts.ts";
import { countNames, noCounts } from "../../src/engine/core/model/counts.ts";
import { toStepId } from "../../src/engine/core/model/stepId.ts";
import { decideBatch, makeBatchResult } from "../../src/engine/store/batch/decide.ts";
import { HistoryBodies } from "../../src/engine/store/histories/historyBodies.ts";
import { RecentHistories } from "../../src/engine/store/histories/recentHistories.ts";
import type { WorkingSet } from "../../src/engine/store/batch/workingSet.ts";
import { stepRowBytes } from "../../src/engine/store/batch/historyBytes.ts";
import { toKey, formatKey } from "../../src/engine/store/catalog/rowKeys.ts";
import type { LoadedRunRows, Loader } from "../../src/engine/store/batch/loader.ts";
import { toQuotaRange } from "../../src/engine/store/batch/quotaCounts.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import { compareText, createDueReader, readOldestDue, sortByDue } from "./memoryDue.ts";
import { createStorageReads } from "./memoryReads.ts";
import { filterRows, listHeld, listOfRun, listRange, Memory, pick, withBodies } from "./memoryRows.ts";
export { Memory } from "./memoryRows.ts";
import type { StoreBackend } from "../../src/engine/store/batch/groupCommit.ts";
import { createQueries } from "../../src/engine/store/catalog/queries.ts";
import type { RunBatch, MomentSource, Store } from "../../src/engine/store/store.ts";
import { tableNames } from "../../src/engine/store/catalog/order.ts";
import { StoredBytes, weighColumns } from "../../src/engine/store/sql/storedBytes.ts";
import type { Table } from "../../src/engine/store/catalog/tables.ts";
import { tables } from "../../src/engine/store/catalog/tables.ts";

/**
 * Returns the reference store, which keeps its rows in maps. Every store must behave like it. It is for tests
 * and simulations.
 */
export const memoryStore = (source: MomentSource, memory = new Memory()): Store =>
  createGroupCommitStore(memoryParts(source, memory));

/**
 * Returns the parts of a memory store. `decisions` are the real ones, unless a test adds a fault to see
 * whether it is found.
 */
export function memoryParts(momentSource: MomentSource, memory: Memory, decisions?: Commands): StoreBackend {
  const loader = memoryLoader(memory);
  const started = Promise.resolve(null);
  const runBatch: RunBatch = (calls, capacity) => {
    const turn = memory.turn.then(async () => {
      const { set, replies, now } = await decideBatch(calls, {
        loader,
        capacity,
        momentSource,
        startTime: started,
        usesHints: memory.usesHints,
        ...(decisions && { decisions }),
      });
      set.reportDenied();
      const stored = new StoredBytes();
      for (const table of tableNames) apply(memory, table, { set, stored });
      stored.addTo(set.effects.usage, (account) => set.peek("accounts", account)?.deletedAt !== undefined);
      addUsage(memory, set.effects.usage.rows({ now, node: momentSource.node }));
      // No histories of earlier batches are kept, so that tests notice if other stores send others.
      const histories = new HistoryBodies(makeBatchResult(set, replies), {
        set,
        loader,
        recent: new RecentHistories(),
      });
      await histories.load();
      return histories.finish();
    });
    memory.turn = turn.catch(() => undefined);
    return turn;
  };
  const nextDueAt = async () => {
    const times = Object.values(readOldestDue(memory)).filter((at) => at !== null);
    return times.length === 0 ? null : Math.min(...times);
  };
  return {
    runBatch,
    read: createQueries(createStorageReads(memory)),
    nextDueAt,
    close: async () => undefined,
  };
}

type Changes = { set: WorkingSet; stored: StoredBytes };

function apply<T extends TableName>(memory: Memory, table: T, { set, stored }: Changes): void {
  const rows: Map<string, Rows[T]> = memory.tables[table];
  const weigh = (row: Rows[T] | undefined, times: 1 | -1): void => {
    if (!row || !findCountedColumns(table)) return;
    const shape: Table<Rows[T]> = tables[table];
    stored.add(toKey[table](row)[0], times * weighColumns(table, shape.write(row)));
  };
  for (const { key, loaded, now } of set.changes(table)) {
    const text = formatKey(key);
    weigh(rows.get(text), -1);
    weigh(now, 1);
    if (now === undefined) rows.delete(text);
    else if (!loaded && rows.has(text) && !tables[table].idempotent)
      throw new Error(`${table}: the row ${text} exists already`);
    else {
      checkConstant(table, rows.get(text), now);
      rows.set(text, now);
    }
  }
}

/** Databases do not write a constant column again, so a change of it would be lost there. */
function checkConstant<T extends TableName>(table: T, before: Rows[T] | undefined, now: Rows[T]): void {
  const { constant = [], write }: Table<Rows[T]> = tables[table];
  if (!before || constant.length === 0) return;
  const [old, columns] = [write(before), write(now)];
  for (const column of constant)
    if (old[column] !== columns[column]) throw new Error(`${table}: the constant column ${column} changed`);
}

function addUsage({ tables: { usage } }: Memory, rows: readonly Usage[]): void {
  for (const row of rows) {
    const key = formatKey(toKey.usage(row));
    const sum = { ...(usage.get(key) ?? { ...noCounts, account: row.account, id: row.id }) };
    for (const name of countNames) sum[name] += row[name];
    usage.set(key, sum);
  }
}

/** Returns a loader that reads from the maps. */
export function memoryLoader(memory: Memory): Loader {
  const {
    messages,
    deadLetters,
    deduplications,
    log,
    keptLog,
    waiters,
    notifications,
    steps,
    audit,
    timeIndex,
  } = memory.tables;
  const readRunRows = (needs: readonly RunRowsNeed[]): LoadedRunRows => ({
    messages: listNeeds(needs, "messages").flatMap((run) => listOfRun(messages, run)),
    waiters: listNeeds(needs, "waiters").flatMap((run) => listOfRun(waiters, run).filter(matchesEvent(run))),
    notifications: listNeeds(needs, "notifications")
      .flatMap((run) => listOfRun(notifications, run).filter(matchesEvent(run)))
      .map(withBodies({ bodies: false })),
    steps: listNeeds(needs, "steps")
      .flatMap((run) => listOfRun(steps, run))
      .map(withBodies({ bodies: false })),
  });
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(withBodies(how)),
    now: memory.readsAtOnce
      ? {
          row: (table, key, how) => pick(memory, table, [key]).map(withBodies(how))[0],
          runRows: (need) => readRunRows([need]),
        }
      : null,
    due: createDueReader(memory.tables),
    runRows: async (needs) => readRunRows(needs),
    steps: async (of) => of.flatMap((need) => listSteps(memory, need)),
    stepSizes: async (of) =>
      of.map((need) =>
        listSteps(memory, need).reduce((sum, { body }) => sum + stepRowBytes + body.byteLength, 0),
      ),
    histories: async (of) =>
      of.map(({ from, upTo, ...run }) =>
        sortHistory(listOfRun(steps, run).filter(({ position }) => position >= from && position <= upTo)),
      ),
    waitlistHeads: async (heads) =>
      heads.flatMap(({ account, waitlist, limit }) => listHeld(memory, account, waitlist).slice(0, limit)),
    leasedByOthers: async ({ node, membership, limit }) => {
      if (membership && memory.memberships.get(node) !== membership.number) return [];
      const isMeant = ({ leasedBy, dueAt }: MessageState): boolean =>
        membership
          ? leasedBy === node && dueAt !== null && dueAt > membership.after && dueAt <= membership.until
          : leasedBy !== null && ![node, ...holders].includes(leasedBy) && dueAt !== serverEndedDueAt;
      const leased = filterRows(messages, isMeant);
      return sortByDue(leased, (a, b) => compareText(a.id, b.id)).slice(0, limit);
    },
    keptLog: async (messages) => {
      const wanted = new Set(messages.map(formatKey));
      return filterRows(keptLog, ({ account, messageId }) => wanted.has(formatKey([account, messageId]))).map(
        withBodies({ bodies: false }),
      );
    },
    usedRunIds: async (runIds) =>
      runIds.filter(
        ([account, runId]) =>
          filterRows(memory.tables.runs, (run) => run.account === account && run.runId === runId).length > 0,
      ),
    quotaCounts: async (needs) =>
      needs.map((need) => listRange(memory, readCountedRows(need.name).table, toQuotaRange(need)).length),
    expired: async ({ account, limit, countsDeadLetters = false, ...before }) => ({
      deadLetterCount: countsDeadLetters ? countOf(deadLetters, account) : 0,
      ...listExpiredRuns(memory, { account, limit, ...before }),
      usage: before.usage.flatMap((ids) => listRange(memory, "usage", { account, ...ids, limit })),
      log: listBelow(log, account, firstIdAt("log", before.logBefore)).slice(0, limit),
      keptLog: listBelow(keptLog, account, firstIdAt("log", before.keptLogBefore))
        .slice(0, limit)
        .map(withBodies({ bodies: false })),
      deadLetters: listBelow(deadLetters, account, firstIdAt("dlq", before.deadLettersBefore))
        .slice(0, limit)
        .map(withBodies({ bodies: false })),
      timeIndex: listBelow(timeIndex, account, dayPrefix(toDayNumber(before.timeIndexBefore))).slice(
        0,
        limit,
      ),
      audit: listBelow(audit, account, firstIdAt("aud", before.auditBefore)).slice(0, limit),
      deduplications: filterRows(
        deduplications,
        (row) => row.account === account && row.expiresAt < before.deduplicationsBefore,
      )
        .sort((a, b) => a.expiresAt - b.expiresAt || compareText(a.key, b.key))
        .slice(0, limit),
    }),
  };
}

function listExpiredRuns(
  { tables }: Memory,
  { account, limit, runsBefore, failedRunsBefore }: ExpiredNeed,
): { runs: Run[]; steps: Step[] } {
  const ended = (failed: boolean, before: Millis): Run[] =>
    filterRows(
      tables.runs,
      (run) =>
        run.account === account &&
        (run.state === "RUN_FAILED") === failed &&
        (run.endedAt ?? before) < before,
    )
      .sort((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0) || compareText(a.id, b.id))
      .slice(0, limit);
  const runs = [...ended(false, runsBefore), ...ended(true, failedRunsBefore)];
  const steps = runs.flatMap(({ id }) => listOfRun(tables.steps, { account, run: id }));
  return { runs, steps: steps.slice(0, limit).map(withBodies({ bodies: false })) };
}

const countOf = (rows: ReadonlyMap<string, { account: AccountId }>, account: AccountId): number =>
  [...rows.values()].filter((row) => row.account === account).length;

const listNeeds = (needs: readonly RunRowsNeed[], table: RunTableName): RunRowsNeed[] =>
  needs.filter((need) => need.table === table);

const listSteps = ({ tables: { steps } }: Memory, { stepKey, ...run }: StepsNeed): Step[] =>
  stepKey === undefined
    ? listOfRun(steps, run)
    : [steps.get(formatKey([run.account, toStepId(run.run, stepKey)])) ?? []].flat();

const matchesEvent =
  ({ event }: RunRowsNeed) =>
  (row: { event: string }): boolean =>
    event === undefined || row.event === event;

const sortHistory = (history: Step[]): Step[] => history.sort((a, b) => a.position - b.position);

const listBelow = <Row extends { account: AccountId; id: string }>(
  rows: Map<string, Row>,
  account: AccountId,
  id: string,
): Row[] =>
  filterRows(rows, (row) => row.account === account && row.id < id).sort((a, b) => compareText(a.id, b.id));
