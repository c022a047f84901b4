import type { AuditEntry, AuditFilter } from "../../core/model/auditEntry.ts";
import { isMeant } from "../../core/model/auditEntry.ts";
import { firstIdAt } from "../../core/values/ids.ts";
import type { AccountId } from "../../core/model/message.ts";
import type { Shelf } from "./storageReads.ts";
import { lastTime, scanLimit } from "./storageReads.ts";

export type AuditQuery = { account: AccountId; filter: AuditFilter; cursor: string | null; count: number };
export type AuditPage = { entries: AuditEntry[]; cursor: string | null };

const chunk = 500;

/** A page of the audit log, newest first. It looks at a bounded number of entries: `cursor` is set when it stopped before the end. */
export async function auditPage(shelf: Shelf, { account, filter, cursor, count }: AuditQuery): Promise<AuditPage> {
  const entries: AuditEntry[] = [];
  const range = { account, descending: true, ...stretch(filter, cursor) };
  let last: string | undefined;
  for (let scanned = 0; ;) {
    const limit = last === undefined ? Math.min(chunk, count + 1) : chunk;
    const rows = await shelf.range("audit", { ...range, ...(last !== undefined && { before: last }), limit });
    for (const row of rows) {
      const isWanted = isMeant(filter, row);
      // One more than a page shows that there is another page.
      if (isWanted && entries.length === count) return { entries, cursor: last ?? null };
      if (isWanted) entries.push(row);
      last = row.id;
      if (++scanned >= scanLimit) return { entries, cursor: last };
    }
    if (rows.length < limit) return { entries, cursor: null };
  }
}

function stretch({ from, to }: AuditFilter, cursor: string | null): { after?: string; before?: string } {
  const end = to === undefined || to >= lastTime ? undefined : firstIdAt("aud", to + 1);
  const before = cursor === null ? end : end === undefined || cursor < end ? cursor : end;
  return {
    ...(from === undefined || from === 0 ? {} : { after: firstIdAt("aud", Math.min(from, lastTime)) }),
    ...(before === undefined ? {} : { before }),
  };
}
