import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { connectToApi, printShown, withJson } from "../../client/api.ts";
import { apiPath } from "../../client/apiPath.ts";
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

/** Adds `waypost hosts end-attempts`. */
function addEndAttemptsCommand(group: Command, context: ClientContext): void {
  const command = group
    .command("end-attempts")
    .description("end the running attempts to a host that began until now, and retry")
    .argument("<host>", "the host, with its port unless it is the default one");
  withJson(command).action(async (host: string, flags: OutputFlags) => {
    const api = connectToApi(context);
    const path = apiPath`/v2/hosts/${host}`;
    // The clock of this machine may differ from that of the server.
    const now = await api.read({ path, needs: { one: { at: "number" } } });
    const result = await api.read({
      method: "POST",
      path: `${path}/end-attempts`,
      query: { startedBefore: readLine(now, "at") },
      needs: { one: { ended: "number" } },
    });
    const ended = readNumber(result, "ended") ?? 0;
    const line =
      ended === 1 ? "1 attempt ended; its message is" : `${ended} attempts ended; their messages are`;
    printShown(flags, {
      value: result,
      describe: () => [ended === 0 ? "no attempts ended" : `${line} sent again after the retry delay`],
    });
  });
}

/** The list of `waypost hosts`. */
export const hosts: Resource = {
  addMore: addEndAttemptsCommand,
  rows: "hosts",
  pageSize: null,
  filters: [],
  about: "hosts that messages are sent to, with failures and durations",
  path: "/v2/hosts",
  none: "no deliveries of late",
  columns: [
    ...columnsOf(hostFields, ["host", "state", "inFlight", "waiting", "attempts"]),
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
