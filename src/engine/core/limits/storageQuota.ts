import type { TableName } from "../decision/command.ts";
import type { Account } from "../model/account.ts";
import { readLimit, serverLimit } from "../accounts/plans.ts";
import type { Terms } from "../model/accountTerms.ts";
import { throwIfRefused } from "../values/errors.ts";
import type { Refused } from "../values/errors.ts";

// Counts the bytes that an account stores, and refuses requests if they exceed its quota. Each transaction
// adds the weight of the rows it wrote to the buckets of `engine/core/accounts/usage.ts`. Adding up
// these buckets for each message would be too expensive. A maintenance task adds them up at intervals, and
// records in the account whether the account exceeds its quota.

/**
 * The tables with which an account can fill the disk: bodies, logs, dead letters, runs, and settings such as
 * schedules. Tags, waitlists, limiters and similar rows are not counted, because they belong to counted rows
 * or their number is limited.
 */
const countedColumns: { readonly [T in TableName | "keptCalls"]?: CountedColumns } = {
  storedMessages: ["detail", "body"],
  log: ["detail", "body"],
  keptLog: ["detail", "body"],
  deadLetters: ["detail", "body"],
  runs: ["detail", "body"],
  steps: ["detail", "body"],
  notifications: ["body"],
  waiters: ["detail"],
  schedules: ["detail", "body"],
  urlGroups: ["detail"],
  rejections: ["detail", "body"],
  keptCalls: ["detail"],
  audit: ["detail"],
};

/** The counted columns of a row: its JSON in UTF-8, and its body. */
type CountedColumns = readonly ("detail" | "body")[];

/** Returns the counted columns of a table; undefined if its rows are not counted. */
export const findCountedColumns = (table: TableName): CountedColumns | undefined => countedColumns[table];

/**
 * The bytes that every row counts for its id, its other columns and its index entries. The weight of a row is
 * their sum with the bytes of its counted columns: see `engine/store/sql/storedBytes.ts`.
 */
export const rowBytes = 100;

/** Above this multiple of the quota, the steps of runs are refused too. */
const hardLimitFactor = 1.25;

/**
 * `full` means over the quota: new content is refused. `overfull` means above 125 % of the quota: the content
 * of active runs is refused too.
 */
export type StorageLevel = "full" | "overfull";

/**
 * Returns the storage level of an account that stores this number of bytes; null if it is within its quota.
 */
export function toStorageLevel(account: Terms, bytes: number): StorageLevel | null {
  const quota = readLimit(account, "storageBytes");
  if (bytes <= quota) return null;
  return bytes > hardLimitFactor * quota ? "overfull" : "full";
}

/** Reports whether the stored bytes of an account must be added up. */
export const hasStorageQuota = (account: Terms): boolean =>
  account.deletedAt === undefined && readLimit(account, "storageBytes") < serverLimit("storageBytes");

/**
 * Returns the storage level of an account, from its recorded bytes and its current quota. A higher quota
 * applies at once.
 */
export const readStorageLevel = (account: Terms): StorageLevel | null =>
  account.storedBytes === undefined ? null : toStorageLevel(account, account.storedBytes);

/**
 * `continuesRun`: the content belongs to an active run. It is refused only above 125 % of the quota, and not
 * because of the disk. `isDiskLow`: see `Moment`.
 */
type Content = { continuesRun: boolean; isDiskLow: boolean | undefined };

const lowDiskMessage =
  "disk: the disk of the server is almost full, so nothing new is accepted; retry later, " +
  "or ask the operator to free some space";

/**
 * Returns why an account may not store more; null if it may. Deliveries, callbacks, results of calls and the
 * log are never refused.
 */
export function findStorageRefusal(
  account: Pick<Account, "id"> & Terms,
  { continuesRun, isDiskLow }: Content,
): Refused | null {
  if (isDiskLow === true && !continuesRun) return { refused: "disk-low", message: lowDiskMessage };
  const level = readStorageLevel(account);
  if (level === null || (continuesRun && level === "full")) return null;
  const quota = readLimit(account, "storageBytes");
  const excess = continuesRun ? " by more than 25 %" : "";
  const problem = `${account.storedBytes} bytes stored exceed this account's limit of ${quota}${excess}`;
  return {
    refused: "storage-quota-exceeded",
    message: `storage: ${problem}; delete dead letters, schedules or URL groups, wait until logs expire`,
    remedy: { remedy: "raise-storage-quota", account: account.id },
  };
}

/** Throws `Refusal` if an account may not store more. */
export function assertStorageAvailable(account: Pick<Account, "id"> & Terms, options: Content): void {
  throwIfRefused(findStorageRefusal(account, options));
}
