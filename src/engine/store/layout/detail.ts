import { noMessageSettings } from "../../core/model/message.ts";
import { noSendSettings } from "../../core/model/sendSettings.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import type { LogRow } from "../../core/model/logRow.ts";

// The JSON in the column `detail` of stored messages and log entries. Every message writes such rows, so
// fields that are empty in most messages are left out of the JSON.

const { method: _method, retries: _retries, timeout: _timeout, ...sending } = noSendSettings;
const { delay: _delay, notBefore: _notBefore, ...rest } = noMessageSettings;

/**
 * The fields that are empty in most stored messages, with their empty values. Leaving them out of the JSON
 * makes a plain message a third smaller on disk.
 */
export const emptyFields = { ...sending, ...rest } satisfies Record<
  Exclude<keyof StoredMessage, "account" | "id" | "body" | "damaged" | CommonField>,
  unknown
>;

/** The fields that are written in any case: those that all stored messages have, and the optional ones. */
type CommonField =
  | "brand"
  | "url"
  | "method"
  | "retries"
  | "timeout"
  | "createdAt"
  | "notBefore"
  | "startedAtOnce"
  | "run"
  | "deduplicationId"
  | "keepResponse"
  | "hideHeaders"
  | "trace"
  | "replayOf"
  | "ackTimeout"
  | "ackKey";

const emptyFieldNames = Object.keys(emptyFields) as (keyof typeof emptyFields)[];

const isEmpty = (value: unknown): boolean => value === null || (Array.isArray(value) && value.length === 0);

/**
 * Returns the JSON of a stored message: the fields that have no column. This function runs for every message.
 */
export function formatStoredMessage(row: StoredMessage): string {
  const { brand, url, method, retries, timeout, createdAt, notBefore, startedAtOnce, run } = row;
  const common: Record<CommonField, unknown> = {
    brand,
    url,
    method,
    retries,
    timeout,
    createdAt,
    notBefore,
    startedAtOnce,
    run,
    deduplicationId: row.deduplicationId,
    keepResponse: row.keepResponse,
    hideHeaders: row.hideHeaders,
    trace: row.trace,
    replayOf: row.replayOf,
    ackTimeout: row.ackTimeout,
    ackKey: row.ackKey,
  };
  const kept: Record<string, unknown> = common;
  for (const name of emptyFieldNames) if (!isEmpty(row[name])) kept[name] = row[name];
  return JSON.stringify(kept);
}

/** Returns the JSON of a log entry: the non-empty fields that have no column. */
export function formatLogDetail(row: Omit<LogDetail, "opening"> & Pick<LogRow, "attempt">): string {
  const { error, nextDueAt, headers, digest, cut, dlqId, tags, attempt } = row;
  const kept: Partial<Record<keyof LogDetail, unknown>> = {};
  if (error !== null) kept.error = error;
  if (nextDueAt !== null) kept.nextDueAt = nextDueAt;
  if (headers.length > 0) kept.headers = headers;
  if (digest !== undefined) kept.digest = digest;
  if (cut) kept.cut = cut;
  if (dlqId !== null) kept.dlqId = dlqId;
  if (tags.length > 0) kept.tags = tags;
  if (attempt?.opening) kept.opening = attempt.opening;
  return JSON.stringify(kept);
}

/** The fields of a log entry that are stored as JSON. `opening` is a part of its attempt. */
export type LogDetail = Pick<
  LogRow,
  "error" | "nextDueAt" | "headers" | "digest" | "cut" | "dlqId" | "tags"
> & {
  opening?: OpeningTiming;
};
/** Reports whether a log entry has any field that is stored as JSON. */
export const hasDetail = ({
  error,
  nextDueAt,
  headers,
  digest,
  cut,
  dlqId,
  tags,
  attempt,
}: Omit<LogDetail, "opening"> & Pick<LogRow, "attempt">): boolean =>
  attempt?.opening !== undefined ||
  digest !== undefined ||
  cut === true ||
  error !== null ||
  nextDueAt !== null ||
  dlqId !== null ||
  headers.length > 0 ||
  tags.length > 0;
