import { tableNames } from "../catalog/order.ts";

const tables: ReadonlySet<unknown> = new Set(tableNames);

/**
 * Returns the account whose request a query serves. The arguments of the query tell it: the account of a
 * query object, or the first text that is not the name of a table. A read by a token has the token as its
 * owner. Returns "" for queries of the server itself.
 */
export function readOwner(args: readonly unknown[]): string {
  for (const arg of args) {
    if (typeof arg === "string" && !tables.has(arg)) return arg;
    if (typeof arg === "object" && arg !== null && "account" in arg && typeof arg.account === "string")
      return arg.account;
  }
  return "";
}
