import type { ExpiredNeed, Key, RunRowsNeed, Rows, RunNeed, RunTableName, StepsNeed, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import { firstIdAt } from "../../src/core/values/ids.ts";
import { readQuotaRange } from "../../src/core/sending/quotas.ts";
import { findWeighedColumns } from "../../src/core/accounts/storageQuota.ts";
import { toDayNumber, dayPrefix } from "../../src/core/search/timeIndex.ts";
import type { AccountId, Bytes, MessageState, Millis, NodeId } from "../../src/core/model/message.ts";
import { serverEndedDueAt } from "../../src/core/admission/lease.ts";
import { isUnfinished, noBytes } from "../../src/core/model/message.ts";
import type { Run, Step } from "../../src/core/model/run.ts";
import type { Usage } from "../../src/core/model/counts.ts";
import { countNames, noCounts } from "../../src/core/model/counts.ts";
import { bucketRangeFrom } from "../../src/core/accounts/usage.ts";
import { toStepId } from "../../src/core/model/stepId.ts";
import { decideBatch, makeBatchResult } from "../../src/store/batch/decide.ts";
import { withHistoryBodies } from "../../src/store/batch/historyBodies.ts";
import type { WorkingSet } from "../../src/store/batch/workingSet.ts";
import { stepRowBytes } from "../../src/store/batch/historyBytes.ts";
import { toKey, formatKey } from "../../src/store/queries/keys.ts";
import type { Loader } from "../../src/store/batch/loader.ts";
import { toQuotaRange } from "../../src/store/batch/quotaCounts.ts";
import { createGroupCommitStore } from "../../src/store/batch/groupCommit.ts";
import { compareText, createDueReader, sortByDue, isDue } from "./memoryDue.ts";
import type { StoreBackend } from "../../src/store/batch/groupCommit.ts";
import { createQueries } from "../../src/store/queries/index.ts";
import type { BodyOptions, Range, RowSize, StorageReads, StoredSum } from "../../src/store/queries/storageReads.ts";
import type { RunBatch, MomentSource, Store } from "../../src/store/store.ts";
import { tableNames } from "../../src/store/store.ts";
import { StoredBytes, weighColumns } from "../../src/store/sql/storedBytes.ts";
import type { Table } from "../../src/store/sql/tables.ts";
import { tables } from "../../src/store/sql/tables.ts";

type Tables = { [T in TableName]: Map<string, Rows[T]> };

/** What a memory store keeps, apart from any node, so that several may share it and outlive each other. */
export class Memory {
  readonly tables = Object.fromEntries(tableNames.map((name) => [name, new Map()])) as unknown as Tables;
  /** The number of each node's latest session: see `core/nodes/takeover.ts`. */
  readonly sessions = new Map<NodeId, number>();
  /** Batches of all nodes, one after another. */
  turn: Promise<unknown> = Promise.resolve();
}

/** The reference: what every store must behave like, with nothing but maps. Kept for tests and simulation. */
export const memoryStore = (source: MomentSource, memory = new Memory()): Store => createGroupCommitStore(memoryParts(source, memory));

/** What a memory store is made of. `decisions` are the real ones, unless a test plants a fault to see whether it is found. */
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
        ...(decisions && { decisions }),
      });
      const stored = new StoredBytes();
      for (const table of tableNames) apply(memory, table, set, stored);
      stored.addTo(set.effects.usage, (account) => set.get("accounts", account)?.deletedAt !== undefined);
      addUsage(memory, set.effects.usage.rows({ now, node: momentSource.node }));
      return withHistoryBodies(loader, makeBatchResult(set, replies));
    });
    memory.turn = turn.catch(() => undefined);
    return turn;
  };
  const nextDueAt = async () => {
    let least: Millis | null = null;
    const { messages, hostWaitlists, limiters, schedules, waiters } = memory.tables;
    for (const table of [messages, hostWaitlists, limiters, schedules, waiters]) {
      for (const { dueAt } of table.values()) if (dueAt !== null && (least === null || dueAt < least)) least = dueAt;
    }
    return least;
  };
  return { runBatch, read: createQueries(createStorageReads(memory)), nextDueAt, close: async () => undefined };
}

function apply<T extends TableName>(memory: Memory, table: T, set: WorkingSet, stored: StoredBytes): void {
  const rows: Map<string, Rows[T]> = memory.tables[table];
  const weigh = (row: Rows[T] | undefined, times: 1 | -1): void => {
    if (!row || !findWeighedColumns(table)) return;
    const shape: Table<Rows[T]> = tables[table];
    stored.add(toKey[table](row)[0], times * weighColumns(table, shape.write(row)));
  };
  for (const { key, loaded, now } of set.changes(table)) {
    const text = formatKey(key);
    weigh(rows.get(text), -1);
    weigh(now, 1);
    if (now === undefined) rows.delete(text);
    else if (!loaded && rows.has(text) && !tables[table].idempotent) throw new Error(`${table}: there is a row ${text} already`);
    else rows.set(text, now);
  }
}

function addUsage({ tables: { usage } }: Memory, rows: readonly Usage[]): void {
  for (const row of rows) {
    const key = formatKey(toKey.usage(row));
    const sum = { ...(usage.get(key) ?? { ...noCounts, account: row.account, id: row.id }) };
    for (const name of countNames) sum[name] += row[name];
    usage.set(key, sum);
  }
}

/** Answers needs from what is kept. */
export function memoryLoader(memory: Memory): Loader {
  const { messages, deadLetters, deduplications, log, keptLog, waiters, notifications, steps, audit, timeIndex } = memory.tables;
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(withBodies(how)),
    due: createDueReader(memory.tables),
    runRows: async (needs) => ({
      messages: listNeeds(needs, "messages").flatMap((run) => listOfRun(messages, run)),
      waiters: listNeeds(needs, "waiters").flatMap((run) => listOfRun(waiters, run).filter(matchesEvent(run))),
      notifications: listNeeds(needs, "notifications")
        .flatMap((run) => listOfRun(notifications, run).filter(matchesEvent(run)))
        .map(withBodies({ bodies: false })),
      steps: listNeeds(needs, "steps")
        .flatMap((run) => listOfRun(steps, run))
        .map(withBodies({ bodies: false })),
    }),
    steps: async (of) => of.flatMap((need) => listSteps(memory, need)),
    stepSizes: async (of) => of.map((need) => listSteps(memory, need).reduce((sum, { body }) => sum + stepRowBytes + body.byteLength, 0)),
    histories: async (of) => of.map(({ upTo, ...run }) => sortHistory(listOfRun(steps, run).filter(({ position }) => position <= upTo))),
    waitlistHeads: async (heads) => heads.flatMap(({ account, waitlist, limit }) => listHeld(memory, account, waitlist).slice(0, limit)),
    leasedByOthers: async ({ node, session, limit }) => {
      if (session && memory.sessions.get(node) !== session.number) return [];
      const isMeant = ({ leasedBy, dueAt }: MessageState): boolean =>
        session
          ? leasedBy === node && dueAt !== null && dueAt > session.after && dueAt <= session.until
          : leasedBy !== null && leasedBy !== node && dueAt !== serverEndedDueAt;
      const leased = filterRows(messages, isMeant);
      return sortByDue(leased, (a, b) => compareText(a.id, b.id)).slice(0, limit);
    },
    keptLog: async (messages) => {
      const wanted = new Set(messages.map(formatKey));
      return filterRows(keptLog, ({ account, messageId }) => wanted.has(formatKey([account, messageId]))).map(
        withBodies({ bodies: false }),
      );
    },
    quotaCounts: async (needs) => needs.map((need) => listRange(memory, readQuotaRange(need.name).table, toQuotaRange(need)).length),
    expired: async ({ account, limit, ...before }) => ({
      ...listExpiredRuns(memory, { account, limit, ...before }),
      usage: before.usage.flatMap((ids) => listRange(memory, "usage", { account, ...ids, limit })),
      log: listBelow(log, account, firstIdAt("log", before.logBefore)).slice(0, limit),
      keptLog: listBelow(keptLog, account, firstIdAt("log", before.keptLogBefore))
        .slice(0, limit)
        .map(withBodies({ bodies: false })),
      deadLetters: listBelow(deadLetters, account, firstIdAt("dlq", before.deadLettersBefore))
        .slice(0, limit)
        .map(withBodies({ bodies: false })),
      timeIndex: listBelow(timeIndex, account, dayPrefix(toDayNumber(before.timeIndexBefore))).slice(0, limit),
      audit: listBelow(audit, account, firstIdAt("aud", before.auditBefore)).slice(0, limit),
      deduplications: filterRows(deduplications, (row) => row.account === account && row.expiresAt < before.deduplicationsBefore)
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
    filterRows(tables.runs, (run) => run.account === account && (run.state === "RUN_FAILED") === failed && (run.endedAt ?? before) < before)
      .sort((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0) || compareText(a.id, b.id))
      .slice(0, limit);
  const runs = [...ended(false, runsBefore), ...ended(true, failedRunsBefore)];
  const steps = runs.flatMap(({ id }) => listOfRun(tables.steps, { account, run: id }));
  return { runs, steps: steps.slice(0, limit).map(withBodies({ bodies: false })) };
}

const listOfRun = <Row extends { account: AccountId; id: string; run: string | null }>(rows: Map<string, Row>, of: RunNeed): Row[] =>
  filterRows(rows, (row) => row.run === of.run && row.account === of.account).sort((a, b) => compareText(a.id, b.id));

const listNeeds = (needs: readonly RunRowsNeed[], table: RunTableName): RunRowsNeed[] => needs.filter((need) => need.table === table);

const listSteps = ({ tables: { steps } }: Memory, { stepKey, ...run }: StepsNeed): Step[] =>
  stepKey === undefined ? listOfRun(steps, run) : [steps.get(formatKey([run.account, toStepId(run.run, stepKey)])) ?? []].flat();

const matchesEvent =
  ({ event }: RunRowsNeed) =>
  (row: { event: string }): boolean =>
    event === undefined || row.event === event;

const sortHistory = (history: Step[]): Step[] => history.sort((a, b) => a.position - b.position);

const listHeld = ({ tables }: Memory, account: AccountId, line: string): MessageState[] =>
  filterRows(tables.messages, (row) => row.waitlist === line && row.account === account).sort((a, b) => compareText(a.id, b.id));

const listBelow = <Row extends { account: AccountId; id: string }>(rows: Map<string, Row>, account: AccountId, id: string): Row[] =>
  filterRows(rows, (row) => row.account === account && row.id < id).sort((a, b) => compareText(a.id, b.id));

/** Rows that pass, without a copy of all the others. */
function filterRows<Row>(rows: Map<string, Row>, pass: (row: Row) => boolean): Row[] {
  const found: Row[] = [];
  for (const row of rows.values()) if (pass(row)) found.push(row);
  return found;
}

const withBodies =
  ({ bodies }: BodyOptions = {}) =>
  <Row extends object>(row: Row): Row =>
    bodies === false && "body" in row ? { ...row, body: noBytes } : row;

/** The size of a row as a database would know it: its settings are JSON there. */
function measureRow(row: object, { bodies }: BodyOptions): RowSize {
  const { body = noBytes, ...settings }: { body?: Bytes } = row;
  return { body: bodies === false ? 0 : body.byteLength, settings: JSON.stringify(settings).length };
}

function pick<T extends TableName>({ tables }: Memory, table: T, keys: readonly Key[]): Rows[T][] {
  const rows: Map<string, Rows[T]> = tables[table];
  return keys.flatMap((key) => rows.get(formatKey(key)) ?? []);
}

function createStorageReads(memory: Memory): StorageReads {
  const { accounts, deduplications, messages } = memory.tables;
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(withBodies(how)),
    rangeSizes: async (table, range) => listRange(memory, table, range).map((row) => measureRow(row, range)),
    sizes: async (table, keys) => new Map(pick(memory, table, keys).map(({ id, body }) => [id, body.byteLength])),
    range: async (table, range) => listRange(memory, table, range).map(withBodies(range)),
    messageLog: async (messageId, range, table = "log") =>
      listRange(memory, table, { ...range, limit: Infinity })
        .filter((row) => row.messageId === messageId)
        .slice(0, range.limit)
        .map(withBodies(range)),
    messageLogs: async (account, messageIds, limit, table = "log") => {
      const wanted = new Set(messageIds);
      const rows = listRange(memory, table, { account, descending: true, limit: Infinity }).filter((row) => wanted.has(row.messageId));
      const byMessage = Map.groupBy(rows, ({ messageId }) => messageId);
      return [...byMessage.values()].flatMap((few) => few.slice(0, limit).map(withBodies({ bodies: false })));
    },
    messagesToHost: async (host, range) =>
      listRange(memory, "messages", { ...range, limit: Infinity })
        .filter((row) => row.host === host)
        .slice(0, range.limit),
    countAhead: async ({ account, waitlist, id }, max) =>
      listHeld(memory, account, waitlist ?? "")
        .filter((row) => row.id < id)
        .slice(0, max).length,
    queueSlots: async (account, queue, limit) =>
      listRange(memory, "queueSlots", { account, limit: Infinity })
        .filter((row) => row.queue === queue)
        .slice(0, limit),
    slotHolders: async (account, slot, limit) =>
      listRange(memory, "messages", { account, limit: Infinity })
        .filter((row) => row.slot === slot)
        .slice(0, limit),
    accountByToken: async (hash) => [...accounts.values()].find(({ tokenHash }) => tokenHash === hash) ?? null,
    findIdBehind: async (table, account, newer) =>
      listRange(memory, table, { account, descending: true, limit: newer + 1 })[newer]?.id ?? null,
    count: async (table, range) => listRange(memory, table, range).length,
    earliestRunEnd: async (account, { failed }) => {
      const ends = filterRows(memory.tables.runs, (run) => run.account === account && (run.state === "RUN_FAILED") === failed);
      return ends.reduce<Millis | null>(
        (least, { endedAt }) => (endedAt === null || (least ?? Infinity) < endedAt ? least : endedAt),
        null,
      );
    },
    runMessages: async (account, run) => listOfRun(messages, { account, run }),
    eventWaiters: async (event, range) =>
      listRange(memory, "waiters", { ...range, limit: Infinity })
        .filter((row) => row.event === event)
        .slice(0, range.limit),
    sourceBySecret: async (hash) => [...memory.tables.sources.values()].find(({ secretHash }) => secretHash === hash) ?? null,
    encryptionStatus: async () => [],
    tokenByHash: async (hash) => [...memory.tables.tokens.values()].find((one) => one.hash === hash) ?? null,
    queueMessages: async ({ account, queue, limit }) =>
      filterRows(messages, (row) => row.account === account && row.queue === queue && isUnfinished(row))
        .map(({ id }) => id)
        .sort(compareText)
        .slice(0, limit),
    countLeased: async ({ account, now, until, scan }) =>
      sortByDue(filterRows(messages, isDue(until)), (a, b) => compareText(a.id, b.id))
        .filter(({ dueAt, leasedBy }) => dueAt !== null && dueAt > now && leasedBy !== null)
        .slice(0, scan)
        .filter((row) => row.account === account).length,
    storedBytes: async (ids, having) => ids.flatMap((account) => sumStoredBytes(memory, account, having)),
    accounts: async () => [...accounts.values()].sort((a, b) => compareText(a.id, b.id)),
    earliestDeduplicationEnd: async (account) => {
      const ends = filterRows(deduplications, (row) => row.account === account).map(({ expiresAt }) => expiresAt);
      return ends.length === 0 ? null : ends.reduce((least, at) => Math.min(least, at));
    },
  };
}

function sumStoredBytes(memory: Memory, account: AccountId, having: { after: string; before: string }): StoredSum[] {
  const buckets = (ids: { after: string; before: string }): Usage[] => listRange(memory, "usage", { account, ...ids, limit: Infinity });
  if (buckets(having).length === 0) return [];
  return [{ account, bytes: buckets(bucketRangeFrom("3h", 0)).reduce((sum, { storedBytes }) => sum + storedBytes, 0) }];
}

function listRange<T extends TableName>({ tables }: Memory, table: T, range: Range): Rows[T][] {
  const idOf = (row: Rows[T]): string => toKey[table](row)[1] ?? "";
  const isWithin = (row: Rows[T]): boolean => {
    const [account, id = ""] = toKey[table](row);
    return (
      account === range.account && (range.after === undefined || id > range.after) && (range.before === undefined || id < range.before)
    );
  };
  const rows = filterRows(tables[table] as Map<string, Rows[T]>, isWithin).sort((a, b) => compareText(idOf(a), idOf(b)));
  return (range.descending ? rows.reverse() : rows).slice(0, range.limit);
}
