import type { AccountId } from "../values/basics.ts";

/** The tables whose rows come due. */
export const dueTables = ["messages", "hostWaitlists", "limiters", "schedules", "waiters"] as const;
/** A table whose rows come due. */
export type DueTable = (typeof dueTables)[number];

/**
 * Where the next turn through the accounts begins, per table: with the first account after this one ("" for
 * the first of all). A table without an entry needs no turn, because all of its due rows have been looked at.
 */
export type Turns = { readonly [T in DueTable]?: AccountId };

/**
 * The limits of one turn. In addition to the oldest rows, a turn looks at no more than `accounts` accounts
 * that have due rows, and at no more than `rows` rows of each. To find these accounts, it passes over at most
 * `skippedAccounts` accounts whose rows are all due later. The backlog of one account therefore delays
 * another account by one turn, and accounts without pending rows cost nothing.
 */
export const turnLimits = { accounts: 16, rows: 16, skippedAccounts: 256 };

/**
 * Returns the rows in rounds: the first row of each account, then the second of each, and so on. Rows of one
 * account keep their order. Scarce capacity or memory is therefore offered to all accounts in turn. `order`
 * sorts the rows within a round.
 */
export function orderInRounds<Row extends { account: AccountId }>(
  rows: readonly Row[],
  order?: (a: Row, b: Row) => number,
): readonly Row[] {
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

/**
 * Returns the accounts that may have more due rows, after a claim that did not see all of them: the accounts
 * of `before`, and those of these rows. The turn went through the accounts after `from` up to `to` ("": up to
 * the last account). An account in this range with fewer rows than a turn looks at has no backlog.
 */
export function listBackloggedAccounts(
  rows: readonly { account: AccountId }[],
  { before, from, to }: { before: readonly AccountId[]; from: AccountId | undefined; to: AccountId },
): AccountId[] {
  const counts = new Map<AccountId, number>(before.map((account) => [account, 0]));
  for (const { account } of rows) counts.set(account, (counts.get(account) ?? 0) + 1);
  const hadTurn = (account: AccountId): boolean =>
    from !== undefined && account > from && (to === "" || account <= to);
  return [...counts]
    .filter(([account, count]) => count >= turnLimits.rows || !hadTurn(account))
    .map(([account]) => account);
}
