import type { AccountId } from "../../core/values/basics.ts";
import { carriedBalancesId, firstSourceCountId } from "../../core/accounts/usage.ts";
import { toKey } from "./rowKeys.ts";
import type { StorageReads } from "../layout/storageReads.ts";

/**
 * Rows of these tables do not count as data, because they are removed together with the account or belong to
 * no account.
 */
const {
  accounts: _account,
  dayCounts: _requests,
  secondCounts: _seconds,
  usage: _usage,
  serverSettings: _settings,
  ...otherTables
} = toKey;
const tables = Object.keys(otherTables) as (keyof typeof otherTables)[];

/**
 * Reports whether an account has any rows other than its own row, its request counts and its carried
 * balances.
 */
export async function hasData(storageReads: StorageReads, account: AccountId): Promise<boolean> {
  for (const table of tables) if ((await storageReads.count(table, { account, limit: 1 })) > 0) return true;
  const used = await storageReads.range("usage", { account, before: firstSourceCountId, limit: 2 });
  return used.some(({ id }) => id !== carriedBalancesId);
}
