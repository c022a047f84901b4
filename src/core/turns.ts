import type { AccountId } from "./message.ts";

/** The tables whose rows come due. */
export const dueTables = ["messages", "lines", "flows", "schedules", "waiters"] as const;
export type DueTable = (typeof dueTables)[number];

/**
 * Where the next turn through the accounts begins, per table: with the first account after this one ("" for the first of all). A table that is
 * not named needs no turn: all that was due in it has been looked at.
 */
export type Turns = { readonly [T in DueTable]?: AccountId };

/**
 * The bounds of one turn, which looks at more than the oldest rows: at most `accounts` accounts that have something due, at most `rows` rows of each. To find
 * them it passes at most `passed` accounts, because some have only rows that are due later. So the backlog of one account delays another by
 * one turn, and accounts with nothing pending cost nothing.
 */
export const turn = { accounts: 16, rows: 16, passed: 256 };

/**
 * Returns the same rows in rounds: the first one of each account, then the second one of each, and so on. Rows of one account keep their
 * order. So whatever is scarce, deliveries or memory, is offered to all accounts in turn. `order`: that of the rows of one round.
 */
export function inRounds<Row extends { account: AccountId }>(rows: readonly Row[], order?: (a: Row, b: Row) => number): readonly Row[] {
  const first = rows[0]?.account;
  if (rows.every(({ account }) => account === first)) return rows;
  const rounds: Row[][] = [];
  const counts = new Map<AccountId, number>();
  for (const row of rows) {
    const count = counts.get(row.account) ?? 0;
    counts.set(row.account, count + 1);
    (rounds[count] ??= []).push(row);
  }
  return (order ? rounds.map((round) => round.sort(order)) : rounds).flat();
}

/** Returns the accounts that have at least `turn.rows` rows among these, so that more of theirs may be due. */
export function accountsBehind(rows: readonly { account: AccountId }[]): AccountId[] {
  const counts = new Map<AccountId, number>();
  for (const { account } of rows) counts.set(account, (counts.get(account) ?? 0) + 1);
  return [...counts].filter(([, count]) => count >= turn.rows).map(([account]) => account);
}
