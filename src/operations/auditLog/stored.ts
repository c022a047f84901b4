import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import type { StoredOperation } from "../../engine/store/layout/storedOperation.ts";
import { nothingStored } from "../../engine/store/layout/storedOperation.ts";
import type { AuditPage, AuditQuery } from "./page.ts";
import { readAuditPage } from "./page.ts";

/**
 * The list of what callers have changed. The engine writes its entries, in the transactions of the changes.
 */
export const auditLog = {
  ...nothingStored,
  createQueries: (reads: StorageReads) => ({
    /** Returns who changed the settings of an account, newest entries first. */
    audit: (query: AuditQuery): Promise<AuditPage> => readAuditPage(reads, query),
  }),
} satisfies StoredOperation;
