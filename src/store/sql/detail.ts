import type { Envelope, LogRow } from "../../core/model/message.ts";

// What is never searched for, of the rows that every message has, is kept as JSON; what most of them have none of is left out.

/** What most envelopes have none of. It is left out of their detail, which makes a plain one a third smaller on the disk. */
export const rare = {
  ...{ retryDelay: null, callback: null, failureCallback: null, deduplication: null, redaction: null, callerIp: null, tells: null },
  ...{ labels: [], headers: [], flowControl: null, group: null, endpoint: null, queue: null, scheduleId: null },
} as const satisfies Record<Exclude<keyof Envelope, "account" | "id" | "body" | "damaged" | Common>, null | readonly []>;

/** What all envelopes have, and messages of runs. */
type Common = "brand" | "url" | "method" | "retries" | "timeout" | "createdAt" | "notBefore" | "startedAtOnce" | "run" | "keepResponse";

const rareNames = Object.keys(rare) as (keyof typeof rare)[];

const isEmpty = (value: unknown): boolean => value === null || (Array.isArray(value) && value.length === 0);

/** What an envelope has besides its columns. It stands on the way of every message. */
export function envelopeJson(row: Envelope): string {
  const { brand, url, method, retries, timeout, createdAt, notBefore, startedAtOnce, run, keepResponse } = row;
  const common: Record<Common, unknown> = { brand, url, method, retries, timeout, createdAt, notBefore, startedAtOnce, run, keepResponse };
  const kept: Record<string, unknown> = common;
  for (const name of rareNames) if (!isEmpty(row[name])) kept[name] = row[name];
  return JSON.stringify(kept);
}

export function logJson({ error, nextDueAt, headers, digest, cut, dlqId, marks }: LogDetail): string {
  const kept: Partial<Record<keyof LogDetail, unknown>> = {};
  if (error !== null) kept.error = error;
  if (nextDueAt !== null) kept.nextDueAt = nextDueAt;
  if (headers.length > 0) kept.headers = headers;
  if (digest !== undefined) kept.digest = digest;
  if (cut) kept.cut = cut;
  if (dlqId !== null) kept.dlqId = dlqId;
  if (marks.length > 0) kept.marks = marks;
  return JSON.stringify(kept);
}

export type LogDetail = Pick<LogRow, "error" | "nextDueAt" | "headers" | "digest" | "cut" | "dlqId" | "marks">;
export const hasDetail = ({ error, nextDueAt, headers, digest, cut, dlqId, marks }: LogDetail): boolean =>
  digest !== undefined || cut === true || error !== null || nextDueAt !== null || dlqId !== null || headers.length > 0 || marks.length > 0;
