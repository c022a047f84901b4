import type { Command } from "commander";
import type { ClientContext, OutputFlags } from "../../client/api.ts";
import { withOutput } from "../../client/api.ts";
import { columnsOf } from "../../client/columns.ts";
import type { List } from "../../client/listCommand.ts";
import { runList } from "../../client/listCommand.ts";
import { foundFields } from "./fields.ts";

const found: List = {
  path: "/v2/search",
  rows: "found",
  pageSize: 100,
  filters: [],
  columns: columnsOf(foundFields, ["kind", "id", "part", "time", "excerpt"]),
  none: "nothing found",
};

/** Adds the command `waypost search`. */
export function addSearchCommand(program: Command, context: ClientContext): void {
  withOutput(
    program
      .command("search")
      .description("find an id of any kind, or text in labels, URLs, errors and bodies")
      .argument("<text>", "the id or the text")
      .option("--limit <n>", "maximum number of things that are found by their text", "20"),
  ).action((text: string, flags: OutputFlags & { limit: string }) =>
    runList({ ...found, query: { query: text } }, context, flags),
  );
}
