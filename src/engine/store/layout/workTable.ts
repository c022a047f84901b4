import type { WorkRow } from "./storageReads.ts";
import { parseDetail, readNumber, readOrNull, readText } from "./columns.ts";
import type { Table } from "./table.ts";

/** Returns a table of work that the server does in the background. Rows are found by when they are due. */
export const describeWorkTable = <Row extends WorkRow>(name: string): Table<Row> => ({
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

/** Returns the statements that create a table of work. */
export const workTableSchema = (name: string): string => `
create table ${name} (
  account text not null,
  id text not null,
  due_at bigint,
  detail text not null,
  primary key (account, id)
) /*sqlite: without rowid */;
create index ${name}_due on ${name} (due_at, account, id) where due_at is not null;
`;
