import type { Rows, TableName } from "../../../src/engine/core/decision/command.ts";

/** All rows, by their keys. */
export type Tables = { readonly [T in TableName]: ReadonlyMap<string, Rows[T]> };
/** A change of a row. */
export type Change<T extends TableName> = { before: Rows[T] | undefined; after: Rows[T] | undefined };
/** The changes of one batch, by table. */
export type Changes = { [T in TableName]: Change<T>[] };

/** Returns the changes of a batch that changed nothing. */
export const noChanges = (): Changes => ({
  accounts: [],
  storedMessages: [],
  messages: [],
  deduplications: [],
  deadLetters: [],
  hostWaitlists: [],
  log: [],
  keptLog: [],
  limiters: [],
  queueSlots: [],
  urlGroups: [],
  schedules: [],
  sources: [],
  tokens: [],
  rejections: [],
  tags: [],
  timeIndex: [],
  runs: [],
  activeRuns: [],
  steps: [],
  waiters: [],
  notifications: [],
  usage: [],
  dayCounts: [],
  secondCounts: [],
  audit: [],
  jobs: [],
  outboxes: [],
  alerts: [],
  keptCalls: [],
  series: [],
  serverSettings: [],
});
