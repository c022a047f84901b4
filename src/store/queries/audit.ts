import type { AuditEntry, AuditFilter } from "../../core/model/auditEntry.ts";
import { matchesAuditFilter } from "../../core/model/auditEntry.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { StorageReads } from "./storageReads.ts";
import { lastTime, scanLimit } from "./storageReads.ts";

export type AuditQuery = { account: AccountId; filter: AuditFilter; cursor: string | null; count: number };
export type AuditPage = { entries: AuditEntry[]; cursor: string | null };

const chunk = 500;

/** A page of the audit log, newest first. It looks at a bounded number of entries: `cursor` is set when it stopped before the end. */
export async function readAuditPage(storageReads: StorageReads, { account, filter, cursor, count }: AuditQuery): Promise<AuditPage> {
  const entries: AuditEntry[] = [];
  const range = { account, descending: true, ...toAuditRange(filter, cursor) };
  let lastId: string | undefined;
  for (let scanned = 0; ;) {
    const limit = lastId === undefined ? Math.min(chunk, count + 1) : chunk;
    const rows = await storageReads.range("audit", { ...range, ...(lastId !== undefined && { before: lastId }), limit });
    for (const row of rows) {
      const isWanted = matchesAuditFilter(filter, row);
      // One more than a page shows that there is another page.
      if (isWanted && entries.length === count) return { entries, cursor: lastId ?? null };
      if (isWanted) entries.push(row);
      lastId = row.id;
      if (++scanned >= scanLimit) return { entries, cursor: lastId };
    }
    if (rows.length < limit) return { entries, cursor: null };
  }
}

function toAuditRange({ from, to }: AuditFilter, cursor: string | null): { after?: string; before?: string } {
  const end = to === undefined || to >= lastTime ? undefined : firstIdAt("aud", to + 1);
  const before = cursor === null ? end : end === undefined || cursor < end ? cursor : end;
  return {
    ...(from === undefined || from === 0 ? {} : { after: firstIdAt("aud", Math.min(from, lastTime)) }),
    ...(before === undefined ? {} : { before }),
  };
}
