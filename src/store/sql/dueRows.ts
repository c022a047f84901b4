import type { DueNeed } from "../../core/decision/command.ts";
import type { AccountId, Millis, Schedule } from "../../core/model/message.ts";
import type { DueTable, Turns } from "../../core/fairness/turns.ts";
import { dueTables, turnLimits } from "../../core/fairness/turns.ts";
import type { DatabaseConnection, Dialect } from "./database.ts";
import type { DueRows } from "../batch/loader.ts";
import { countFittingPage } from "../queries/storageReads.ts";
import { createReader, toRows, readRowsByKey } from "./rows.ts";
import { listColumns, selectEach, equalsAsRange } from "./statements.ts";
import type { Columns, Table } from "./tables.ts";
import { tables } from "./tables.ts";

/**
 * Which rows of a table wait for a claim, as the index of its turns says it, and the order in which they do. `account <> ''` holds for all: it
 * tells PostgreSQL which index is meant (docs/decisions/0041).
 */
const dueConditions: { readonly [T in DueTable]: { condition: string; order: string } } = {
  messages: { condition: "leased_by is null and due_at is not null and account <> ''", order: "due_at, id" },
  hostWaitlists: { condition: "host <> ''", order: "due_at, host" },
  limiters: { condition: "due_at is not null", order: "due_at, id" },
  schedules: { condition: "due_at is not null", order: "due_at, id" },
  waiters: { condition: "due_at is not null", order: "due_at, id" },
};

/** Reads what is due: the oldest rows of all accounts, and of tables that have a turn, the oldest of some accounts each. */
export function createDueReader(connection: DatabaseConnection): (now: Millis, limits: DueNeed) => Promise<DueRows> {
  const { messages, hostWaitlists, limiters, schedules, waiters } = tables;
  const { dialect } = connection;
  const readList = createReader(connection);
  const skipLocked = (name: string): string => dialect.lock(name, "skip locked");
  const dueMessages = `where leased_by is null and id <> '' and due_at <= ? order by due_at, id limit ?${skipLocked(messages.name)}`;
  const expiredLeases = `where leased_by is not null and due_at <= ? order by due_at, id limit ?${skipLocked(messages.name)}`;
  const dueHostWaitlists = `where due_at <= ? order by due_at, host, account limit ?${skipLocked(hostWaitlists.name)}`;
  const dueById = (name: string): string => `where due_at <= ? order by due_at, account, id limit ?${skipLocked(name)}`;
  const dueScheduleSizes = `select ${sizeColumns} from ${schedules.name} ${dueById(schedules.name)}`;
  const takeTurn = createTurnReader(connection);
  const readTurn = async <Row>(name: DueTable, after: AccountId | undefined, now: Millis): Promise<{ rows: Row[]; end?: AccountId }> => {
    if (after === undefined) return { rows: [] };
    const { found, end } = await takeTurn(name, { after, now });
    return { rows: toRows(connection, tables[name] as Table<unknown>, found) as Row[], end };
  };
  const dueSchedules = async (
    now: Millis,
    { schedules: limit, turns }: DueNeed,
  ): Promise<{ rows: Schedule[]; end: AccountId | undefined }> => {
    const after = turns?.schedules;
    const [oldest, turnRows] = await Promise.all([
      connection.query(dueScheduleSizes, [now, limit]),
      after === undefined ? undefined : takeTurn("schedules", { after, now }),
    ]);
    const found = [...(turnRows?.found ?? []), ...oldest];
    const fitting = found.slice(0, countFittingPage(found.map(({ size }) => Number(size))));
    const keys = new Map(fitting.map(({ account, id }) => [`${String(account)} ${String(id)}`, [String(account), String(id)] as const]));
    const taken = keys.size === 0 ? [] : await readRowsByKey(connection, "schedules", [...keys.values()], { mode: "locking" });
    // They come in the order of their keys, and fire in the order in which they came due.
    return { rows: taken.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0)), end: turnRows?.end };
  };
  return async (now, limits) => {
    const { turns = {} } = limits;
    const [expired, due, dueWaitlists, dueLimiters, dueWaiters, dueSchedule, ...turnResults] = await Promise.all([
      readList(messages, expiredLeases, [now, limits.limit]),
      readList(messages, dueMessages, [now, limits.limit]),
      readList(hostWaitlists, dueHostWaitlists, [now, limits.hostWaitlists]),
      readList(limiters, dueById(limiters.name), [now, limits.limiters]),
      readList(waiters, dueById(waiters.name), [now, limits.waiters]),
      dueSchedules(now, limits),
      readTurn<DueRows["messages"][number]>("messages", turns.messages, now),
      readTurn<DueRows["hostWaitlists"][number]>("hostWaitlists", turns.hostWaitlists, now),
      readTurn<DueRows["limiters"][number]>("limiters", turns.limiters, now),
      readTurn<DueRows["waiters"][number]>("waiters", turns.waiters, now),
    ]);
    const [moreMessages, moreWaitlists, moreLimiters, moreWaiters] = turnResults;
    const ends: { [T in DueTable]: AccountId | undefined } = {
      messages: moreMessages.end,
      hostWaitlists: moreWaitlists.end,
      limiters: moreLimiters.end,
      waiters: moreWaiters.end,
      schedules: dueSchedule.end,
    };
    return {
      messages: mergeDue([expired, due, moreMessages.rows], ({ id }) => id),
      hostWaitlists: mergeDue([dueWaitlists, moreWaitlists.rows], ({ host }) => host),
      limiters: mergeDue([dueLimiters, moreLimiters.rows], ({ id }) => id),
      schedules: dueSchedule.rows,
      waiters: mergeDue([dueWaiters, moreWaiters.rows], ({ id }) => id),
      turns: listTurnEnds(ends),
    };
  };
}

const sizeColumns = "account, id, coalesce(length(body), 0) as size";

/** Returns the ends of those turns that were taken. */
export const listTurnEnds = (ends: { readonly [T in DueTable]?: AccountId | undefined }): Turns =>
  Object.fromEntries(dueTables.flatMap((name) => (ends[name] === undefined ? [] : [[name, ends[name]]])));

/** Returns the rows of several lists in the order in which they came due, each once. `toName`: what names a row in its account. */
export function mergeDue<Row extends { account: AccountId; dueAt: Millis | null }>(
  lists: readonly (readonly Row[])[],
  toName: (row: Row) => string,
): readonly Row[] {
  const nonEmpty = lists.filter(({ length }) => length > 0);
  if (nonEmpty.length <= 1) return nonEmpty[0] ?? [];
  const all = new Map(nonEmpty.flat().map((row) => [`${row.account} ${toName(row)}`, row]));
  return [...all.values()].sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
}

/**
 * Takes a turn through the accounts that have rows waiting in a table, beginning after one of them. It jumps from account to account in the
 * index, so what it costs does not depend on how much they have. `end`: where the next turn begins, "" after the last account.
 */
function createTurnReader(connection: DatabaseConnection) {
  const texts = new Map<DueTable, TurnStatements>();
  const getTexts = (name: DueTable): TurnStatements => {
    let known = texts.get(name);
    if (!known) texts.set(name, (known = makeTurnStatements(connection.dialect, name)));
    return known;
  };
  return async (name: DueTable, { after, now }: { after: AccountId; now: Millis }): Promise<{ found: Columns[]; end: AccountId }> => {
    const { accounts, rows: rowsSql } = getTexts(name);
    const visited = (await connection.query(accounts, [after])).map((row) => ({ account: String(row.account), dueAt: Number(row.due_at) }));
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

/** Returns the two statements of a turn: which accounts have rows waiting, and the oldest due rows of some of them. */
export const makeTurnStatements = (dialect: Dialect, name: DueTable): TurnStatements => ({
  accounts: makeAccountsSql(dialect, name),
  rows: makeRowsSql(dialect, name),
});

const rowTypes = ["text", "bigint", "integer"] as const;

/** The accounts that have rows waiting, and when the first row of each is due. */
function makeAccountsSql({ useIndex }: Dialect, name: DueTable): string {
  const table = `${tables[name].name} ${useIndex(`${tables[name].name}_turn`)}`;
  const next = (after: string): string =>
    `(select account from ${table} where ${dueConditions[name].condition} and account > ${after} order by account, due_at limit 1)`;
  const first = `(select due_at from ${table} where ${dueConditions[name].condition} and ${equalsAsRange("account", "ring.account")} order by account, due_at limit 1)`;
  return `with recursive ring (account, place) as (
      select ${next("?")}, 1
      union all select ${next("ring.account")}, place + 1 from ring where ring.account is not null and place < ${turnLimits.skippedAccounts})
    select account, ${first} as due_at from ring where account is not null order by place`;
}

/** The oldest due rows of each account that is given. */
function makeRowsSql(dialect: Dialect, name: DueTable): string {
  const { also, column } = dialect.givenRows(rowTypes);
  const table = tables[name];
  const columns = name === "schedules" ? sizeColumns : listColumns(table);
  const found = `select ${columns} from ${table.name} ${dialect.useIndex(`${table.name}_turn`)} where ${dueConditions[name].condition}
    and ${equalsAsRange("account", column(0))} and due_at <= ${column(1)} order by account, ${dueConditions[name].order}`;
  return selectEach({ also }, table.name, `${found}${dialect.lock(table.name, "skip locked")} limit ${column(2)}`);
}
