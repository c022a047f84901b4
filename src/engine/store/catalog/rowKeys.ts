import { operations } from "../../../operations/stored.ts";
import type { Key, Rows, TableName } from "../../core/decision/command.ts";

/** Returns the key of a row, by table. */
export const toKey: { [T in TableName]: (row: Rows[T]) => Key } = {
  accounts: (row) => [row.id],
  storedMessages: (row) => [row.account, row.id],
  messages: (row) => [row.account, row.id],
  deduplications: (row) => [row.account, row.key],
  deadLetters: (row) => [row.account, row.id],
  hostWaitlists: (row) => [row.account, row.host],
  limiters: (row) => [row.account, row.id],
  queueSlots: (row) => [row.account, row.id],
  urlGroups: (row) => [row.account, row.name],
  schedules: (row) => [row.account, row.id],
  sources: (row) => [row.account, row.id],
  tokens: (row) => [row.account, row.id],
  rejections: (row) => [row.account, row.id],
  log: (row) => [row.account, row.id],
  keptLog: (row) => [row.account, row.id],
  tags: (row) => [row.account, row.id],
  timeIndex: (row) => [row.account, row.id],
  runs: (row) => [row.account, row.id],
  activeRuns: (row) => [row.account, row.runId],
  steps: (row) => [row.account, row.id],
  waiters: (row) => [row.account, row.id],
  notifications: (row) => [row.account, row.id],
  usage: (row) => [row.account, row.id],
  dayCounts: (row) => [row.account],
  secondCounts: (row) => [row.account],
  audit: (row) => [row.account, row.id],
  serverSettings: (row) => [row.id],
  ...operations.keys,
};

/** Returns a key as one text. */
export const formatKey = ([account, id]: Key): string => (id === undefined ? account : `${account}\n${id}`);
