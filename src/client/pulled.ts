import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, printShown, withJson } from "./api.ts";
import { addListCommand } from "./listCommand.ts";
import { readLine } from "./terminal/fields.ts";

/** Adds the commands `waypost pulled …`. */
export function addPulledCommands(program: Command, context: ClientContext): void {
  const group = program.command("pulled").description("origins whose messages clients pull");
  addListCommand(
    group,
    {
      path: "/v2/pulled",
      rows: "origins",
      pageSize: null,
      filters: [],
      none: "no pulled origins",
      columns: [{ title: "ORIGIN", show: ({ row }) => readLine(row, "origin") }],
    },
    { context, about: "list the pulled origins" },
  );
  const withOrigin = (name: string, about: string): Command =>
    withJson(group.command(name).description(about)).argument(
      "<origin>",
      "scheme and host, such as https://worker.internal",
    );
  withOrigin("set", "send no more messages to an origin; clients pull them").action(
    async (origin: string, flags: OutputFlags) => {
      const result = await connectToApi(context).read({
        ...{ method: "PUT", path: "/v2/pulled", body: JSON.stringify({ origin }) },
        headers: { "content-type": "application/json" },
        needs: { one: { origin: "string" } },
      });
      const name = readLine(result, "origin");
      const line = `messages to ${name} now wait for "waypost connect" or POST /v2/pull`;
      printShown(flags, { value: result, describe: () => [line] });
    },
  );
  withOrigin("remove", "send the messages to an origin again").action(
    async (origin: string, flags: OutputFlags) => {
      const result = await connectToApi(context).read({
        ...{ method: "DELETE", path: "/v2/pulled", query: { origin } },
        needs: { one: { removed: "number" } },
      });
      printShown(flags, { value: result, describe: () => ["its messages are sent again"] });
    },
  );
}
