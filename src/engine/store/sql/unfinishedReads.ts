import type { StorageReads } from "../layout/storageReads.ts";
import type { DatabaseConnection } from "./database.ts";
import { createReader, makeRangeClause, toRows } from "./rows.ts";
import { listColumns } from "./statements.ts";
import { tables } from "../catalog/tables.ts";

/** Returns the reads of unfinished messages, and of what holds them. */
export function createUnfinishedReads(
  connection: DatabaseConnection,
): Pick<
  StorageReads,
  "messagesToHost" | "attemptedMessages" | "messagesByDue" | "heldMessages" | "leasedMessages" | "countHeld"
> {
  const read = createReader(connection);
  const { dialect } = connection;
  const isWaiting = "leased_by is null and due_at is not null and account <> '' and account = ?";
  const isWithin = "(due_at, id) > (?, ?) and (due_at, id) < (?, ?)";
  const byDue = `${dialect.useIndex("messages_turn")} where ${isWaiting} and ${isWithin}`;
  const inWaitlists =
    `${dialect.useIndex("messages_waitlist")} where waitlist is not null and account = ?` +
    " and waitlist >= ? and waitlist <= ? limit ?";
  const isLeased = `${dialect.useIndex("messages_leased")} where leased_by is not null`;
  const countSql = `select count(*) as n from (select 1 as one from messages ${isLeased} limit ?) as leased`;
  // The order keeps the planner from reading all messages of the account.
  const leasedSql = `select * from (select ${listColumns(tables.messages, {})} from messages ${isLeased}
    order by due_at, id limit ?) as leased where account = ?`;
  const heldSql = `select waitlist, count(*) as n, min(id) as oldest from (
    select waitlist, id from messages ${inWaitlists}) as held group by waitlist`;
  return {
    messagesToHost: createHostReader(connection),
    attemptedMessages: (range) => {
      const { where, values } = makeRangeClause(range, { tableName: "messages", dialect });
      const order = `order by id ${range.descending ? "desc" : "asc"} limit ?`;
      const rest = `${dialect.useIndex("messages_attempted")} ${where} and attempts > 0 ${order}`;
      return read(tables.messages, { rest, values: [...values, range.limit] });
    },
    messagesByDue: ({ account, after, before, descending, limit }) =>
      read(tables.messages, {
        rest: `${byDue} order by ${descending ? "due_at desc, id desc" : "due_at, id"} limit ?`,
        values: [account, after.dueAt, after.id, before.dueAt, before.id, limit],
      }),
    heldMessages: ({ account, from, to, limit }) =>
      read(tables.messages, { rest: inWaitlists, values: [account, from, to, limit] }),
    leasedMessages: async ({ account, scan }) => {
      const [row] = await connection.query(countSql, [scan + 1]);
      if (Number(row?.n ?? 0) > scan) return null;
      return toRows(connection, tables.messages, await connection.query(leasedSql, [scan + 1, account]));
    },
    countHeld: async ({ account, from, to, limit }) =>
      (await connection.query(heldSql, [account, from, to, limit])).map(({ waitlist, n, oldest }) => ({
        waitlist: String(waitlist),
        count: Number(n),
        oldestId: String(oldest),
      })),
  };
}

/**
 * The maximum number of messages in flight, of all accounts, among which those to a host are found. The
 * capacity of the nodes is far below.
 */
const maxScannedInFlight = 100_000;

/**
 * Returns the read of the unfinished messages to a host. The index has only those that are not in flight. One
 * statement reads both, because a message may begin or end a delivery between two statements.
 */
function createHostReader(connection: DatabaseConnection): StorageReads["messagesToHost"] {
  const { dialect } = connection;
  const columns = listColumns(tables.messages, {});
  // The order keeps the planner from reading all messages of the account.
  const inFlight = `select ${columns} from messages ${dialect.useIndex("messages_leased")}
    where leased_by is not null order by due_at, id limit ${maxScannedInFlight}`;
  return async (host, range) => {
    const { where, values } = makeRangeClause(range, { tableName: "messages", dialect });
    const order = `order by id ${range.descending ? "desc" : "asc"} limit ?`;
    const waiting = `select ${columns} from messages ${dialect.useIndex("messages_host")}
      ${where} and host = ? and leased_by is null and id <> '' ${order}`;
    const rows = await connection.query(
      `select * from (select * from (${waiting}) as waiting
        union all select * from (${inFlight}) as leased ${where} and host = ?) as found ${order}`,
      [...values, host, range.limit, ...values, host, range.limit],
    );
    return toRows(connection, tables.messages, rows);
  };
}

/** Returns the reads of what is paused, and of how many runs have failed. */
export function createPauseReads(
  connection: DatabaseConnection,
): Pick<StorageReads, "pausedLimiters" | "pausedSchedules" | "countFailedRuns"> {
  const { dialect } = connection;
  const pausedSql = `select id from limiters ${dialect.useIndex("limiters_paused")}
    where paused is not null and account = ? and paused = 1 limit ?`;
  const failedRunsSql = `select count(*) as n from (select 1 as one from runs ${dialect.useIndex("runs_end")}
    where ended_at is not null and account = ? and failed = 1 limit ?) as failed_runs`;
  const pausedSchedulesSql = `select id from schedules ${dialect.useIndex("schedules_paused")}
    where account = ? and due_at is null limit ?`;
  return {
    pausedLimiters: async ({ account, limit }) =>
      (await connection.query(pausedSql, [account, limit])).map(({ id }) => String(id)),
    countFailedRuns: async ({ account, limit }) =>
      Number((await connection.query(failedRunsSql, [account, limit]))[0]?.n ?? 0),
    pausedSchedules: async ({ account, limit }) =>
      (await connection.query(pausedSchedulesSql, [account, limit])).map(({ id }) => String(id)),
  };
}
