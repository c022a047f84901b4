import type { Bytes, LogRow, LogState, Tag } from "../../core/model/message.ts";
import { noBytes } from "../../core/model/message.ts";
import type { CountName, Counts } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { LogDetail } from "./detail.ts";
import { hasDetail, formatLogDetail } from "./detail.ts";
import type { Columns, Table, Value } from "./table.ts";

export const text = (value: Value | undefined): string => (typeof value === "string" ? value : "");
export const number = (value: Value | undefined): number => (typeof value === "number" ? value : 0);
export const bytes = (value: Value | undefined): Bytes => (value instanceof Uint8Array ? value : noBytes);
export const orNull = <T extends Value>(value: Value | undefined, read: (value: Value | undefined) => T): T | null =>
  value === null || value === undefined ? null : read(value);
/** What was written as JSON, by `write` of the same table. */
export const parseDetail = <Row>(row: Columns): Row => JSON.parse(text(row.detail)) as Row;
export const toBodyColumn = (body: Bytes): Bytes | null => (body.byteLength === 0 ? null : body);

/** `workflowRuns` is the column `workflow_runs`. */
export const toCountColumn = (name: CountName): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
export const countColumns = countNames.map((name) => [name, toCountColumn(name)] as const);
export const readCounts = (row: Columns): Counts =>
  Object.fromEntries(countColumns.map(([name, column]) => [name, number(row[column])])) as Counts;

/** A table of rows that are nothing but their keys. */
export const keyOnlyTable: Omit<Table<Tag>, "name"> = {
  columns: { account: "text", id: "text" },
  key: ["account", "id"],
  write: ({ account, id }) => ({ account, id }),
  read: (row) => ({ account: text(row.account), id: text(row.id) }),
};

/** A table of entries of the log. */
export const logTable: Omit<Table<LogRow>, "name"> = {
  columns: {
    account: "text",
    id: "text",
    message_id: "text",
    time: "bigint",
    states: "text",
    status: "integer",
    detail: "text",
    body: "bytea",
  },
  key: ["account", "id"],
  write: (row) => ({
    account: row.account,
    id: row.id,
    message_id: row.messageId,
    time: row.time,
    states: row.states.join(" "),
    status: row.status,
    // A plain success has nothing to add, and is by far the most frequent row.
    detail: hasDetail(row) ? formatLogDetail(row) : null,
    body: toBodyColumn(row.body),
  }),
  read: (row) => ({
    account: text(row.account),
    id: text(row.id),
    messageId: text(row.message_id),
    time: number(row.time),
    states: text(row.states).split(" ") as LogState[],
    status: orNull(row.status, number),
    body: bytes(row.body),
    error: null,
    nextDueAt: null,
    headers: [],
    dlqId: null,
    tags: [],
    ...(row.detail === null ? {} : parseDetail<Partial<LogDetail>>(row)),
  }),
};
