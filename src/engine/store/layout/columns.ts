import type { Bytes } from "../../core/values/basics.ts";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import type { LoggedAttempt, LogRow, LogState } from "../../core/model/logRow.ts";
import type { Tag } from "../../core/model/tag.ts";
import { noBytes } from "../../core/values/basics.ts";
import type { CountName, Counts } from "../../core/model/counts.ts";
import { countNames } from "../../core/model/counts.ts";
import type { LogDetail } from "./detail.ts";
import { hasDetail, formatLogDetail } from "./detail.ts";
import type { Columns, Table, Value } from "./table.ts";

/** Returns the text in a column, or an empty string if the column has no text. */
export const readText = (value: Value | undefined): string => (typeof value === "string" ? value : "");
/** Returns the number in a column, or 0 if the column has no number. */
export const readNumber = (value: Value | undefined): number => (typeof value === "number" ? value : 0);
/** Returns the bytes in a column, or no bytes if the column has no value. */
export const readBytes = (value: Value | undefined): Bytes => (value instanceof Uint8Array ? value : noBytes);
/** Returns the value of a column, or null if it has none. */
export const readOrNull = <T extends Value>(
  value: Value | undefined,
  read: (value: Value | undefined) => T,
): T | null => (value === null || value === undefined ? null : read(value));
/** Returns the fields that `write` of the same table has written as JSON. */
export const parseDetail = <Row>(row: Columns): Row => JSON.parse(readText(row.detail)) as Row;
/** Returns the value to store for a body. It is null if the body is empty. */
export const toBodyColumn = (body: Bytes): Bytes | null => (body.byteLength === 0 ? null : body);

/** Returns the column of a count, such as `workflow_runs` for `workflowRuns`. */
export const toCountColumn = (name: CountName): string =>
  name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
/** The names of the usage counts, each with its column. */
export const countColumns = countNames.map((name) => [name, toCountColumn(name)] as const);
/** Returns the usage counts of a row. */
export const readCounts = (row: Columns): Counts =>
  Object.fromEntries(countColumns.map(([name, column]) => [name, readNumber(row[column])])) as Counts;

/** A table whose rows consist only of their key. */
export const keyOnlyTable: Omit<Table<Tag>, "name"> = {
  columns: { account: "text", id: "text" },
  key: ["account", "id"],
  write: ({ account, id }) => ({ account, id }),
  read: (row) => ({ account: readText(row.account), id: readText(row.id) }),
};

const readAttempt = (row: Columns, opening: OpeningTiming | undefined): LoggedAttempt => ({
  startedAt: readNumber(row.started_at),
  connect: readOrNull(row.connect_time, readNumber),
  firstByte: readOrNull(row.first_byte_time, readNumber),
  duration: readNumber(row.duration),
  node: readText(row.node),
  host: readText(row.host),
  ...(opening && { opening }),
});

function readDestination(
  row: Columns,
  opening: OpeningTiming | undefined,
): Pick<LogRow, "attempt" | "settledHost"> {
  if (row.started_at !== null) return { attempt: readAttempt(row, opening) };
  return row.host === null ? {} : { settledHost: readText(row.host) };
}

/** A table of log entries: the log or the kept log. */
export const logTable: Omit<Table<LogRow>, "name"> = {
  columns: {
    account: "text",
    id: "text",
    message_id: "text",
    time: "bigint",
    states: "text",
    status: "integer",
    started_at: "bigint",
    connect_time: "integer",
    first_byte_time: "integer",
    duration: "integer",
    node: "text",
    host: "text",
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
    started_at: row.attempt?.startedAt ?? null,
    connect_time: row.attempt?.connect ?? null,
    first_byte_time: row.attempt?.firstByte ?? null,
    duration: row.attempt?.duration ?? null,
    node: row.attempt?.node ?? null,
    host: row.attempt?.host ?? row.settledHost ?? null,
    // The row of a plain success, which is by far the most frequent row, has no detail.
    detail: hasDetail(row) ? formatLogDetail(row) : null,
    body: toBodyColumn(row.body),
  }),
  read: (row) => {
    const { opening, ...detail }: Partial<LogDetail> = row.detail === null ? {} : parseDetail(row);
    return {
      account: readText(row.account),
      id: readText(row.id),
      messageId: readText(row.message_id),
      time: readNumber(row.time),
      states: readText(row.states).split(" ") as LogState[],
      status: readOrNull(row.status, readNumber),
      body: readBytes(row.body),
      error: null,
      nextDueAt: null,
      headers: [],
      dlqId: null,
      tags: [],
      ...detail,
      ...readDestination(row, opening),
    };
  },
};
