import type { ExpiredNeed, Key, OfRunNeed, Rows, RunNeed, RunTableName, StepsNeed, TableName } from "../../src/core/decision/command.ts";
import type { Commands } from "../../src/core/commands/index.ts";
import { firstIdAt } from "../../src/core/values/ids.ts";
import { placesOf } from "../../src/core/sending/quotas.ts";
import { weighingOf } from "../../src/core/accounts/storageQuota.ts";
import { dayOf, ofDay } from "../../src/core/search/timeIndex.ts";
import type { AccountId, Bytes, MessageState, Millis, NodeId } from "../../src/core/model/message.ts";
import { endedWithServer } from "../../src/core/admission/lease.ts";
import { isUnfinished, noBytes } from "../../src/core/model/message.ts";
import type { Run, Step } from "../../src/core/model/run.ts";
import type { Usage } from "../../src/core/model/counts.ts";
import { countNames, noCounts } from "../../src/core/model/counts.ts";
import { bucketsFrom } from "../../src/core/accounts/usage.ts";
import { toStepId } from "../../src/core/model/stepId.ts";
import { decideBatch, resultOf } from "../../src/store/batch/decide.ts";
import { composed } from "../../src/store/batch/compose.ts";
import type { WorkingSet } from "../../src/store/batch/workingSet.ts";
import { bytesOfRow } from "../../src/store/batch/historyBytes.ts";
import { keyOf, keyText } from "../../src/store/queries/keys.ts";
import type { Loader } from "../../src/store/batch/loader.ts";
import { rangeOf } from "../../src/store/batch/quotaCounts.ts";
import { groupCommit } from "../../src/store/batch/groupCommit.ts";
import { byText, dueIn, earliest, isDue } from "./memoryDue.ts";
import type { Parts } from "../../src/store/batch/groupCommit.ts";
import { queriesOf } from "../../src/store/queries/index.ts";
import type { Bodies, Range, RowSize, Shelf, StoredSum } from "../../src/store/queries/storageReads.ts";
import type { RunBatch, Source, Store } from "../../src/store/store.ts";
import { tableNames } from "../../src/store/store.ts";
import { StoredBytes, weightOfRow } from "../../src/store/sql/storedBytes.ts";
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
export const memoryStore = (source: Source, memory = new Memory()): Store => groupCommit(memoryParts(source, memory));

/** What a memory store is made of. `decisions` are the real ones, unless a test plants a fault to see whether it is found. */
export function memoryParts(source: Source, memory: Memory, decisions?: Commands): Parts {
  const loader = memoryLoader(memory);
  const begun = Promise.resolve(null);
  const runBatch: RunBatch = (calls, hands) => {
    const turn = memory.turn.then(async () => {
      const { set, replies, now } = await decideBatch(calls, { loader, hands, source, begun, ...(decisions && { decisions }) });
      const stored = new StoredBytes();
      for (const table of tableNames) apply(memory, table, set, stored);
      stored.addTo(set.effects.tally, (account) => set.get("accounts", account)?.deletedAt !== undefined);
      addUsage(memory, set.effects.tally.rows({ now, node: source.node }));
      return composed(loader, resultOf(set, replies));
    });
    memory.turn = turn.catch(() => undefined);
    return turn;
  };
  const nextDueAt = async () => {
    let least: Millis | null = null;
    const { messages, lines, flows, schedules, waiters } = memory.tables;
    for (const table of [messages, lines, flows, schedules, waiters]) {
      for (const { dueAt } of table.values()) if (dueAt !== null && (least === null || dueAt < least)) least = dueAt;
    }
    return least;
  };
  return { runBatch, read: queriesOf(shelfOf(memory)), nextDueAt, close: async () => undefined };
}

function apply<T extends TableName>(memory: Memory, table: T, set: WorkingSet, stored: StoredBytes): void {
  const rows: Map<string, Rows[T]> = memory.tables[table];
  const weigh = (row: Rows[T] | undefined, times: 1 | -1): void => {
    if (!row || !weighingOf(table)) return;
    const shape: Table<Rows[T]> = tables[table];
    stored.add(keyOf[table](row)[0], times * weightOfRow(table, shape.write(row)));
  };
  for (const { key, loaded, now } of set.changes(table)) {
    const text = keyText(key);
    weigh(rows.get(text), -1);
    weigh(now, 1);
    if (now === undefined) rows.delete(text);
    else if (!loaded && rows.has(text) && !tables[table].repeatable) throw new Error(`${table}: there is a row ${text} already`);
    else rows.set(text, now);
  }
}

function addUsage({ tables: { usage } }: Memory, rows: readonly Usage[]): void {
  for (const row of rows) {
    const key = keyText(keyOf.usage(row));
    const sum = { ...(usage.get(key) ?? { ...noCounts, account: row.account, id: row.id }) };
    for (const name of countNames) sum[name] += row[name];
    usage.set(key, sum);
  }
}

/** Answers needs from what is kept. */
export function memoryLoader(memory: Memory): Loader {
  const { messages, deadLetters, deduplications, log, keptLog, waiters, notifications, steps, audit, sightings } = memory.tables;
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(bodied(how)),
    due: dueIn(memory.tables),
    ofRuns: async (needs) => ({
      messages: needsIn(needs, "messages").flatMap((run) => belonging(messages, run)),
      waiters: needsIn(needs, "waiters").flatMap((run) => belonging(waiters, run).filter(isOfEvent(run))),
      notifications: needsIn(needs, "notifications")
        .flatMap((run) => belonging(notifications, run).filter(isOfEvent(run)))
        .map(bodied({ bodies: false })),
      steps: needsIn(needs, "steps")
        .flatMap((run) => belonging(steps, run))
        .map(bodied({ bodies: false })),
    }),
    steps: async (of) => of.flatMap((need) => entriesOf(memory, need)),
    sizesOfSteps: async (of) => of.map((need) => entriesOf(memory, need).reduce((sum, { body }) => sum + bytesOfRow + body.byteLength, 0)),
    histories: async (of) => of.map(({ upTo, ...run }) => inOrder(belonging(steps, run).filter(({ position }) => position <= upTo))),
    heads: async (heads) => heads.flatMap(({ account, line, limit }) => held(memory, account, line).slice(0, limit)),
    leasedByOthers: async ({ node, session, limit }) => {
      if (session && memory.sessions.get(node) !== session.number) return [];
      const isMeant = ({ leasedBy, dueAt }: MessageState): boolean =>
        session
          ? leasedBy === node && dueAt !== null && dueAt > session.after && dueAt <= session.until
          : leasedBy !== null && leasedBy !== node && dueAt !== endedWithServer;
      const leased = those(messages, isMeant);
      return earliest(leased, (a, b) => byText(a.id, b.id)).slice(0, limit);
    },
    kept: async (messages) => {
      const wanted = new Set(messages.map(keyText));
      return those(keptLog, ({ account, messageId }) => wanted.has(keyText([account, messageId]))).map(bodied({ bodies: false }));
    },
    counts: async (needs) => needs.map((need) => stretch(memory, placesOf(need.name).table, rangeOf(need)).length),
    expired: async ({ account, limit, ...before }) => ({
      ...pastRuns(memory, { account, limit, ...before }),
      usage: before.usage.flatMap((ids) => stretch(memory, "usage", { account, ...ids, limit })),
      log: below(log, account, firstIdAt("log", before.logBefore)).slice(0, limit),
      keptLog: below(keptLog, account, firstIdAt("log", before.keptLogBefore))
        .slice(0, limit)
        .map(bodied({ bodies: false })),
      deadLetters: below(deadLetters, account, firstIdAt("dlq", before.deadLettersBefore))
        .slice(0, limit)
        .map(bodied({ bodies: false })),
      sightings: below(sightings, account, ofDay(dayOf(before.sightingsBefore))).slice(0, limit),
      audit: below(audit, account, firstIdAt("aud", before.auditBefore)).slice(0, limit),
      deduplications: those(deduplications, (row) => row.account === account && row.expiresAt < before.deduplicationsBefore)
        .sort((a, b) => a.expiresAt - b.expiresAt || byText(a.key, b.key))
        .slice(0, limit),
    }),
  };
}

function pastRuns({ tables }: Memory, { account, limit, runsBefore, failedRunsBefore }: ExpiredNeed): { runs: Run[]; steps: Step[] } {
  const ended = (failed: boolean, before: Millis): Run[] =>
    those(tables.runs, (run) => run.account === account && (run.state === "RUN_FAILED") === failed && (run.endedAt ?? before) < before)
      .sort((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0) || byText(a.id, b.id))
      .slice(0, limit);
  const runs = [...ended(false, runsBefore), ...ended(true, failedRunsBefore)];
  const steps = runs.flatMap(({ id }) => belonging(tables.steps, { account, run: id }));
  return { runs, steps: steps.slice(0, limit).map(bodied({ bodies: false })) };
}

const belonging = <Row extends { account: AccountId; id: string; run: string | null }>(rows: Map<string, Row>, of: RunNeed): Row[] =>
  those(rows, (row) => row.run === of.run && row.account === of.account).sort((a, b) => byText(a.id, b.id));

const needsIn = (needs: readonly OfRunNeed[], table: RunTableName): OfRunNeed[] => needs.filter((need) => need.table === table);

const entriesOf = ({ tables: { steps } }: Memory, { slot, ...run }: StepsNeed): Step[] =>
  slot === undefined ? belonging(steps, run) : [steps.get(keyText([run.account, toStepId(run.run, slot)])) ?? []].flat();

const isOfEvent =
  ({ event }: OfRunNeed) =>
  (row: { event: string }): boolean =>
    event === undefined || row.event === event;

const inOrder = (history: Step[]): Step[] => history.sort((a, b) => a.position - b.position);

const held = ({ tables }: Memory, account: AccountId, line: string): MessageState[] =>
  those(tables.messages, (row) => row.line === line && row.account === account).sort((a, b) => byText(a.id, b.id));

const below = <Row extends { account: AccountId; id: string }>(rows: Map<string, Row>, account: AccountId, id: string): Row[] =>
  those(rows, (row) => row.account === account && row.id < id).sort((a, b) => byText(a.id, b.id));

/** Rows that pass, without a copy of all the others. */
function those<Row>(rows: Map<string, Row>, pass: (row: Row) => boolean): Row[] {
  const found: Row[] = [];
  for (const row of rows.values()) if (pass(row)) found.push(row);
  return found;
}

const bodied =
  ({ bodies }: Bodies = {}) =>
  <Row extends object>(row: Row): Row =>
    bodies === false && "body" in row ? { ...row, body: noBytes } : row;

/** The size of a row as a database would know it: its settings are JSON there. */
function sizeOf(row: object, { bodies }: Bodies): RowSize {
  const { body = noBytes, ...settings }: { body?: Bytes } = row;
  return { body: bodies === false ? 0 : body.byteLength, settings: JSON.stringify(settings).length };
}

function pick<T extends TableName>({ tables }: Memory, table: T, keys: readonly Key[]): Rows[T][] {
  const rows: Map<string, Rows[T]> = tables[table];
  return keys.flatMap((key) => rows.get(keyText(key)) ?? []);
}

function shelfOf(memory: Memory): Shelf {
  const { accounts, deduplications, messages } = memory.tables;
  return {
    rows: async (table, keys, how) => pick(memory, table, keys).map(bodied(how)),
    sizesIn: async (table, range) => stretch(memory, table, range).map((row) => sizeOf(row, range)),
    sizes: async (table, keys) => new Map(pick(memory, table, keys).map(({ id, body }) => [id, body.byteLength])),
    range: async (table, range) => stretch(memory, table, range).map(bodied(range)),
    logOf: async (messageId, range, table = "log") =>
      stretch(memory, table, { ...range, limit: Infinity })
        .filter((row) => row.messageId === messageId)
        .slice(0, range.limit)
        .map(bodied(range)),
    logsOf: async (account, messageIds, limit, table = "log") => {
      const wanted = new Set(messageIds);
      const rows = stretch(memory, table, { account, descending: true, limit: Infinity }).filter((row) => wanted.has(row.messageId));
      const byMessage = Map.groupBy(rows, ({ messageId }) => messageId);
      return [...byMessage.values()].flatMap((few) => few.slice(0, limit).map(bodied({ bodies: false })));
    },
    messagesTo: async (host, range) =>
      stretch(memory, "messages", { ...range, limit: Infinity })
        .filter((row) => row.host === host)
        .slice(0, range.limit),
    countBefore: async ({ account, line, id }, most) =>
      held(memory, account, line ?? "")
        .filter((row) => row.id < id)
        .slice(0, most).length,
    slotsOfQueue: async (account, queue, limit) =>
      stretch(memory, "slots", { account, limit: Infinity })
        .filter((row) => row.queue === queue)
        .slice(0, limit),
    holdersOf: async (account, slot, limit) =>
      stretch(memory, "messages", { account, limit: Infinity })
        .filter((row) => row.slot === slot)
        .slice(0, limit),
    accountByToken: async (hash) => [...accounts.values()].find(({ tokenHash }) => tokenHash === hash) ?? null,
    idBehind: async (table, account, newer) => stretch(memory, table, { account, descending: true, limit: newer + 1 })[newer]?.id ?? null,
    count: async (table, range) => stretch(memory, table, range).length,
    earliestRunEnd: async (account, { failed }) => {
      const ends = those(memory.tables.runs, (run) => run.account === account && (run.state === "RUN_FAILED") === failed);
      return ends.reduce<Millis | null>(
        (least, { endedAt }) => (endedAt === null || (least ?? Infinity) < endedAt ? least : endedAt),
        null,
      );
    },
    messagesOfRun: async (account, run) => belonging(messages, { account, run }),
    waitersOfEvent: async (event, range) =>
      stretch(memory, "waiters", { ...range, limit: Infinity })
        .filter((row) => row.event === event)
        .slice(0, range.limit),
    sourceBySecret: async (hash) => [...memory.tables.sources.values()].find(({ secretHash }) => secretHash === hash) ?? null,
    sealing: async () => [],
    tokenByHash: async (hash) => [...memory.tables.tokens.values()].find((one) => one.hash === hash) ?? null,
    messagesOfQueue: async ({ account, queue, limit }) =>
      those(messages, (row) => row.account === account && row.queue === queue && isUnfinished(row))
        .map(({ id }) => id)
        .sort(byText)
        .slice(0, limit),
    countLeased: async ({ account, now, until, scan }) =>
      earliest(those(messages, isDue(until)), (a, b) => byText(a.id, b.id))
        .filter(({ dueAt, leasedBy }) => dueAt !== null && dueAt > now && leasedBy !== null)
        .slice(0, scan)
        .filter((row) => row.account === account).length,
    storedBytes: async (ids, having) => ids.flatMap((account) => storedBytesOf(memory, account, having)),
    accounts: async () => [...accounts.values()].sort((a, b) => byText(a.id, b.id)),
    earliestDeduplicationEnd: async (account) => {
      const ends = those(deduplications, (row) => row.account === account).map(({ expiresAt }) => expiresAt);
      return ends.length === 0 ? null : ends.reduce((least, at) => Math.min(least, at));
    },
  };
}

function storedBytesOf(memory: Memory, account: AccountId, having: { after: string; before: string }): StoredSum[] {
  const buckets = (ids: { after: string; before: string }): Usage[] => stretch(memory, "usage", { account, ...ids, limit: Infinity });
  if (buckets(having).length === 0) return [];
  return [{ account, bytes: buckets(bucketsFrom("3h", 0)).reduce((sum, { storedBytes }) => sum + storedBytes, 0) }];
}

function stretch<T extends TableName>({ tables }: Memory, table: T, range: Range): Rows[T][] {
  const idOf = (row: Rows[T]): string => keyOf[table](row)[1] ?? "";
  const isWithin = (row: Rows[T]): boolean => {
    const [account, id = ""] = keyOf[table](row);
    return (
      account === range.account && (range.after === undefined || id > range.after) && (range.before === undefined || id < range.before)
    );
  };
  const rows = those(tables[table] as Map<string, Rows[T]>, isWithin).sort((a, b) => byText(idOf(a), idOf(b)));
  return (range.descending ? rows.reverse() : rows).slice(0, range.limit);
}
