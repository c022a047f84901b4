import type { DueNeed } from "../../core/decision/command.ts";
import type { AccountId, Millis, Schedule } from "../../core/model/message.ts";
import type { DueTable, Turns } from "../../core/fairness/turns.ts";
import { dueTables, turn } from "../../core/fairness/turns.ts";
import type { Connection, Dialect } from "./database.ts";
import type { Due } from "../batch/loader.ts";
import { fittingPage } from "../queries/storageReads.ts";
import { reader, readRows, rows } from "./rows.ts";
import { columnsOf, eachByItself, isValue } from "./statements.ts";
import type { Columns, Table } from "./tables.ts";
import { tables } from "./tables.ts";

/**
 * Which rows of a table wait for a claim, as the index of its turns says it, and the order in which they do. `account <> ''` holds for all: it
 * tells PostgreSQL which index is meant (docs/decisions/0041).
 */
const waiting: { readonly [T in DueTable]: { is: string; order: string } } = {
  messages: { is: "leased_by is null and due_at is not null and account <> ''", order: "due_at, id" },
  lines: { is: "host <> ''", order: "due_at, host" },
  flows: { is: "due_at is not null", order: "due_at, id" },
  schedules: { is: "due_at is not null", order: "due_at, id" },
  waiters: { is: "due_at is not null", order: "due_at, id" },
};

/** Reads what is due: the oldest rows of all accounts, and of tables that have a turn, the oldest of some accounts each. */
export function dueIn(connection: Connection): (now: Millis, most: DueNeed) => Promise<Due> {
  const { messages, lines, flows, schedules, waiters } = tables;
  const { dialect } = connection;
  const list = reader(connection);
  const skip = (name: string): string => dialect.lock(name, "skip locked");
  const dueMessages = `where leased_by is null and id <> '' and due_at <= ? order by due_at, id limit ?${skip(messages.name)}`;
  const ranOut = `where leased_by is not null and due_at <= ? order by due_at, id limit ?${skip(messages.name)}`;
  const dueLines = `where due_at <= ? order by due_at, host, account limit ?${skip(lines.name)}`;
  const dueById = (name: string): string => `where due_at <= ? order by due_at, account, id limit ?${skip(name)}`;
  const sizesOfDue = `select ${sized} from ${schedules.name} ${dueById(schedules.name)}`;
  const takeTurn = turnsIn(connection);
  const turnOf = async <Row>(name: DueTable, after: AccountId | undefined, now: Millis): Promise<{ rows: Row[]; end?: AccountId }> => {
    if (after === undefined) return { rows: [] };
    const { found, end } = await takeTurn(name, { after, now });
    return { rows: readRows(connection, tables[name] as Table<unknown>, found) as Row[], end };
  };
  const dueSchedules = async (
    now: Millis,
    { schedules: limit, turns }: DueNeed,
  ): Promise<{ rows: Schedule[]; end: AccountId | undefined }> => {
    const after = turns?.schedules;
    const [oldest, ofTurn] = await Promise.all([
      connection.query(sizesOfDue, [now, limit]),
      after === undefined ? undefined : takeTurn("schedules", { after, now }),
    ]);
    const found = [...(ofTurn?.found ?? []), ...oldest];
    const some = found.slice(0, fittingPage(found.map(({ size }) => Number(size))));
    const keys = new Map(some.map(({ account, id }) => [`${String(account)} ${String(id)}`, [String(account), String(id)] as const]));
    const taken = keys.size === 0 ? [] : await rows(connection, "schedules", [...keys.values()], { to: "take" });
    // They come in the order of their keys, and fire in the order in which they came due.
    return { rows: taken.sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0)), end: ofTurn?.end };
  };
  return async (now, most) => {
    const { turns = {} } = most;
    const [lost, due, ofHosts, ofFlows, waits, fired, ...ofTurns] = await Promise.all([
      list(messages, ranOut, [now, most.limit]),
      list(messages, dueMessages, [now, most.limit]),
      list(lines, dueLines, [now, most.lines]),
      list(flows, dueById(flows.name), [now, most.flows]),
      list(waiters, dueById(waiters.name), [now, most.waiters]),
      dueSchedules(now, most),
      turnOf<Due["messages"][number]>("messages", turns.messages, now),
      turnOf<Due["lines"][number]>("lines", turns.lines, now),
      turnOf<Due["flows"][number]>("flows", turns.flows, now),
      turnOf<Due["waiters"][number]>("waiters", turns.waiters, now),
    ]);
    const [moreMessages, moreLines, moreFlows, moreWaits] = ofTurns;
    const ends: { [T in DueTable]: AccountId | undefined } = {
      ...{ messages: moreMessages.end, lines: moreLines.end, flows: moreFlows.end, waiters: moreWaits.end, schedules: fired.end },
    };
    return {
      messages: merged([lost, due, moreMessages.rows], ({ id }) => id),
      lines: merged([ofHosts, moreLines.rows], ({ host }) => host),
      flows: merged([ofFlows, moreFlows.rows], ({ id }) => id),
      schedules: fired.rows,
      waiters: merged([waits, moreWaits.rows], ({ id }) => id),
      turns: turnsAt(ends),
    };
  };
}

const sized = "account, id, coalesce(length(body), 0) as size";

/** Returns the ends of those turns that were taken. */
export const turnsAt = (ends: { readonly [T in DueTable]?: AccountId | undefined }): Turns =>
  Object.fromEntries(dueTables.flatMap((name) => (ends[name] === undefined ? [] : [[name, ends[name]]])));

/** Returns the rows of several lists in the order in which they came due, each once. `nameOf`: what names a row in its account. */
export function merged<Row extends { account: AccountId; dueAt: Millis | null }>(
  lists: readonly (readonly Row[])[],
  nameOf: (row: Row) => string,
): readonly Row[] {
  const some = lists.filter(({ length }) => length > 0);
  if (some.length <= 1) return some[0] ?? [];
  const all = new Map(some.flat().map((row) => [`${row.account} ${nameOf(row)}`, row]));
  return [...all.values()].sort((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
}

/**
 * Takes a turn through the accounts that have rows waiting in a table, beginning after one of them. It jumps from account to account in the
 * index, so what it costs does not depend on how much they have. `end`: where the next turn begins, "" after the last account.
 */
function turnsIn(connection: Connection) {
  const texts = new Map<DueTable, TurnTexts>();
  const textsOf = (name: DueTable): TurnTexts => {
    let known = texts.get(name);
    if (!known) texts.set(name, (known = turnTexts(connection.dialect, name)));
    return known;
  };
  return async (name: DueTable, { after, now }: { after: AccountId; now: Millis }): Promise<{ found: Columns[]; end: AccountId }> => {
    const { accounts, rows: ofEach } = textsOf(name);
    const passed = (await connection.query(accounts, [after])).map((row) => ({ account: String(row.account), dueAt: Number(row.due_at) }));
    const due = passed.filter(({ dueAt }) => dueAt <= now).slice(0, turn.accounts);
    const isEnd = passed.length < turn.passed && due.length < turn.accounts;
    const end = isEnd ? "" : ((due.length < turn.accounts ? passed : due).at(-1)?.account ?? "");
    const found =
      due.length === 0
        ? []
        : await connection.each(
            ofEach,
            rowTypes,
            due.map(({ account }) => [account, now, turn.rows]),
          );
    return { found, end };
  };
}

type TurnTexts = { accounts: string; rows: string };

/** Returns the two statements of a turn: which accounts have rows waiting, and the oldest due rows of some of them. */
export const turnTexts = (dialect: Dialect, name: DueTable): TurnTexts => ({
  accounts: accountsOf(dialect, name),
  rows: rowsOf(dialect, name),
});

const rowTypes = ["text", "bigint", "integer"] as const;

/** The accounts that have rows waiting, and when the first row of each is due. */
function accountsOf({ by }: Dialect, name: DueTable): string {
  const table = `${tables[name].name} ${by(`${tables[name].name}_turn`)}`;
  const next = (after: string): string =>
    `(select account from ${table} where ${waiting[name].is} and account > ${after} order by account, due_at limit 1)`;
  const first = `(select due_at from ${table} where ${waiting[name].is} and ${isValue("account", "ring.account")} order by account, due_at limit 1)`;
  return `with recursive ring (account, place) as (
      select ${next("?")}, 1
      union all select ${next("ring.account")}, place + 1 from ring where ring.account is not null and place < ${turn.passed})
    select account, ${first} as due_at from ring where account is not null order by place`;
}

/** The oldest due rows of each account that is given. */
function rowsOf(dialect: Dialect, name: DueTable): string {
  const { also, column } = dialect.given(rowTypes);
  const table = tables[name];
  const columns = name === "schedules" ? sized : columnsOf(table);
  const found = `select ${columns} from ${table.name} ${dialect.by(`${table.name}_turn`)} where ${waiting[name].is}
    and ${isValue("account", column(0))} and due_at <= ${column(1)} order by account, ${waiting[name].order}`;
  return eachByItself({ also }, table.name, `${found}${dialect.lock(table.name, "skip locked")} limit ${column(2)}`);
}
