import type { CountNeed, RunRowsNeed, StepsNeed } from "../../core/decision/command.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import { readQuotaRange } from "../../core/sending/quotas.ts";
import { toDayNumber, dayPrefix } from "../../core/search/timeIndex.ts";
import type { AccountId, LogRow } from "../../core/model/message.ts";
import { serverEndedDueAt } from "../../core/admission/lease.ts";
import { noBytes } from "../../core/model/message.ts";
import type { SentStep, Step } from "../../core/model/run.ts";
import { listRunBounds, toStepId } from "../../core/model/stepId.ts";
import type { DatabaseConnection } from "./database.ts";
import { stepRowBytes } from "../batch/historyBytes.ts";
import { createDueReader } from "./dueRows.ts";
import type { Loader } from "../batch/loader.ts";
import { toQuotaKey } from "../batch/quotaCounts.ts";
import { isIntact } from "./checksums.ts";
import { createReader, toRows, readRowsByKey, makeRangeClause, idRangeClause } from "./rows.ts";
import { compareKeys, listColumns, selectEach, selectInKeyOrder, equalsAsRange, keyValues } from "./statements.ts";
import type { Columns } from "./tables.ts";
import { tables } from "./tables.ts";

const loaders = new WeakMap<DatabaseConnection, Loader>();

export function getLoader(connection: DatabaseConnection): Loader {
  let loader = loaders.get(connection);
  if (!loader) loaders.set(connection, (loader = makeLoader(connection)));
  return loader;
}

function makeLoader(connection: DatabaseConnection): Loader {
  const { messages } = tables;
  const { dialect } = connection;
  const readList = createReader(connection);
  const leasedByOthers = `where due_at > ${serverEndedDueAt} and leased_by <> ? order by due_at, id limit ?`;
  const nodeSession = `(select id from nodes where id = ? and session = ?${dialect.lock("nodes")})`;
  // The bounds keep it from going through all that is due, or is delayed for long.
  const leasedInSession = `where due_at > ? and due_at <= ? and leased_by = ${nodeSession}
    order by due_at, id limit ?${dialect.lock(messages.name, "skip locked")}`;
  return {
    rows: (name, keys, options) => readRowsByKey(connection, name, keys, { mode: "locking", ...options }),
    due: createDueReader(connection),
    runRows: createRunRowsReader(connection),
    ...createHistoryReader(connection),
    waitlistHeads: createHeadReader(connection),
    leasedByOthers: ({ node, session, limit }) =>
      session === undefined
        ? readList(messages, leasedByOthers, [node, limit])
        : readList(messages, leasedInSession, [session.after, session.until, node, session.number, limit]),
    ...createExpiredReader(connection),
    keptLog: createKeptLogReader(connection),
    quotaCounts: createQuotaCounter(connection),
  };
}

/**
 * Where there is room, those take turns who want to count the same, and count again: each statement sees what was stored when it was asked.
 * Whoever has no room anyway makes nobody wait.
 */
function createQuotaCounter(connection: DatabaseConnection): Loader["quotaCounts"] {
  const { dialect } = connection;
  const { from, column } = dialect.givenRows(parameterTypes.quota);
  const makeCountSql = (table: "urlGroups" | "schedules" | "sources" | "tokens" | "limiters"): string => {
    const { name, key } = tables[table];
    const inRange = `${name}.account = ${column(0)} and ${name}.${key.at(-1)} > ${column(1)} and ${name}.${key.at(-1)} < ${column(2)}`;
    const limited = `select 1 as one from ${name} where ${inRange} limit ${column(3)}`;
    return `select ${column(4)} as at, (select count(*) from (${limited}) as counted) as n${from}`;
  };
  const countNeeds = async (needs: readonly CountNeed[]): Promise<number[]> => {
    const byTable = Map.groupBy(needs.entries(), ([, { name }]) => readQuotaRange(name).table);
    const found = [...byTable].map(([table, limited]) =>
      connection.each(
        makeCountSql(table),
        parameterTypes.quota,
        limited.map(([at, { account, name, limit }]) => [account, ...readQuotaRange(name).range, limit, at]),
      ),
    );
    const counts = needs.map(() => 0);
    for (const row of (await Promise.all(found)).flat()) counts[Number(row.at)] = Number(row.n);
    return counts;
  };
  return async (needs) => {
    const counts = await countNeeds(needs);
    const belowLimit = [...needs.entries()].filter(([at, { limit }]) => (counts[at] ?? 0) < limit);
    if (!dialect.lockNames || belowLimit.length === 0) return counts;
    const names = belowLimit.map(([, { account, name }]) => [toQuotaKey(account, name)]).sort(compareKeys(1));
    // Not waited for: a connection keeps the order.
    const locking = connection.each(dialect.lockNames(dialect.givenRows(["text"])), ["text"], names);
    const [recounted] = await Promise.all([countNeeds(belowLimit.map(([, need]) => need)), locking]);
    for (const [n, [at]] of belowLimit.entries()) counts[at] = recounted[n] ?? 0;
    return counts;
  };
}

/** The first of many lines: of each the index is read from its beginning. */
function createHeadReader(connection: DatabaseConnection): Loader["waitlistHeads"] {
  const { messages } = tables;
  const { dialect } = connection;
  const types = ["text", "text", "integer"] as const;
  const { also, column } = dialect.givenRows(types);
  const headSql = `select ${listColumns(messages)} from ${messages.name} ${dialect.useIndex("messages_waitlist")} where waitlist is not null
    and account = ${column(0)} and ${equalsAsRange("waitlist", column(1))} order by waitlist, id${dialect.lock(messages.name)} limit ${column(2)}`;
  const statement = selectEach({ also }, messages.name, headSql);
  return async (heads) => {
    // In the same order on all nodes.
    const waitlists = heads
      .map(({ account, waitlist, limit }): [string, string, number] => [account, waitlist, limit])
      .sort(compareWaitlists);
    return (await connection.each(statement, types, waitlists)).map((row) => messages.read(row, connection.cipher));
  };
}

const compareWaitlists = ([account, waitlist]: [string, string, number], [other, next]: [string, string, number]): number =>
  account === other ? (waitlist < next ? -1 : 1) : account < other ? -1 : 1;

/** Entries of messages in the kept log. */
function createKeptLogReader(connection: DatabaseConnection): Loader["keptLog"] {
  const { keptLog } = tables;
  const { dialect } = connection;
  const keyTypes = ["text", "text"] as const;
  const { also, column } = dialect.givenRows(keyTypes);
  const messageSql = `select ${listColumns(keptLog, { bodies: false })} from kept_log ${dialect.useIndex("kept_log_message")}
    where kept_log.account = ${column(0)} and kept_log.message_id = ${column(1)} and kept_log.id <> '' order by kept_log.id`;
  const statement = selectEach({ also }, "kept_log", messageSql);
  return async (messages) => (await connection.each(statement, keyTypes, messages.map(keyValues))).map((row) => keptLog.read(row));
}

/**
 * What is past its time. Nodes that ask for the same account take turns, so that none moves an entry to the kept log of which another one has
 * just removed the end.
 */
function createExpiredReader(connection: DatabaseConnection): Pick<Loader, "expired"> {
  const { log, deadLetters, deduplications, runs } = tables;
  const { dialect } = connection;
  const readList = createReader(connection);
  const endedRuns = `${dialect.useIndex("runs_end")} where ended_at is not null and account = ? and failed = ? and ended_at < ? order by ended_at, id limit ?${dialect.lock(runs.name)}`;
  const oldest = `where account = ? and id < ? order by id limit ?`;
  const oldestLog = async (account: AccountId, before: string, limit: number): Promise<LogRow[]> => {
    const { where, values } = makeRangeClause({ account, before }, { tableName: "log", dialect });
    return readList(log, `${where} order by id limit ?`, [...values, limit]);
  };
  const ended = `where account = ? and expires_at < ? and key <> '' order by expires_at, key limit ?`;
  const usageWithin = `${idRangeClause} limit ?${dialect.lock(tables.usage.name)}`;
  return {
    expired: async ({ account, limit, ...before }) => {
      // Not waited for: a connection keeps the order.
      const locking = dialect.lockNames
        ? connection.each(dialect.lockNames(dialect.givenRows(["text"])), ["text"], [[`log of ${account}`]])
        : null;
      const [oldLog, oldKept, oldDeadLetters, endedDeduplications, oldAudit, oldTimeIndex, succeeded, failed, usage] = await Promise.all([
        oldestLog(account, firstIdAt("log", before.logBefore), limit),
        readList(tables.keptLog, oldest, [account, firstIdAt("log", before.keptLogBefore), limit], { bodies: false }),
        readList(deadLetters, oldest + dialect.lock(deadLetters.name), [account, firstIdAt("dlq", before.deadLettersBefore), limit], {
          bodies: false,
        }),
        readList(deduplications, ended + dialect.lock(deduplications.name), [account, before.deduplicationsBefore, limit]),
        readList(tables.audit, oldest, [account, firstIdAt("aud", before.auditBefore), limit]),
        readList(tables.timeIndex, oldest, [account, dayPrefix(toDayNumber(before.timeIndexBefore)), limit]),
        readList(runs, endedRuns, [account, 0, before.runsBefore, limit]),
        readList(runs, endedRuns, [account, 1, before.failedRunsBefore, limit]),
        Promise.all(before.usage.map((ids) => readList(tables.usage, usageWithin, [account, ids.after, ids.before, limit]))),
        locking,
      ]);
      const endedRunRows = [...succeeded, ...failed];
      const steps: Step[] = [];
      for (const { id } of endedRunRows) {
        if (steps.length < limit)
          steps.push(
            ...(await readList(tables.steps, `${idRangeClause} limit ?`, [account, ...runIdRange(id), limit - steps.length], {
              bodies: false,
            })),
          );
      }
      const found = { log: oldLog, keptLog: oldKept, deadLetters: oldDeadLetters, deduplications: endedDeduplications };
      return { ...found, audit: oldAudit, timeIndex: oldTimeIndex, runs: endedRunRows, steps, usage: usage.flat() };
    },
  };
}

/** What is asked for by: an account, and a run or a stretch of ids. */
const parameterTypes = {
  run: ["text", "text"],
  range: ["text", "text", "text"],
  event: ["text", "text", "text", "text"],
  sent: ["text", "text", "text", "integer", "integer"],
  quota: ["text", "text", "text", "integer", "integer"],
} as const;

/** What belongs to runs: each table by itself, and of waiters and notifications those of one event, where no others are needed. */
function createRunRowsReader(connection: DatabaseConnection): Loader["runRows"] {
  const { messages, waiters, notifications, steps } = tables;
  const { dialect, cipher } = connection;
  const runParameters = dialect.givenRows(parameterTypes.run);
  const runMessagesSql = (
    columns: string,
  ): string => `select ${columns} from messages ${dialect.useIndex("messages_run")} where messages.run is not null
    and account = ${runParameters.column(0)} and ${equalsAsRange("run", runParameters.column(1))} order by run, id`;
  const messagesSql = selectInKeyOrder(dialect, messages, { given: runParameters, selectOne: runMessagesSql });
  const sizedNotification = `notifications.account, notifications.id, notifications.kind, notifications.event, notifications.created_at,
    coalesce(length(notifications.body), 0) as size`;
  const columns = { waiters: listColumns(waiters), notifications: sizedNotification, steps: listColumns(steps, { bodies: false }) };
  const makeRangeSql = (name: keyof typeof columns): string => {
    const { also, column } = dialect.givenRows(parameterTypes.range);
    const found = `select ${columns[name]} from ${name} where ${name}.account = ${column(0)} and ${name}.id > ${column(1)} and ${name}.id < ${column(2)}
      order by ${name}.id`;
    return selectEach({ also }, name, name === "steps" ? found : found + dialect.lock(name));
  };
  const makeEventSql = (name: "waiters" | "notifications"): string => {
    const { also, column } = dialect.givenRows(parameterTypes.event);
    const hint = name === "waiters" ? ` ${dialect.useIndex("waiters_event")}` : "";
    const found = `select ${columns[name]} from ${name}${hint} where ${name}.account = ${column(0)} and ${name}.id > ${column(1)}
      and ${name}.id < ${column(2)} and ${name}.event = ${column(3)} and ${name}.id <> '' order by ${name}.id${dialect.lock(name)}`;
    return selectEach({ also }, name, found);
  };
  const rangeSql = { waiters: makeRangeSql("waiters"), notifications: makeRangeSql("notifications"), steps: makeRangeSql("steps") };
  const eventSql = { waiters: makeEventSql("waiters"), notifications: makeEventSql("notifications") };
  return async (needs) => {
    const listRanges = (table: RunRowsNeed["table"], hasEvent: boolean): string[][] =>
      needs
        .filter((need) => need.table === table && (need.event !== undefined) === hasEvent)
        .map(({ account, run, event }) => [account, ...runIdRange(run)].concat(event ?? []))
        // In the same order on all nodes.
        .sort(compareKeys(4));
    const readBoth = async (name: keyof typeof eventSql): Promise<Columns[]> => {
      const [whole, part] = await Promise.all([
        runEach(connection, rangeSql[name], parameterTypes.range, listRanges(name, false)),
        runEach(connection, eventSql[name], parameterTypes.event, listRanges(name, true)),
      ]);
      return whole.concat(part);
    };
    const runs = needs.filter(({ table }) => table === "messages").map(({ account, run }) => [account, run]);
    const [messageRows, waiterRows, notificationRows, stepRows] = await Promise.all([
      runEach(connection, messagesSql, parameterTypes.run, runs),
      readBoth("waiters"),
      readBoth("notifications"),
      runEach(connection, rangeSql.steps, parameterTypes.range, listRanges("steps", false)),
    ]);
    return {
      messages: messageRows.map((row) => messages.read(row, cipher)),
      waiters: toRows(connection, waiters, waiterRows),
      notifications: notificationRows.map((row) => notifications.read(row, cipher)),
      steps: toRows(connection, steps, stepRows),
    };
  };
}

/** The stretch of the ids of what belongs to a run. */
function runIdRange(run: string): [string, string] {
  const { after, before } = listRunBounds(run);
  return [after, before];
}

/** Reads that take nothing away from others: histories never change. */
function createHistoryReader(connection: DatabaseConnection): Pick<Loader, "steps" | "stepSizes" | "histories"> {
  const { dialect } = connection;
  const { also, from, column } = dialect.givenRows(parameterTypes.range);
  // One step is a stretch that begins and ends with it.
  const isWithin = `steps.account = ${column(0)} and steps.id >= ${column(1)} and steps.id <= ${column(2)}`;
  const whole = selectEach({ also }, "steps", `select ${listColumns(tables.steps)} from steps where ${isWithin}`);
  const size = `select (select coalesce(sum(${stepRowBytes} + coalesce(length(steps.body), 0)), 0) from steps where ${isWithin}) as size${from}`;
  const sentParameters = dialect.givenRows(parameterTypes.sent);
  const sentSql = `select ${sentParameters.column(4)} as at, ${listColumns(tables.steps)} from steps
    where steps.account = ${sentParameters.column(0)} and steps.id > ${sentParameters.column(1)} and steps.id < ${sentParameters.column(2)} and steps.position <= ${sentParameters.column(3)}`;
  const upTo = selectEach(sentParameters, "steps", sentSql);
  const toIdRange = ({ account, run, stepKey }: StepsNeed): string[] =>
    stepKey === undefined ? [account, ...runIdRange(run)] : [account, toStepId(run, stepKey), toStepId(run, stepKey)];
  return {
    steps: async (needs) => toRows(connection, tables.steps, await runEach(connection, whole, parameterTypes.range, needs.map(toIdRange))),
    stepSizes: async (needs) =>
      (await runEach(connection, size, parameterTypes.range, needs.map(toIdRange))).map((row) => Number(row.size)),
    histories: async (needs) => {
      const parameters = needs.map((need, at) => [need.account, ...runIdRange(need.run), need.upTo, at]);
      const found = Map.groupBy(await runEach(connection, upTo, parameterTypes.sent, parameters), (row) => Number(row.at));
      const toSentSteps = (rows: readonly Columns[]): SentStep[] => rows.flatMap((row) => readIntactStep(connection, row));
      return needs.map((_, at) => toSentSteps((found.get(at) ?? []).sort((a, b) => Number(a.position) - Number(b.position))));
    },
  };
}

/** Puts nothing where nothing is asked. */
const runEach = async (
  connection: DatabaseConnection,
  ...[sql, columns, rows]: Parameters<DatabaseConnection["each"]>
): Promise<Columns[]> => (rows.length === 0 ? [] : connection.each(sql, columns, rows));

/** A step, or nothing if it is damaged: then its history has a gap. */
function readIntactStep(connection: DatabaseConnection, { at: _at, ...step }: Columns): SentStep[] {
  if (isIntact(step)) return [toSentStep(step)];
  toRows(connection, tables.steps, [step]);
  return [];
}

/** Most of a step is not looked at here, and this is on the way of every message of a run. */
const toSentStep = ({ position, message_id: messageId, call_type: callType, body }: Columns): SentStep => ({
  position: Number(position),
  messageId: String(messageId),
  callType: callType as Step["callType"],
  body: body instanceof Uint8Array ? body : noBytes,
});
