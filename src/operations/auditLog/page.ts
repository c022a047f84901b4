import type { AuditEntry, AuditFilter } from "../../engine/core/model/auditEntry.ts";
import { matchesAuditFilter } from "../../engine/core/model/auditEntry.ts";
import { firstIdAt } from "../../engine/core/values/ids.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";
import type { StorageReads } from "../../engine/store/layout/storageReads.ts";
import { scanLimit } from "../../engine/store/layout/storageReads.ts";

/**
 * A request for a page of at most `count` entries of the audit log. `cursor`: the id after which the page
 * starts, or null.
 */
export type AuditQuery = { account: AccountId; filter: AuditFilter; cursor: string | null; count: number };
/** A page of the audit log. `cursor` is null at the end. */
export type AuditPage = { entries: AuditEntry[]; cursor: string | null };

const chunk = 500;

/**
 * Returns a page of the audit log, newest entries first. At most `scanLimit` entries are visited. `cursor` is
 * set if the page ends before the log does.
 */
export async function readAuditPage(
  storageReads: StorageReads,
  { account, filter, cursor, count }: AuditQuery,
): Promise<AuditPage> {
  const entries: AuditEntry[] = [];
  const range = { account, descending: true, ...toAuditRange(filter, cursor) };
  let lastId: string | undefined;
  for (let scanned = 0; ;) {
    const limit = lastId === undefined ? Math.min(chunk, count + 1) : chunk;
    const rows = await storageReads.range("audit", {
      ...range,
      ...(lastId !== undefined && { before: lastId }),
      limit,
    });
    for (const row of rows) {
      const isWanted = matchesAuditFilter(filter, row);
      // One more entry than fits shows that there is another page.
      if (isWanted && entries.length === count) return { entries, cursor: lastId ?? null };
      if (isWanted) entries.push(row);
      lastId = row.id;
      if (++scanned >= scanLimit) return { entries, cursor: lastId };
    }
    if (rows.length < limit) return { entries, cursor: null };
  }
}

function toAuditRange({ from, to }: AuditFilter, cursor: string | null): { after?: string; before?: string } {
  const end = to === undefined ? undefined : firstIdAt("aud", to + 1);
  const before = cursor === null ? end : end === undefined || cursor < end ? cursor : end;
  return {
    ...(from === undefined || from === 0 ? {} : { after: firstIdAt("aud", from) }),
    ...(before === undefined ? {} : { before }),
  };
}
