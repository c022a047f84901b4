import { columnsOf } from "../../client/columns.ts";
import type { Resource } from "../../client/listCommand.ts";
import { seriesFields } from "./fields.ts";

/** The list of `waypost unpublished`. */
export const unpublished: Resource = {
  rows: "series",
  pageSize: null,
  filters: [],
  about: "what never became a message: refused, repeated and rejected requests",
  path: "/v2/unpublished",
  none: "nothing was refused or dropped of late",
  columns: columnsOf(seriesFields, [
    ...(["name", "subject", "reason", "lastHour", "total", "firstAt", "lastAt", "address"] as const),
    ...(["deduplicationId", "messageId"] as const),
  ]),
};
