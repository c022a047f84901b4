import { columnsOf, failure } from "../../client/columns.ts";
import type { Resource } from "../../client/listCommand.ts";
import { alertFields } from "./fields.ts";

/** The list of `waypost alerts`. */
export const alerts: Resource = {
  rows: "alerts",
  pageSize: null,
  filters: [],
  about: "alerts of the account",
  path: "/v2/alerts/log",
  none: "no alerts",
  columns: [...columnsOf(alertFields, ["createdAt", "event", "subject", "state", "attempts"]), failure],
};
