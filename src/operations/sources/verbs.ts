import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { connectToApi, printShown, withJson } from "../../client/api.ts";
import { apiPath } from "../../client/apiPath.ts";
import { columnsOf } from "../../client/columns.ts";
import type { Resource } from "../../client/listCommand.ts";
import { readLine, readObject, readObjects } from "../../client/terminal/fields.ts";
import { sourceFields } from "./fields.ts";

/** The list of `waypost sources`. */
export const sources: Resource = {
  addMore: addSendRejectedCommand,
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

/** Adds `waypost sources send-rejected`. */
function addSendRejectedCommand(group: Command, context: ClientContext): void {
  const command = group
    .command("send-rejected")
    .description("verify the rejected calls that a source keeps again, and send them")
    .argument("<id>", "id of the source");
  withJson(command).action(async (id: string, flags: OutputFlags) => {
    const result = await connectToApi(context).read({
      method: "POST",
      path: apiPath`/v2/sources/${id}/rejections/send`,
      needs: { one: { sent: "number", repeated: "number" } },
    });
    printShown(flags, {
      value: result,
      describe: () => [
        `sent: ${readLine(result, "sent")}; repeated by the sender: ${readLine(result, "repeated")}`,
        ...readObjects(result, "refused").map(
          (one) => `call ${readLine(one, "callId")}: ${readLine(one, "reason")}`,
        ),
      ],
    });
  });
}
