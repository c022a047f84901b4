import type { AuditEntry } from "../../core/model/auditEntry.ts";
import { parseDetail, readNumber, readText } from "./columns.ts";
import type { Tables } from "./table.ts";

/** The table of what callers have done. */
export const actionTables: Pick<Tables, "audit"> = {
  audit: {
    name: "audit",
    columns: { account: "text", id: "text", time: "bigint", action: "text", detail: "text" },
    key: ["account", "id"],
    write: ({ account, id, time, what, ...detail }) => ({
      account,
      id,
      time,
      action: what,
      detail: JSON.stringify(detail),
    }),
    read: (row) => ({
      ...parseDetail<AuditEntry>(row),
      account: readText(row.account),
      id: readText(row.id),
      time: readNumber(row.time),
      what: readText(row.action),
    }),
  },
};
