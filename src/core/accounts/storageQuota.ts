import type { Decision, TableName } from "../decision/command.ts";
import { Refusal } from "../values/errors.ts";
import type { Account, AccountId } from "../model/message.ts";
import { toLimitFlag, readLimit, serverLimit } from "./plans.ts";
import type { Terms } from "../model/accountTerms.ts";

// How many bytes an account stores, and what is refused if that is more than its quota. Each transaction adds the weight of the rows it
// wrote to the buckets of `core/accounts/usage.ts`. To sum them up for each message would cost more than the message, so a duty does that and
// notes in the account if it is over its quota.

/**
 * Tables of which an account can fill the disk: bodies, logs, dead letters, runs and what people set up. Marks, lines, flows and the like
 * are not counted: they come with rows that are, or their number is limited.
 */
const weighedColumns: { readonly [T in TableName]?: WeighedColumns } = {
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
  audit: ["detail"],
};

/** The weighed columns of a row: its JSON in UTF-8, its body. */
type WeighedColumns = readonly ("detail" | "body")[];

/** Returns what is weighed of the rows of a table. Undefined: they are not. */
export const findWeighedColumns = (table: TableName): WeighedColumns | undefined => weighedColumns[table];

/** The bytes that every row counts for its id, its other columns and its index entries. */
export const rowBytes = 100;

/** Returns what a row weighs, in bytes. `parts`: the bytes of what is weighed of it. `store/sql/storedBytes.ts` says the same in SQL. */
export const weighRow = (parts: readonly number[]): number => parts.reduce((sum, bytes) => sum + bytes, rowBytes);

/** Beyond this share of the quota the steps of runs are refused as well. */
const overfullFactor = 1.25;

/** `full`: over the quota, so nothing new is taken. `overfull`: above 125 % of it, so runs wait too. */
export type StorageLevel = "full" | "overfull";

/** Returns what an account is that stores these bytes. Null: it is within its quota. */
export function toStorageLevel(account: Terms, bytes: number): StorageLevel | null {
  const quota = readLimit(account, "storageBytes");
  if (bytes <= quota) return null;
  return bytes > overfullFactor * quota ? "overfull" : "full";
}

/** Reports whether what an account stores must be looked at. */
export const hasStorageQuota = (account: Terms): boolean =>
  account.deletedAt === undefined && readLimit(account, "storageBytes") < serverLimit("storageBytes");

/**
 * Notes that an account is over its quota, above 125 % of it, or within it again. `bytes`: what it stores. A change within the same level is
 * not noted, so that an account is written only if what it may do changes.
 */
export const noteStorage: Decision<{ account: AccountId; bytes: number }, { noted: boolean }> = {
  needs: ({ account }) => ({ accounts: [[account]] }),
  decide: ({ account: id, bytes }, draft) => {
    const account = draft.get("accounts", id);
    if (!account || readStorageLevel(account) === toStorageLevel(account, bytes)) return { noted: false };
    const { storedBytes: _before, ...others } = account;
    draft.put("accounts", toStorageLevel(account, bytes) === null ? others : { ...others, storedBytes: bytes });
    return { noted: true };
  },
};

/** Returns what an account is by what was noted of it and by its present quota, so that a higher quota holds at once. */
export const readStorageLevel = (account: Terms): StorageLevel | null =>
  account.storedBytes === undefined ? null : toStorageLevel(account, account.storedBytes);

type Refused = { refused: "storage-quota-exceeded"; message: string };

/**
 * Returns why an account may not store more, if it may not. `continuesRun`: the content belongs to a run that has begun, and is refused only above
 * 125 % of the quota. Deliveries, callbacks, results of calls and the log are never refused.
 */
export function findStorageRefusal(account: Pick<Account, "id"> & Terms, { continuesRun }: { continuesRun: boolean }): Refused | null {
  const level = readStorageLevel(account);
  if (level === null || (continuesRun && level === "full")) return null;
  const quota = readLimit(account, "storageBytes");
  const raise = `"waypost account limits ${account.id} --${toLimitFlag("storageBytes")} <n>"`;
  const remedy = `delete dead letters, schedules or URL groups, wait until logs expire, or raise it with ${raise}`;
  const problem = `${account.storedBytes} bytes stored exceed this account's limit of ${quota}${continuesRun ? " by more than 25 %" : ""}`;
  return { refused: "storage-quota-exceeded", message: `storage: ${problem}; ${remedy}` };
}

/** Throws `Refusal` if an account may not store more. */
export function mustHaveStorage(account: Pick<Account, "id"> & Terms, options: { continuesRun: boolean }): void {
  const refusal = findStorageRefusal(account, options);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}
