import type { LogEntry } from "./states.ts";
import { logStates } from "./states.ts";

/** A row of the log: the newest entry of a message on the page, and the entries before it. */
export type LogRow = { newest: LogEntry; earlier: readonly LogEntry[] };

/** Returns one row for each message, in the order of the newest entries. `entries` are newest first. */
export function groupByMessage(entries: readonly LogEntry[]): LogRow[] {
  const rows = new Map<string, { newest: LogEntry; earlier: LogEntry[] }>();
  for (const entry of entries) {
    const row = rows.get(entry.messageId);
    if (row) row.earlier.push(entry);
    else rows.set(entry.messageId, { newest: entry, earlier: [] });
  }
  return [...rows.values()];
}

/** Returns one row for each entry. */
export const listEntries = (entries: readonly LogEntry[]): LogRow[] =>
  entries.map((newest) => ({ newest, earlier: [] }));

/** Returns the earlier states in a few words, newest first, such as `Retry × 3, Active, Created`. */
export function describeEarlier({ earlier }: LogRow): string {
  const counts = new Map<string, number>();
  for (const { state } of earlier) {
    const { word } = logStates[state];
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => (count === 1 ? word : `${word} × ${count}`)).join(", ");
}
