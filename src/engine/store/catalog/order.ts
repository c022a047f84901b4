import type { TableName } from "../../core/decision/command.ts";
import { operations } from "../../../operations/stored.ts";

/**
 * All tables, in the order in which a transaction locks and writes them. Tables with the most contested rows
 * come first, so that a transaction that waits for such a row holds as few locks as possible. The
 * tables of operations come last.
 */
export const tableNames: readonly TableName[] = [
  ...([
    "accounts",
    "urlGroups",
    "schedules",
    "sources",
    "tokens",
    "activeRuns",
    "runs",
    "waiters",
    "notifications",
    "steps",
  ] as const),
  ...(["storedMessages", "limiters", "queueSlots", "hostWaitlists"] as const),
  ...([
    "deduplications",
    "messages",
    "deadLetters",
    "rejections",
    "log",
    "keptLog",
    "tags",
    "timeIndex",
    "usage",
    "dayCounts",
  ] as const),
  ...(["secondCounts", "audit"] as const),
  ...operations.tableNames,
  "serverSettings",
];

const tableOrder = new Map<string, number>(tableNames.map((name, index) => [name, index]));

/** Returns the names of the tables that are properties of `byTable`, in the order of `tableNames`. */
export function listTables(byTable: { readonly [T in TableName]?: unknown }): TableName[] {
  const found: TableName[] = [];
  for (const name in byTable) if (tableOrder.has(name)) found.push(name as TableName);
  return found.length > 1 ? found.sort((a, b) => (tableOrder.get(a) ?? 0) - (tableOrder.get(b) ?? 0)) : found;
}
