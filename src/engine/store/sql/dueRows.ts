import type { DueNeed } from "../../core/decision/command.ts";
import type { AccountId, Millis } from "../../core/values/basics.ts";
import type { Schedule } from "../../core/model/schedule.ts";
import type { DueTable, Turns } from "../../core/node/turns.ts";
import { dueTables, turnLimits } from "../../core/node/turns.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import type { DueRows } from "../../core/decision/command.ts";
import { countFittingPage } from "../layout/storageReads.ts";
import { createReader, toRows, readRowsByKey } from "./rows.ts";
import { listColumns, selectEach, equalsAsRange } from "./statements.ts";
import type { Columns, Table } from "../catalog/tables.ts";
import { tables } from "../catalog/tables.ts";

/**
 * For each table, the condition of its waiting rows in the index of its turns, and the order in which they
 * are claimed. `account <> ''` is always true. It tells PostgreSQL which index to use (docs/decisions/0041).
 */
const dueConditions: { readonly [T in DueTable]: { condition: string; order: string } } = {
  messages: { condition: "leased_by is null and due_at is not null and account <> ''", order: "due_at, id" },
  hostWaitlists: { condition: "host <> ''", order: "due_at, host" },
  limiters: { condition: "due_at is not null", order: "due_at, id" },
  schedules: { condition: "due_at is not null", order: "due_at, id" },
  waiters: { condition: "due_at is not null", order: "due_at, id" },
};

/**
 * Returns a function that reads due rows. It reads the oldest rows of all accounts together. For each table
 * in `turns`, it also reads the oldest rows of some accounts.
 */
export function createDueReader(
  connection: DatabaseConnection,
): (now: Millis, limits: DueNeed) => Promise<DueRows> {
  const { messages, hostWaitlists, limiters, waiters } = tables;
  const { dialect } = connection;
  const read = createReader(connection);
  const lockMessages = dialect.lock(messages.name, "skip locked");
  const byDueTime = `and due_at <= ? order by due_at, id limit ?${lockMessages}`;
  const dueMessages = `where leased_by is null and id <> '' ${byDueTime}`;
  const expiredLeases = `where leased_by is not null ${byDueTime}`;
  const dueHostWaitlists =
    "where due_at <= ? order by due_at, host, account limit ?" +
    dialect.lock(hostWaitlists.name, "skip locked");
  const takeTurn = createTurnReader(connection);
  const readSchedules = createDueScheduleReader(connection, takeTurn);
  return async (now, limits) => {
    const { limit, turns = {} } = limits;
    const readTurn = async <Row>(name: DueTable): Promise<{ rows: Row[]; end?: AccountId }> => {
      const after = turns[name];
      if (after === undefined) return { rows: [] };
      const { found, end } = await takeTurn(name, { after, now });
      return { rows: toRows(connection, tables[name] as Table<unknown>, found) as Row[], end };
    };
    const [expired, due, dueWaitlists, dueLimiters, dueWaiters, dueSchedules, ...turnResults] =
      await Promise.all([
        read(messages, { rest: expiredLeases, values: [now, limit] }),
        read(messages, { rest: dueMessages, values: [now, limit] }),
        read(hostWaitlists, { rest: dueHostWaitlists, values: [now, limits.hostWaitlists] }),
        read(limiters, { rest: makeDueClause(dialect, limiters.name), values: [now, limits.limiters] }),
        read(waiters, { rest: makeDueClause(dialect, waiters.name), values: [now, limits.waiters] }),
        readSchedules(now, limits),
        readTurn<DueRows["messages"][number]>("messages"),
        readTurn<DueRows["hostWaitlists"][number]>("hostWaitlists"),
        readTurn<DueRows["limiters"][number]>("limiters"),
        readTurn<DueRows["waiters"][number]>("waiters"),
      ]);
    const [moreMessages, moreWaitlists, moreLimiters, moreWaiters] = turnResults;
    const ends: { [T in DueTable]: AccountId | undefined } = {
      messages: moreMessages.end,
      hostWaitlists: moreWaitlists.end,
      limiters: moreLimiters.end,
      waiters: moreWaiters.end,
      schedules: dueSchedules.end,
    };
    return {
      messages: mergeDue([expired, due, moreMessages.rows], ({ id }) => id),
      hostWaitlists: mergeDue([dueWaitlists, moreWaitlists.rows], ({ host }) => host),
      limiters: mergeDue([dueLimiters, moreLimiters.rows], ({ id }) => id),
      schedules: dueSchedules.rows,
      waiters: mergeDue([dueWaiters, moreWaiters.rows], ({ id }) => id),
      turns: listTurnEnds(ends),
    };
  };
}

const makeDueClause = (dialect: Dialect, name: string): string =>
  `where due_at <= ? order by due_at, account, id limit ?${dialect.lock(name, "skip locked")}`;

/** Returns a function that reads due schedules: as many as fit on a page by the sizes of their bodies. */
function createDueScheduleReader(
  connection: DatabaseConnection,
  takeTurn: TakeTurn,
): (now: Millis, need: DueNeed) => Promise<{ rows: Schedule[]; end: AccountId | undefined }> {
  const { name } = tables.schedules;
  const dueSizes = `select ${sizeColumns} from ${name} ${makeDueClause(connection.dialect, name)}`;
  return async (now, { schedules: limit, turns }) => {
    const after = turns?.schedules;
    const [oldest, turn] = await Promise.all([
      connection.query(dueSizes, [now, limit]),
      after === undefined ? undefined : takeTurn("schedules", { after, now }),
    ]);
    const found = [...(turn?.found ?? []), ...oldest];
    const fitting = found.slice(0, countFittingPage(found.map(({ size }) => Number(size))));
    const keys = new Map(
      fitting.map(({ account, id }) => [
        `${String(account)} ${String(id)}`,
        [String(account), String(id)] as const,
      ]),
    );
    const rows =
      keys.size === 0
        ? []
        : await readRowsByKey(connection, "schedules", { keys: [...keys.values()], mode: "locking" });
    // Rows are read in the order of their keys, but schedules fire in the order of their due times.
    return { rows: rows.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0)), end: turn?.end };
  };
}

const sizeColumns = "account, id, coalesce(length(body), 0) as size";

/** Returns the ends of the turns that were taken. */
export const listTurnEnds = (ends: { readonly [T in DueTable]?: AccountId | undefined }): Turns =>
  Object.fromEntries(dueTables.flatMap((name) => (ends[name] === undefined ? [] : [[name, ends[name]]])));

/**
 * Returns the rows of several lists in the order in which they became due, each row once. `toName` returns
 * the name of a row within its account.
 */
export function mergeDue<Row extends { account: AccountId; dueAt: Millis | null }>(
  lists: readonly (readonly Row[])[],
  toName: (row: Row) => string,
): readonly Row[] {
  const nonEmpty = lists.filter(({ length }) => length > 0);
  if (nonEmpty.length <= 1) return nonEmpty[0] ?? [];
  const all = new Map(nonEmpty.flat().map((row) => [`${row.account} ${toName(row)}`, row]));
  return [...all.values()].sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
}

type TakeTurn = (
  table: DueTable,
  turn: { after: AccountId; now: Millis },
) => Promise<{ found: Columns[]; end: AccountId }>;

/**
 * Returns a function that takes a turn through the accounts that have waiting rows in a table, starting after
 * a given account. It moves from account to account in the index, so its cost does not depend on the number
 * of rows of an account. `end` is the account after which the next turn starts, or "" if the last account was
 * reached.
 */
function createTurnReader(connection: DatabaseConnection): TakeTurn {
  const texts = new Map<DueTable, TurnStatements>();
  const getTexts = (name: DueTable): TurnStatements => {
    let known = texts.get(name);
    if (!known) texts.set(name, (known = makeTurnStatements(connection.dialect, name)));
    return known;
  };
  return async (name, { after, now }) => {
    const { accounts, rows: rowsSql } = getTexts(name);
    const visited = (await connection.query(accounts, [after])).map((row) => ({
      account: String(row.account),
      dueAt: Number(row.due_at),
    }));
    const due = visited.filter(({ dueAt }) => dueAt <= now).slice(0, turnLimits.accounts);
    const isEnd = visited.length < turnLimits.skippedAccounts && due.length < turnLimits.accounts;
    const end = isEnd ? "" : ((due.length < turnLimits.accounts ? visited : due).at(-1)?.account ?? "");
    const found =
      due.length === 0
        ? []
        : await connection.each(
            rowsSql,
            rowTypes,
            due.map(({ account }) => [account, now, turnLimits.rows]),
          );
    return { found, end };
  };
}

type TurnStatements = { accounts: string; rows: string };

/**
 * Returns the two statements of a turn. One lists the accounts that have waiting rows; the other reads the
 * oldest due rows of some of these accounts.
 */
export const makeTurnStatements = (dialect: Dialect, name: DueTable): TurnStatements => ({
  accounts: makeAccountsSql(dialect, name),
  rows: makeRowsSql(dialect, name),
});

const rowTypes = ["text", "bigint", "integer"] as const;

/** Returns the statement that lists the accounts with waiting rows and the due time of each first row. */
function makeAccountsSql({ useIndex }: Dialect, name: DueTable): string {
  const table = `${tables[name].name} ${useIndex(`${tables[name].name}_turn`)}`;
  const { condition } = dueConditions[name];
  const selectFirst = (column: string, which: string): string =>
    `(select ${column} from ${table} where ${condition} and ${which} order by account, due_at limit 1)`;
  const next = (after: string): string => selectFirst("account", `account > ${after}`);
  const firstDueAt = selectFirst("due_at", equalsAsRange("account", "ring.account"));
  return `with recursive ring (account, place) as (
      select ${next("?")}, 1
      union all select ${next("ring.account")}, place + 1 from ring
        where ring.account is not null and place < ${turnLimits.skippedAccounts})
    select account, ${firstDueAt} as due_at from ring where account is not null order by place`;
}

/** Returns the statement that reads the oldest due rows of each given account. */
function makeRowsSql(dialect: Dialect, name: DueTable): string {
  const { also, column } = dialect.givenRows(rowTypes);
  const table = tables[name];
  const { condition, order } = dueConditions[name];
  const columns = name === "schedules" ? sizeColumns : listColumns(table);
  const found = `select ${columns} from ${table.name} ${dialect.useIndex(`${table.name}_turn`)}
    where ${condition} and ${equalsAsRange("account", column(0))} and due_at <= ${column(1)}
    order by account, ${order}${dialect.lock(table.name, "skip locked")} limit ${column(2)}`;
  return selectEach({ also }, table.name, found);
}
