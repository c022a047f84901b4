import type { LogEntry } from "./states.ts";

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

/** Returns the entries of a row that are ends of attempts, newest first. */
export const listAttempts = ({ newest, earlier }: LogRow): LogEntry[] =>
  [newest, ...earlier].filter(({ state }) => state === "ERROR" || state === "DELIVERED");

/** Returns the newest entry of a row that has a response or an error, or the newest of all. */
export const findResponse = ({ newest, earlier }: LogRow): LogEntry =>
  [newest, ...earlier].find(
    ({ responseStatus, error }) => responseStatus !== undefined || (error ?? "") !== "",
  ) ?? newest;

/**
 * Returns the entries of one message without those that add nothing, newest first: the beginning
 * of an attempt that has ended, and a retry after an error. An explanation is only in the newest of the entries
 * that have the same one.
 */
export function toHistory(entries: readonly LogEntry[]): LogEntry[] {
  const shown: LogEntry[] = [];
  const explanations = new Set<string>();
  for (const [at, entry] of entries.entries()) {
    const { state, explanation, ...rest } = entry;
    if (state === "ACTIVE" && shown.some((one) => one.attempt !== undefined || one.state !== "ACTIVE"))
      continue;
    if (state === "RETRY" && entries[at + 1]?.state === "ERROR") continue;
    const isNew = explanation !== undefined && !explanations.has(explanation);
    if (isNew) explanations.add(explanation);
    shown.push({ ...rest, state, ...(isNew && { explanation }) });
  }
  return shown;
}
