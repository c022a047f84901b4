import type { Rows } from "../../core/decision/command.ts";
import { listRunBounds } from "../../core/model/stepId.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import type { Millis } from "../../core/values/basics.ts";
import type { DatabaseConnection } from "./database.ts";
import { readKeyVersion } from "../catalog/encryptedColumns.ts";
import type {
  LogName,
  MessageLogsNeed,
  OldestDue,
  Range,
  RowSize,
  EncryptedTableName,
  EncryptionStatus,
  EncryptionRange,
  StorageReads,
  SizedName,
  WorkTableName,
  RunsNeed,
} from "../layout/storageReads.ts";
import { dueKinds } from "../layout/storageReads.ts";
import { countRange, createReader, readRowsByKey, makeRangeClause } from "./rows.ts";
import { listColumns, selectEach, keyValues, getStatements } from "./statements.ts";
import type { Columns, Table, Value } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";
import { createFigureReads } from "./counts.ts";
import { createTagReads } from "./tagReads.ts";
import { createPauseReads, createUnfinishedReads } from "./unfinishedReads.ts";

/** For each kind of rows that become due, where the earliest due time is. Each condition has an index. */
const dueRowsSql: { readonly [K in keyof OldestDue]: string } = {
  messages: "messages where leased_by is null and due_at is not null and id <> ''",
  leases: "messages where leased_by is not null",
  hostWaitlists: "host_waitlists",
  limiters: "limiters where due_at is not null",
  schedules: "schedules where due_at is not null",
  waiters: "waiters where due_at is not null",
};
const earliestSql = dueKinds.map((kind) => `select min(due_at) as due_at from ${dueRowsSql[kind]}`);
const nextDueSql = `select min(due_at) as at from (${earliestSql.join(" union all ")}) as earliest`;
const oldestDueSql = `select ${earliestSql.map((sql, at) => `(${sql}) as at${at}`).join(", ")}`;

/** Returns the earliest due time of each kind of rows. */
async function readOldestDue(connection: DatabaseConnection): Promise<OldestDue> {
  const [row] = await connection.query(oldestDueSql, []);
  const entries = dueKinds.map((kind, at) => {
    const dueAt = row?.[`at${at}`];
    return [kind, typeof dueAt === "number" ? dueAt : null] as const;
  });
  return Object.fromEntries(entries) as OldestDue;
}

/** Returns when the next message, waitlist, limiter, schedule or waiter is due, or null if none is. */
export async function readNextDueAt(connection: DatabaseConnection): Promise<Millis | null> {
  const [row] = await connection.query(nextDueSql, []);
  return typeof row?.at === "number" ? row.at : null;
}

const countLeasedSql = `select count(*) as leased from (
  select account from messages where leased_by is not null and due_at > ? and due_at <= ?
    order by due_at, id limit ?) as soon where account = ?`;

/** Returns the reads that count rows and bytes. */
const createCounts = (
  connection: DatabaseConnection,
): Pick<StorageReads, "findIdBehind" | "count" | "storedBytes"> => ({
  findIdBehind: async (name, account, newer) => {
    const { where, values } = makeRangeClause({ account }, { tableName: name, dialect: connection.dialect });
    const newest = `select id from ${tables[name].name} ${where} order by id desc limit 1 offset ?`;
    const [row] = await connection.query(newest, [...values, newer]);
    return row ? String(row.id) : null;
  },
  count: (name, range) => countRange(connection, name, range),
  storedBytes: createStoredBytesReader(connection),
});

/** The index by which log entries are found by message, and the condition of that index on PostgreSQL. */
const messageIndex = { log: "log_message", keptLog: "kept_log_message" } as const;
const messageIndexCondition = { log: "", keptLog: "and id <> ''" } as const;

/** Returns the plain reads of a database. */
export function createSqlReads(connection: DatabaseConnection): StorageReads {
  const read = createReader(connection);
  const { dialect } = connection;
  return {
    rows: async (name, keys, options) =>
      keys.length === 0 ? [] : readRowsByKey(connection, name, { keys, mode: "plain", ...options }),
    sizes: async (name, keys) => {
      if (keys.length === 0) return new Map();
      const { sizes, keyTypes } = getStatements(connection.dialect, name);
      const found = await connection.each(sizes, keyTypes, keys.map(keyValues));
      return new Map(found.map(({ id, size }) => [String(id), Number(size)]));
    },
    rangeSizes: (name, range) => readRangeSizes(connection, name, range),
    range: async (name, range) => {
      const id = tables[name].key.at(-1) ?? "id";
      const { where, values } = makeRangeClause(range, { tableName: name, dialect });
      return read(tables[name], {
        rest: `${where} order by ${id} ${range.descending ? "desc" : "asc"} limit ?`,
        values: [...values, range.limit],
        bodies: range.bodies,
      });
    },
    messageLog: (messageId, range, table = "log") => {
      const { where, values } = makeRangeClause(range, { tableName: table, dialect });
      const isWanted = `${where} and message_id = ? ${messageIndexCondition[table]}`;
      const order = `order by id ${range.descending ? "desc" : "asc"} limit ?`;
      return read(tables[table], {
        rest: `${dialect.useIndex(messageIndex[table])} ${isWanted} ${order}`,
        values: [...values, messageId, range.limit],
        bodies: range.bodies,
      });
    },
    messageLogs: (need, table) => readMessageLogs(connection, need, table),
    ...createUnfinishedReads(connection),
    ...createPauseReads(connection),
    ...createQueueReads(connection),
    accounts: () => read(tables.accounts, { rest: "order by id", values: [] }),
    ...createCounts(connection),
    ...createFigureReads(connection),
    oldestDue: () => readOldestDue(connection),
    encryptionStatus: (name, range) => readEncryptionStatus(connection, name, range),
    dueWork: (name, now, limit) =>
      readWork(connection, name, {
        rest: "where due_at is not null and due_at <= ? order by due_at, account, id limit ?",
        values: [now, limit],
      }),
    ...createReadsByHash(connection),
    countLeased: async ({ account, now, until, scan }) => {
      const [row] = await connection.query(countLeasedSql, [now, until, scan, account]);
      return Number(row?.leased ?? 0);
    },
    ...createRunReads(connection),
    ...createTagReads(connection),
    earliestDeduplicationEnd: async (account) => {
      const [row] = await connection.query(
        `select min(expires_at) as at from deduplications where account = ? and key <> ''`,
        [account],
      );
      return typeof row?.at === "number" ? row.at : null;
    },
  };
}

/** Reads rows of a table of work. */
const readWork = <T extends WorkTableName>(
  connection: DatabaseConnection,
  name: T,
  rest: { rest: string; values: Value[] },
): Promise<Rows[T][]> => {
  const table: Table<Rows[T]> = tables[name];
  return createReader(connection)(table, rest);
};

/** Returns the reads that find an account, a token or a source by the hash of its secret. */
function createReadsByHash(
  connection: DatabaseConnection,
): Pick<StorageReads, "accountByToken" | "tokenByHash" | "sourceBySecret"> {
  const read = createReader(connection);
  const byToken = "where token_hash = ?";
  const bySecret = "where secret_hash = ?";
  return {
    accountByToken: async (hash) =>
      (await read(tables.accounts, { rest: byToken, values: [hash] }))[0] ?? null,
    tokenByHash: async (hash) => (await read(tables.tokens, { rest: byToken, values: [hash] }))[0] ?? null,
    sourceBySecret: async (hash) =>
      (await read(tables.sources, { rest: bySecret, values: [hash] }))[0] ?? null,
  };
}

/** Returns the reads of queues and waitlists. */
function createQueueReads(
  connection: DatabaseConnection,
): Pick<StorageReads, "countAhead" | "queueSlots" | "slotHolders" | "queueMessages"> {
  const read = createReader(connection);
  const { useIndex } = connection.dialect;
  const isOfQueue = "account = ? and queue = ? and id > ? and id <> ''";
  const slotsOfQueue = `${useIndex("queue_slots_queue")} where ${isOfQueue} order by id limit ?`;
  const holdersOfSlot =
    `${useIndex("messages_queue_slot")} where queue_slot is not null` +
    " and account = ? and queue_slot = ? order by id limit ?";
  const countAheadSql = `select count(*) as before from (
    select id from messages ${useIndex("messages_waitlist")}
      where waitlist is not null and account = ? and waitlist = ? and id < ? limit ?) as earlier`;
  const messagesOfQueueSql = `select id from messages ${useIndex("messages_queue")}
    where queue is not null and account = ? and queue = ? and state not in ('cancelling', 'settled')
    order by id limit ?`;
  return {
    countAhead: async ({ account, waitlist, id }, limit) => {
      const [row] = await connection.query(countAheadSql, [account, waitlist, id, limit]);
      return Number(row?.before ?? 0);
    },
    queueSlots: ({ account, queue, after = "", limit }) =>
      read(tables.queueSlots, { rest: slotsOfQueue, values: [account, queue, after, limit] }),
    slotHolders: (account, slotId, limit) =>
      read(tables.messages, { rest: holdersOfSlot, values: [account, slotId, limit] }),
    queueMessages: async ({ account, queue, limit }) =>
      (await connection.query(messagesOfQueueSql, [account, queue, limit])).map(({ id }) => String(id)),
  };
}

/**
 * Returns a function that sums the stored bytes of accounts. For each account, it looks for one bucket in the
 * given range. If the account has one, it sums the 3-hour buckets of the account.
 */
function createStoredBytesReader(connection: DatabaseConnection): StorageReads["storedBytes"] {
  const types = ["text", "text", "text"] as const;
  const { from, column } = connection.dialect.givenRows(types);
  const within = (after: string, before: string): string =>
    `from usage where usage.account = ${column(0)} and usage.id > ${after} and usage.id < ${before}`;
  const sum = `(select coalesce(sum(stored_bytes), 0) ${within("'3h/'", "'3h0'")})`;
  const isChanged = `exists (select 1 ${within(column(1), column(2))})`;
  const statement = `select ${column(0)} as account, ${sum} as bytes${from} where ${isChanged}`;
  return async (accounts, { after, before }) => {
    const parameters = accounts.map((account) => [account, after, before]);
    return (await connection.each(statement, types, parameters)).map(({ account, bytes }) => ({
      account: String(account),
      bytes: Number(bytes),
    }));
  };
}

/** The key of an account or a setting is its id. The key of a source is its account and its id. */
async function readEncryptionStatus(
  connection: DatabaseConnection,
  name: EncryptedTableName,
  { after, limit }: EncryptionRange,
): Promise<EncryptionStatus[]> {
  const { name: table, key } = tables[name];
  const hasOneKey = key.length === 1;
  const id = hasOneKey ? "''" : "id";
  const owner = hasOneKey ? "id" : "account";
  const afterKey = hasOneKey ? "id > ?" : "(account, id) > (?, ?)";
  const values = hasOneKey ? after.slice(0, 1) : after;
  const found = await connection.query(
    `select ${owner} as account, ${id} as id, detail from ${table}
      where ${afterKey} order by ${key.join(", ")} limit ?`,
    [...values, limit],
  );
  return found.map((row) => ({
    account: String(row.account),
    id: String(row.id),
    keyVersion: readKeyVersion(row),
  }));
}

async function readRangeSizes(
  connection: DatabaseConnection,
  tableName: SizedName,
  range: Range,
): Promise<RowSize[]> {
  const { where, values } = makeRangeClause(range, { tableName, dialect: connection.dialect });
  const { name, key } = tables[tableName];
  const body = tableName === "schedules" && range.bodies !== false ? "coalesce(length(body), 0)" : "0";
  const sizes = `select ${body} as body, length(detail) as settings from ${name} ${where}
    order by ${key.at(-1) ?? "id"} ${range.descending ? "desc" : "asc"} limit ?`;
  const found = await connection.query(sizes, [...values, range.limit]);
  return found.map((row) => ({ body: Number(row.body), settings: Number(row.settings) }));
}

/** Returns the newest log entries of each message. For each message, only the end of its index is read. */
async function readMessageLogs(
  connection: DatabaseConnection,
  { account, messageIds, limit }: MessageLogsNeed,
  table: LogName = "log",
): Promise<LogRow[]> {
  if (messageIds.length === 0) return [];
  const { dialect } = connection;
  const { name } = tables[table];
  const keyTypes = ["text", "text"] as const;
  const { also, column } = dialect.givenRows(keyTypes);
  const isStillKept =
    table === "log" && dialect.logForgottenUpTo
      ? `and log.id > ${dialect.logForgottenUpTo(column(0))}`
      : messageIndexCondition[table];
  const columns = listColumns(tables[table], { bodies: false });
  const messageSql = `select ${columns} from ${name} ${dialect.useIndex(messageIndex[table])}
    where ${name}.account = ${column(0)} and ${name}.message_id = ${column(1)} ${isStillKept}
    order by ${name}.id desc limit ${limit}`;
  const statement = selectEach({ also }, name, messageSql);
  const keys = messageIds.map((id) => [account, id]);
  return (await connection.each(statement, keyTypes, keys)).map((row) => tables[table].read(row));
}

/** Reads the rows of a table that belong to runs, by their key. The statement does not depend on the runs. */
async function readOfRuns(
  connection: DatabaseConnection,
  { account, runs, limit }: RunsNeed,
  { name, columns }: { name: "waiters" | "steps"; columns: string },
): Promise<Columns[]> {
  if (runs.length === 0) return [];
  const types = ["text", "text", "text"] as const;
  const { also, column } = connection.dialect.givenRows(types);
  const found = `select ${columns} from ${name} where ${name}.account = ${column(0)}
    and ${name}.id > ${column(1)} and ${name}.id < ${column(2)} order by ${name}.id limit ${limit}`;
  const bounds = runs.map((run) => {
    const { after, before } = listRunBounds(run);
    return [account, after, before];
  });
  return [...(await connection.each(selectEach({ also }, name, found), types, bounds))];
}

/** Returns the plain reads of the rows of workflow runs. */
function createRunReads(
  connection: DatabaseConnection,
): Pick<
  StorageReads,
  "earliestRunEnd" | "runMessages" | "eventWaiters" | "countWaiters" | "waitersOfRuns" | "stepIdsOfRuns"
> {
  const read = createReader(connection);
  const { dialect } = connection;
  const firstEndSql = `select min(ended_at) as at from runs ${dialect.useIndex("runs_end")}
    where ended_at is not null and account = ? and failed = ?`;
  const isOfRun = "run is not null and account = ? and run = ?";
  const messagesOfRun = `${dialect.useIndex("messages_run")} where ${isOfRun} order by id`;
  // The index has all columns, so no row of the table is read.
  const waitersSql = `select event, count(*) as n, min(id) as oldest from (
      select event, id from waiters ${dialect.useIndex("waiters_event")}
      where account = ? and event > ? and id <> '' order by event, id limit ?) as waiting
    group by event order by event`;
  return {
    earliestRunEnd: async (account, { failed }) => {
      const [row] = await connection.query(firstEndSql, [account, failed ? 1 : 0]);
      return typeof row?.at === "number" ? row.at : null;
    },
    runMessages: (account, run) => read(tables.messages, { rest: messagesOfRun, values: [account, run] }),
    waitersOfRuns: async (need) =>
      (await readOfRuns(connection, need, { name: "waiters", columns: listColumns(tables.waiters) })).map(
        (row) => tables.waiters.read(row),
      ),
    stepIdsOfRuns: async (need) =>
      (await readOfRuns(connection, need, { name: "steps", columns: "steps.id" })).map(({ id }) =>
        String(id),
      ),
    eventWaiters: (event, range) => {
      const { where, values } = makeRangeClause(range, { tableName: "waiters", dialect });
      return read(tables.waiters, {
        rest: `${dialect.useIndex("waiters_event")} ${where} and event = ? and id <> '' order by id limit ?`,
        values: [...values, event, range.limit],
      });
    },
    countWaiters: async ({ account, after, limit }) =>
      (await connection.query(waitersSql, [account, after, limit])).map(({ event, n, oldest }) => ({
        event: String(event),
        count: Number(n),
        oldestId: String(oldest),
      })),
  };
}
