import type { LimitName } from "../../engine/core/model/accountTerms.ts";

/** Noun phrases for the limits of an account, shown by the help and the API document. */
export const aboutLimits: Readonly<Record<LimitName, string>> = {
  messageBytes: "bytes per message",
  retries: "retries per message",
  delay: "longest delay of a message",
  timeout: "longest timeout of a message",
  parallelism: "messages in progress per queue, and deliveries in flight per endpoint; others wait",
  queues: "queues, up to the server's --max-queues",
  schedules: "schedules",
  groups: "URL groups",
  endpoints: "endpoints per URL group",
  sources: "sources",
  requestsPerDay: "requests per day without a warning",
  requestsPerDayHard: "requests per day; more are refused",
  tokens: "tokens, in addition to the main and the read-only token",
  deadLetterRetention: "how long dead letters are kept, up to the server's --dlq-retention",
  logRetention: "how long logs of messages and runs are kept, up to the server's --log-retention",
  auditRetention: "how long the audit log is kept, up to the server's --audit-retention",
  globalParallelism: "deliveries in flight; others wait",
  deadLetters: "dead letters; the oldest are deleted first",
  logEntries: "log entries; the oldest are deleted first",
  auditEntries: "audit log entries; the oldest are deleted first",
  requestsPerSecond: "requests per second, not counting publishes",
  storageBytes:
    "bytes stored in bodies, logs, dead letters, runs, schedules and audit log; " +
    "beyond it publishing is refused",
};
