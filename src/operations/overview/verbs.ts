import { columnsOf } from "../../client/columns.ts";
import type { Listed, Resource } from "../../client/listCommand.ts";
import { readLine, readNumber, readObject } from "../../client/terminal/fields.ts";
import type { Column } from "../../client/terminal/table.ts";
import { formatSpan, formatTime } from "../../client/terminal/times.ts";
import { hostFields } from "./fields.ts";

const spanField = (title: string, name: string): Column<Listed> => ({
  title,
  isNumber: true,
  show: ({ row }) => {
    const span = readNumber(row, name);
    return span === null ? "" : formatSpan(span);
  },
});

/** The list of `waypost hosts`. */
export const hosts: Resource = {
  rows: "hosts",
  pageSize: null,
  filters: [],
  about: "hosts that messages are sent to, with failures and durations",
  path: "/v2/hosts",
  none: "no deliveries of late",
  columns: [
    ...columnsOf(hostFields, ["host", "inFlight", "waiting", "attempts"]),
    {
      title: "FAILED",
      isNumber: true,
      show: ({ row }) => {
        const share = readNumber(row, "failureShare");
        return share === null ? "" : `${Math.round(share * 100)}%`;
      },
      style: ({ row }) => ((readNumber(row, "failureShare") ?? 0) >= 0.5 ? "red" : null),
    },
    spanField("P50", "p50"),
    spanField("P95", "p95"),
    {
      title: "LAST FAILURE",
      shrinks: true,
      show: ({ row }) => {
        const last = readObject(row, "lastFailure");
        const parts = [formatTime(last, "time"), readLine(last, "responseStatus"), readLine(last, "error")];
        return parts.filter(Boolean).join(" ");
      },
    },
  ],
};
