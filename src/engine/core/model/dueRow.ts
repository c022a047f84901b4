import type { AccountId } from "../values/basics.ts";

/** A due row. `id` identifies it in its account. */
export type DueRow = {
  table: "messages" | "hostWaitlists" | "limiters" | "schedules" | "waiters";
  account: AccountId;
  id: string;
};

/** Returns a string that is unique to the row. */
export const toRowKey = ({ table, account, id }: DueRow): string => `${table} ${account}\n${id}`;
