import type { Alert } from "../../core/model/alert.ts";
import type { AuditEntry } from "../../core/model/auditEntry.ts";
import type { Job } from "../../core/model/job.ts";
import { parseDetail, readNumber, readOrNull, readText } from "./columns.ts";
import type { Table, Tables } from "./table.ts";

type WorkRow = { account: string; id: string; dueAt: number | null };

/** Returns a table of work that the server does in the background. Rows are found by when they are due. */
const describeWorkTable = <Row extends WorkRow>(name: string): Table<Row> => ({
  name,
  columns: { account: "text", id: "text", due_at: "bigint", detail: "text" },
  key: ["account", "id"],
  write: ({ account, id, dueAt, ...detail }) => ({
    account,
    id,
    due_at: dueAt,
    detail: JSON.stringify(detail),
  }),
  read: (row) => ({
    ...parseDetail<Row>(row),
    account: readText(row.account),
    id: readText(row.id),
    dueAt: readOrNull(row.due_at, readNumber),
  }),
});

/** The tables of what callers have done, and of what the server does for them in the background. */
export const actionTables: Pick<Tables, "audit" | "jobs" | "alerts"> = {
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
  alerts: describeWorkTable<Alert>("alerts"),
  jobs: describeWorkTable<Job>("jobs"),
};
