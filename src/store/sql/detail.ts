import type { StoredMessage, LogRow } from "../../core/model/message.ts";

// What is never searched for, of the rows that every message has, is kept as JSON; what most of them have none of is left out.

/** What most envelopes have none of. It is left out of their detail, which makes a plain one a third smaller on the disk. */
export const emptyFields = {
  retryDelay: null,
  callback: null,
  failureCallback: null,
  deduplication: null,
  redaction: null,
  callerIp: null,
  reportsOn: null,
  labels: [],
  headers: [],
  flowControl: null,
  group: null,
  endpoint: null,
  queue: null,
  scheduleId: null,
} as const satisfies Record<Exclude<keyof StoredMessage, "account" | "id" | "body" | "damaged" | CommonField>, null | readonly []>;

/** What all envelopes have, and messages of runs. */
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
  | "keepResponse";

const emptyFieldNames = Object.keys(emptyFields) as (keyof typeof emptyFields)[];

const isEmpty = (value: unknown): boolean => value === null || (Array.isArray(value) && value.length === 0);

/** What an envelope has besides its columns. It stands on the way of every message. */
export function formatStoredMessage(row: StoredMessage): string {
  const { brand, url, method, retries, timeout, createdAt, notBefore, startedAtOnce, run, keepResponse } = row;
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
    keepResponse,
  };
  const kept: Record<string, unknown> = common;
  for (const name of emptyFieldNames) if (!isEmpty(row[name])) kept[name] = row[name];
  return JSON.stringify(kept);
}

export function formatLogDetail({ error, nextDueAt, headers, digest, cut, dlqId, tags }: LogDetail): string {
  const kept: Partial<Record<keyof LogDetail, unknown>> = {};
  if (error !== null) kept.error = error;
  if (nextDueAt !== null) kept.nextDueAt = nextDueAt;
  if (headers.length > 0) kept.headers = headers;
  if (digest !== undefined) kept.digest = digest;
  if (cut) kept.cut = cut;
  if (dlqId !== null) kept.dlqId = dlqId;
  if (tags.length > 0) kept.tags = tags;
  return JSON.stringify(kept);
}

export type LogDetail = Pick<LogRow, "error" | "nextDueAt" | "headers" | "digest" | "cut" | "dlqId" | "tags">;
export const hasDetail = ({ error, nextDueAt, headers, digest, cut, dlqId, tags }: LogDetail): boolean =>
  digest !== undefined || cut === true || error !== null || nextDueAt !== null || dlqId !== null || headers.length > 0 || tags.length > 0;
