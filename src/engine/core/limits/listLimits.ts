import { readLimit, serverLimit } from "../accounts/plans.ts";
import { hasStorageQuota } from "./storageQuota.ts";
import type { Terms } from "../model/accountTerms.ts";

/**
 * The lists of an account that have a limit on their length, and the names of these limits. The limit of the
 * log applies to the log and to the kept log separately.
 */
export const limitedLists = {
  log: "logEntries",
  keptLog: "logEntries",
  deadLetters: "deadLetters",
  audit: "auditEntries",
} as const;
/** A list that has a limit on its length. */
export type LimitedList = keyof typeof limitedLists;

/**
 * The number of audit entries that an account with a storage quota keeps, unless its limit is lower. A quota
 * never refuses audit entries, so their number is limited instead.
 */
const auditEntriesWithQuota = 100_000;

/** Returns how long a list of an account may be. Null: it has no limit. */
export function readListLimit(account: Terms, list: LimitedList): number | null {
  const limit = readLimit(account, limitedLists[list]);
  const maxLength =
    list === "audit" && hasStorageQuota(account) ? Math.min(limit, auditEntriesWithQuota) : limit;
  return maxLength < serverLimit(limitedLists[list]) ? maxLength : null;
}
