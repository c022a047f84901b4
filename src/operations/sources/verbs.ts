import { columnsOf } from "../../client/columns.ts";
import type { Resource } from "../../client/listCommand.ts";
import { readLine, readObject } from "../../client/terminal/fields.ts";
import { sourceFields } from "./fields.ts";

/** The list of `waypost sources`. */
export const sources: Resource = {
  rows: "sources",
  pageSize: 100,
  filters: [],
  about: "sources, which receive webhooks",
  path: "/v2/sources",
  none: "no sources",
  columns: [
    ...columnsOf(sourceFields, ["sourceId", "name", "destination"]),
    { title: "SCHEME", show: ({ row }) => readLine(readObject(row, "verification"), "scheme") },
    ...columnsOf(sourceFields, ["lastCallAt", "accepted", "rejected", "paused"]),
  ],
};
