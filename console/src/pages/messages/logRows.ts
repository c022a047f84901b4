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

/** Returns the entry of a row with its last response: the end of the last attempt, or the newest entry. */
export const findResponse = (row: LogRow): LogEntry => listAttempts(row)[0] ?? row.newest;

/** An entry of the history of a message. `number` counts attempts, from 1. `isLast`: the message then failed. */
export type HistoryEntry = LogEntry & { number?: number; isLast?: true };

/**
 * Returns the history of one message, newest first: one entry for each attempt, and one for each other event.
 * The beginning of an attempt that has ended, a retry after an error, and a failure after an error add
 * nothing. An explanation is only in the newest of the entries that have the same one.
 */
export function toHistory(entries: readonly LogEntry[]): HistoryEntry[] {
  const shown: HistoryEntry[] = [];
  const explanations = new Set<string>();
  let isLast = false;
  for (const [at, entry] of entries.entries()) {
    const { state, explanation, ...rest } = entry;
    const isAfterError = entries[at + 1]?.state === "ERROR";
    if (state === "ACTIVE" && shown.some((one) => one.attempt !== undefined || one.state !== "ACTIVE"))
      continue;
    if (state === "RETRY" && isAfterError) continue;
    if (state === "FAILED" && isAfterError) {
      isLast = true;
      continue;
    }
    const isNew = explanation !== undefined && !explanations.has(explanation);
    if (isNew) explanations.add(explanation);
    shown.push({ ...rest, state, ...(isNew && { explanation }), ...(isLast && { isLast }) });
    isLast = false;
  }
  return numberAttempts(shown);
}

/** Numbers the attempts, of which the oldest is last. */
function numberAttempts(shown: readonly HistoryEntry[]): HistoryEntry[] {
  let left = shown.filter(isAttempt).length;
  return shown.map((entry) => (isAttempt(entry) ? { ...entry, number: left-- } : entry));
}

const isAttempt = ({ state }: LogEntry): boolean => state === "ERROR" || state === "DELIVERED";

/** Reports whether the receiver of an attempt has reported its outcome. Such an entry has no times. */
export const isReported = (entry: LogEntry): boolean =>
  isAttempt(entry) && entry.attempt === undefined && entry.responseStatus !== undefined;

/** A part of an attempt: its name, how long it took, and the class with its colour. */
export type Phase = { name: string; span: number; className: string };

/** Returns the parts of an attempt that are known, in their order. */
export function listPhases({
  connect,
  lookup = 0,
  tcp = 0,
  tls = 0,
  firstByte,
  duration,
}: NonNullable<LogEntry["attempt"]>): Phase[] {
  // A connection that another request began to open was ready sooner.
  const opening = Math.min(connect ?? 0, lookup + tcp + tls);
  const isKnown = opening > 0 && opening === lookup + tcp + tls;
  const sent = connect ?? duration;
  const phases = [
    isKnown && { name: "name lookup", span: lookup, className: "ph-dns" },
    isKnown && { name: "connect", span: tcp, className: "ph-connect" },
    isKnown && { name: "TLS", span: tls, className: "ph-tls" },
    { name: "connection", span: isKnown ? sent - opening : sent, className: "ph-connect" },
    firstByte !== undefined && { name: "first byte", span: firstByte, className: "ph-wait" },
    connect !== undefined && {
      name: firstByte === undefined ? "no response" : "body",
      span: duration - connect - (firstByte ?? 0),
      className: firstByte === undefined ? "ph-wait bad" : "ph-read",
    },
  ];
  return phases.filter((phase) => phase !== false).filter(({ span }) => span > 0);
}
