import type { AccountId } from "../../core/model/message.ts";
import { carriedId } from "../../core/accounts/usage.ts";
import { keyOf } from "./keys.ts";
import type { Shelf } from "./storageReads.ts";

/** What goes with the row of the account does not keep it. */
const { accounts: _account, dayCounts: _requests, secondCounts: _asked, usage: _used, ...others } = keyOf;
const tables = Object.keys(others) as (keyof typeof others)[];

/** Whether anything is left of an account besides its own row. */
export async function isAnythingLeft(shelf: Shelf, account: AccountId): Promise<boolean> {
  for (const table of tables) if ((await shelf.count(table, { account, limit: 1 })) > 0) return true;
  const used = await shelf.range("usage", { account, limit: 2 });
  return used.some(({ id }) => id !== carriedId);
}
