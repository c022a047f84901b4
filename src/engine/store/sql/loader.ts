import type {
  CountNeed,
  RunNeed,
  RunRowsNeed,
  RunTableName,
  StepsNeed,
  TableName,
} from "../../core/decision/command.ts";
import { readCountedRows } from "../../core/limits/rowLimits.ts";
import { serverEndedDueAt } from "../../core/admission/lease.ts";
import { noBytes } from "../../core/values/basics.ts";
import type { SentStep, Step } from "../../core/model/run.ts";
import { listRunBounds, toStepId } from "../../core/model/stepId.ts";
import { tagPrefix, toTag } from "../../core/search/tags.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import { stepRowBytes } from "../batch/historyBytes.ts";
import { createDueReader } from "./dueRows.ts";
import { createExpiredReader } from "./expiredRows.ts";
import type { LoadedRunRows, Loader } from "../batch/loader.ts";
import { toQuotaKey } from "../batch/quotaCounts.ts";
import { isIntact } from "../layout/checksums.ts";
import { createReader, toRows, readRowNow, readRowsByKey } from "./rows.ts";
import {
  compareKeys,
  listColumns,
  selectEach,
  selectInKeyOrder,
  equalsAsRange,
  keyValues,
} from "./statements.ts";
import { holders } from "../../core/model/messageState.ts";
import type { Columns, ColumnType } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";

const loaders = new WeakMap<DatabaseConnection, Loader>();

/** Returns the loader of a connection, which is created once. */
export function getLoader(connection: DatabaseConnection): Loader {
  let loader = loaders.get(connection);
  if (!loader) loaders.set(connection, (loader = makeLoader(connection)));
  return loader;
}

function makeLoader(connection: DatabaseConnection): Loader {
  const { messages } = tables;
  const { dialect } = connection;
  const readList = createReader(connection);
  const leasedByOthers = `where due_at > ${serverEndedDueAt}
    and leased_by <> ? and leased_by not in ('${holders.join("', '")}') order by due_at, id limit ?`;
  const memberRow = `(select id from nodes where id = ? and session = ?${dialect.lock("nodes")})`;
  // The two bounds exclude rows that are due already and rows that are delayed for a long time.
  const leasedInMembership = `where due_at > ? and due_at <= ? and leased_by = ${memberRow}
    order by due_at, id limit ?${dialect.lock(messages.name, "skip locked")}`;
  return {
    rows: (name, keys, options) => readRowsByKey(connection, name, { keys, mode: "locking", ...options }),
    due: createDueReader(connection),
    ...createRunRowsReader(connection),
    ...createHistoryReader(connection),
    waitlistHeads: createHeadReader(connection),
    leasedByOthers: ({ node, membership, limit }) =>
      membership === undefined
        ? readList(messages, { rest: leasedByOthers, values: [node, limit] })
        : readList(messages, {
            rest: leasedInMembership,
            values: [membership.after, membership.until, node, membership.number, limit],
          }),
    expired: createExpiredReader(connection),
    keptLog: createKeptLogReader(connection),
    quotaCounts: createQuotaCounter(connection),
    usedRunIds: createRunIdReader(connection),
  };
}

const canReadNow = (
  connection: DatabaseConnection,
): connection is DatabaseConnection & Required<Pick<DatabaseConnection, "now">> =>
  connection.now !== undefined;

/**
 * Returns a function that counts rows up to their limits. If a count is below its limit, the transaction
 * waits for other transactions that count the same rows, and then counts again. The second count is needed
 * because a statement sees only rows that were stored when it was sent. At the limit, no transaction waits.
 */
function createQuotaCounter(connection: DatabaseConnection): Loader["quotaCounts"] {
  const { dialect } = connection;
  const { from, column } = dialect.givenRows(parameterTypes.quota);
  const makeCountSql = (table: TableName): string => {
    const { name, key } = tables[table];
    const id = `${name}.${key.at(-1)}`;
    const inRange = `${name}.account = ${column(0)} and ${id} > ${column(1)} and ${id} < ${column(2)}`;
    const limited = `select 1 as one from ${name} where ${inRange} limit ${column(3)}`;
    return `select ${column(4)} as at, (select count(*) from (${limited}) as counted) as n${from}`;
  };
  const countNeeds = async (needs: readonly CountNeed[]): Promise<number[]> => {
    const byTable = Map.groupBy(needs.entries(), ([, { name }]) => readCountedRows(name).table);
    const found = [...byTable].map(([table, limited]) =>
      connection.each(
        makeCountSql(table),
        parameterTypes.quota,
        limited.map(([at, { account, name, limit }]) => [account, ...readCountedRows(name).range, limit, at]),
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
    // The count need not wait for the answer to the lock, because a connection runs statements in order.
    const locking = connection.each(dialect.lockNames(dialect.givenRows(["text"])), ["text"], names);
    const [recounted] = await Promise.all([countNeeds(belowLimit.map(([, need]) => need)), locking]);
    for (const [n, [at]] of belowLimit.entries()) counts[at] = recounted[n] ?? 0;
    return counts;
  };
}

/**
 * Returns a function that reads the heads of many waitlists. For each waitlist, only the beginning of its
 * index is read.
 */
function createHeadReader(connection: DatabaseConnection): Loader["waitlistHeads"] {
  const { messages } = tables;
  const { dialect } = connection;
  const types = ["text", "text", "integer"] as const;
  const { also, column } = dialect.givenRows(types);
  const columns = listColumns(messages);
  const headSql = `select ${columns} from ${messages.name} ${dialect.useIndex("messages_waitlist")}
    where waitlist is not null and account = ${column(0)} and ${equalsAsRange("waitlist", column(1))}
    order by waitlist, id${dialect.lock(messages.name)} limit ${column(2)}`;
  const statement = selectEach({ also }, messages.name, headSql);
  return async (heads) => {
    // All nodes use the same order, so that they do not deadlock.
    const waitlists = heads
      .map(({ account, waitlist, limit }): [string, string, number] => [account, waitlist, limit])
      .sort(compareWaitlists);
    return (await connection.each(statement, types, waitlists)).map((row) =>
      messages.read(row, connection.cipher),
    );
  };
}

const compareWaitlists = (
  [account, waitlist]: [string, string, number],
  [other, next]: [string, string, number],
): number => (account === other ? (waitlist < next ? -1 : 1) : account < other ? -1 : 1);

/** Returns a function that reads the entries of messages in the kept log. */
function createKeptLogReader(connection: DatabaseConnection): Loader["keptLog"] {
  const { keptLog } = tables;
  const { dialect } = connection;
  const keyTypes = ["text", "text"] as const;
  const { also, column } = dialect.givenRows(keyTypes);
  const columns = listColumns(keptLog, { bodies: false });
  const messageSql = `select ${columns} from kept_log ${dialect.useIndex("kept_log_message")}
    where kept_log.account = ${column(0)} and kept_log.message_id = ${column(1)} and kept_log.id <> ''
    order by kept_log.id`;
  const statement = selectEach({ also }, "kept_log", messageSql);
  return async (messages) =>
    (await connection.each(statement, keyTypes, messages.map(keyValues))).map((row) => keptLog.read(row));
}

/** Returns a function that finds the ids of stored runs by the tags of the runs. */
function createRunIdReader(connection: DatabaseConnection): Loader["usedRunIds"] {
  const { also, column } = connection.dialect.givenRows(parameterTypes.runId);
  const statement = selectEach(
    { also },
    "used",
    `select ${column(0)} as account, ${column(1)} as run_id from tags
      where tags.account = ${column(0)} and tags.id > ${column(2)} and tags.id < ${column(3)} limit 1`,
  );
  return async (runIds) => {
    const parameters = runIds.map(([account, id = ""]) => {
      const prefix = tagPrefix("runs", toTag.run(id));
      return [account, id, prefix, `${prefix}~`];
    });
    const found = await connection.each(statement, parameterTypes.runId, parameters);
    return found.map((row) => [String(row.account), String(row.run_id)] as const);
  };
}

/** The types of the parameters of the statements below. The first parameter is always an account. */
const parameterTypes = {
  run: ["text", "text"],
  range: ["text", "text", "text"],
  event: ["text", "text", "text", "text"],
  runId: ["text", "text", "text", "text"],
  sent: ["text", "text", "text", "integer", "integer", "integer"],
  quota: ["text", "text", "text", "integer", "integer"],
} as const;

/**
 * Returns the reads of the rows of runs, each table separately. If a need names an event, only the waiters or
 * notifications of that event are read.
 */
function createRunRowsReader(connection: DatabaseConnection): Pick<Loader, "runRows" | "now"> {
  const { messages, waiters, notifications, steps } = tables;
  const { dialect, cipher } = connection;
  const statements = makeRunRowsStatements(dialect);
  const toLoaded = (found: (table: RunTableName) => Columns[]): LoadedRunRows => ({
    messages: found("messages").map((row) => messages.read(row, cipher)),
    waiters: toRows(connection, waiters, found("waiters")),
    notifications: found("notifications").map((row) => notifications.read(row, cipher)),
    steps: toRows(connection, steps, found("steps")),
  });
  return {
    runRows: async (needs) => {
      const results = await Promise.all(
        statements.map(({ sql, types, reads, toParameters }) =>
          // All nodes use the same order, so that they do not deadlock.
          runEach(connection, sql, types, needs.filter(reads).map(toParameters).sort(compareKeys(4))),
        ),
      );
      return toLoaded((table) =>
        results.flatMap((rows, at) => (statements[at]?.table === table ? rows : [])),
      );
    },
    now: canReadNow(connection)
      ? {
          row: (name, key, options) => readRowNow(connection, name, { key, ...options }),
          runRows: (need) => {
            const statement = statements.find(({ reads }) => reads(need));
            const rows = statement ? connection.now(statement.sql, statement.toParameters(need)) : [];
            return toLoaded((table) => (table === need.table ? rows : []));
          },
        }
      : null,
  };
}

/** A statement that reads rows of one table for the needs that `reads` accepts. */
type RunRowsStatement = {
  table: RunTableName;
  sql: string;
  types: readonly ColumnType[];
  reads(need: RunRowsNeed): boolean;
  toParameters(need: RunRowsNeed): string[];
};

/** Returns the statements in the order in which every transaction runs them. */
function makeRunRowsStatements(dialect: Dialect): RunRowsStatement[] {
  const { messages, waiters, notifications, steps } = tables;
  const runParameters = dialect.givenRows(parameterTypes.run);
  const isOfRun =
    `messages.run is not null and account = ${runParameters.column(0)}` +
    ` and ${equalsAsRange("run", runParameters.column(1))}`;
  const runMessagesSql = (columns: string): string =>
    `select ${columns} from messages ${dialect.useIndex("messages_run")} where ${isOfRun} order by run, id`;
  const sizedNotification = `${listColumns(notifications, { bodies: false })},
    coalesce(length(notifications.body), 0) as size`;
  const columns = {
    waiters: listColumns(waiters),
    notifications: sizedNotification,
    steps: listColumns(steps, { bodies: false }),
  };
  const makeRangeSql = (name: keyof typeof columns): string => {
    const { also, column } = dialect.givenRows(parameterTypes.range);
    const found = `select ${columns[name]} from ${name} where ${name}.account = ${column(0)}
      and ${name}.id > ${column(1)} and ${name}.id < ${column(2)} order by ${name}.id`;
    return selectEach({ also }, name, name === "steps" ? found : found + dialect.lock(name));
  };
  const makeEventSql = (name: "waiters" | "notifications"): string => {
    const { also, column } = dialect.givenRows(parameterTypes.event);
    const hint = name === "waiters" ? ` ${dialect.useIndex("waiters_event")}` : "";
    const found = `select ${columns[name]} from ${name}${hint} where ${name}.account = ${column(0)}
      and ${name}.id > ${column(1)} and ${name}.id < ${column(2)} and ${name}.event = ${column(3)}
      and ${name}.id <> '' order by ${name}.id${dialect.lock(name)}`;
    return selectEach({ also }, name, found);
  };
  const toRange = ({ account, run }: RunNeed): string[] => [account, ...runIdRange(run)];
  const ofRun = (name: keyof typeof columns): RunRowsStatement => ({
    table: name,
    sql: makeRangeSql(name),
    types: parameterTypes.range,
    reads: ({ table, event }) => table === name && event === undefined,
    toParameters: toRange,
  });
  const ofEvent = (name: "waiters" | "notifications"): RunRowsStatement => ({
    table: name,
    sql: makeEventSql(name),
    types: parameterTypes.event,
    reads: ({ table, event }) => table === name && event !== undefined,
    toParameters: (need) => [...toRange(need), need.event ?? ""],
  });
  const ofMessages: RunRowsStatement = {
    table: "messages",
    sql: selectInKeyOrder(dialect, messages, { keyRows: runParameters, selectOne: runMessagesSql }),
    types: parameterTypes.run,
    reads: ({ table }) => table === "messages",
    toParameters: ({ account, run }) => [account, run],
  };
  return [
    ofMessages,
    ofRun("waiters"),
    ofEvent("waiters"),
    ofRun("notifications"),
    ofEvent("notifications"),
    ofRun("steps"),
  ];
}

/** Returns the range of ids that contains the rows of a run. */
function runIdRange(run: string): [string, string] {
  const { after, before } = listRunBounds(run);
  return [after, before];
}

/** Returns the reads of histories. They take no locks, because histories never change. */
function createHistoryReader(
  connection: DatabaseConnection,
): Pick<Loader, "steps" | "stepSizes" | "histories"> {
  const { dialect } = connection;
  const { also, from, column } = dialect.givenRows(parameterTypes.range);
  // A single step is a range that begins and ends with its id.
  const isWithin = `steps.account = ${column(0)} and steps.id >= ${column(1)} and steps.id <= ${column(2)}`;
  const whole = selectEach(
    { also },
    "steps",
    `select ${listColumns(tables.steps)} from steps where ${isWithin}`,
  );
  const sum = `coalesce(sum(${stepRowBytes} + coalesce(length(steps.body), 0)), 0)`;
  const size = `select (select ${sum} from steps where ${isWithin}) as size${from}`;
  const sent = dialect.givenRows(parameterTypes.sent);
  const sentSql = `select ${sent.column(5)} as at, ${listColumns(tables.steps)} from steps
    where steps.account = ${sent.column(0)} and steps.id > ${sent.column(1)} and steps.id < ${sent.column(2)}
    and steps.position >= ${sent.column(3)} and steps.position <= ${sent.column(4)}`;
  const upTo = selectEach(sent, "steps", sentSql);
  const toIdRange = ({ account, run, stepKey }: StepsNeed): string[] =>
    stepKey === undefined
      ? [account, ...runIdRange(run)]
      : [account, toStepId(run, stepKey), toStepId(run, stepKey)];
  return {
    steps: async (needs) =>
      toRows(
        connection,
        tables.steps,
        await runEach(connection, whole, parameterTypes.range, needs.map(toIdRange)),
      ),
    stepSizes: async (needs) =>
      (await runEach(connection, size, parameterTypes.range, needs.map(toIdRange))).map((row) =>
        Number(row.size),
      ),
    histories: async (needs) => {
      const parameters = needs.map((need, at) => [
        need.account,
        ...runIdRange(need.run),
        need.from,
        need.upTo,
        at,
      ]);
      const found = Map.groupBy(await runEach(connection, upTo, parameterTypes.sent, parameters), (row) =>
        Number(row.at),
      );
      const toSentSteps = (rows: readonly Columns[]): SentStep[] =>
        rows.flatMap((row) => readIntactStep(connection, row));
      return needs.map((_, at) =>
        toSentSteps((found.get(at) ?? []).sort((a, b) => Number(a.position) - Number(b.position))),
      );
    },
  };
}

/** Like `each` of a connection, but runs no statement if there are no rows. */
const runEach = async (
  connection: DatabaseConnection,
  ...[sql, columns, rows]: Parameters<DatabaseConnection["each"]>
): Promise<Columns[]> => (rows.length === 0 ? [] : connection.each(sql, columns, rows));

/** Returns a step, or nothing if it is damaged. Its history then has a gap. */
function readIntactStep(connection: DatabaseConnection, { at: _at, ...step }: Columns): SentStep[] {
  if (isIntact(step)) return [toSentStep(step)];
  toRows(connection, tables.steps, [step]);
  return [];
}

/** Reads only the columns of a step that are sent, because this function runs for every message of a run. */
const toSentStep = ({ position, message_id: messageId, call_type: callType, body }: Columns): SentStep => ({
  position: Number(position),
  messageId: String(messageId),
  callType: callType as Step["callType"],
  body: body instanceof Uint8Array ? body : noBytes,
});
