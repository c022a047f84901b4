import type { DueRow } from "../../src/core/commands/quarantine.ts";
import type { Turns } from "../../src/core/fairness/turns.ts";

/** Returns rows of an account that may be due: some exist, and some do not. */
export function makeDueRows(
  account: string,
  messageIds: readonly string[],
  pickOne: <T>(list: readonly T[]) => T,
): DueRow[] {
  return [
    ...messageIds.map((id): DueRow => ({ table: "messages", account, id })),
    { table: "hostWaitlists", account, id: "one.example" },
    {
      table: "limiters",
      account,
      id: pickOne(["queue:q1", "queue:q2", "key:k1", "key:k2", "account:", "endpoint:https://one.example/x"]),
    },
    { table: "schedules", account, id: pickOne(["s1", "s2"]) },
  ];
}

/** Returns turns through the accounts of each table, starting after this account. */
export const makeTurns = (account: string): Turns => ({
  messages: account,
  hostWaitlists: "",
  limiters: account,
  schedules: "",
  waiters: account,
});
