import { countColumns, readCounts, readNumber, readText } from "./columns.ts";
import type { ColumnType, Tables } from "./table.ts";

/** The columns of the tables of counts: usage, and the requests of days and seconds. */
export const countTables = {
  usage: {
    name: "usage",
    columns: {
      account: "text",
      id: "text",
      ...Object.fromEntries(countColumns.map(([, column]): [string, ColumnType] => [column, "bigint"])),
    },
    key: ["account", "id"],
    write: (row) => ({
      account: row.account,
      id: row.id,
      ...Object.fromEntries(countColumns.map(([name, column]) => [column, row[name]])),
    }),
    read: (row) => ({ account: readText(row.account), id: readText(row.id), ...readCounts(row) }),
  },
  dayCounts: {
    name: "day_counts",
    columns: { account: "text", day: "bigint", requests: "bigint" },
    key: ["account"],
    contested: true,
    write: ({ account, day, requests }) => ({ account, day, requests }),
    read: (row) => ({
      account: readText(row.account),
      day: readNumber(row.day),
      requests: readNumber(row.requests),
    }),
  },
  secondCounts: {
    name: "second_counts",
    columns: { account: "text", second: "bigint", requests: "bigint" },
    key: ["account"],
    contested: true,
    write: ({ account, second, requests }) => ({ account, second, requests }),
    read: (row) => ({
      account: readText(row.account),
      second: readNumber(row.second),
      requests: readNumber(row.requests),
    }),
  },
} satisfies Partial<Tables>;
