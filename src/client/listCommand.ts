import type { Command } from "commander";
import { systemClock } from "../clock/clock.ts";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { connectToApi, showResult, withOutput } from "./api.ts";
import type { ApiQuery } from "./connection.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readObjects, readRaw } from "./terminal/fields.ts";
import type { FilterFlags } from "./filterFlags.ts";
import { parseWhole, readFilters, withFilters } from "./filterFlags.ts";
import type { Column } from "./terminal/table.ts";
import { formatTable } from "./terminal/table.ts";
import { columnsOfOutput, styled } from "./terminal/terminal.ts";

/** A row of a list, and the time at which it was read, for ages. */
export type Listed = { row: Fields; now: number };

/**
 * A list of the API. `rows` is the field of the response with the rows; "items" if the response is an array.
 * `pageSize` is the maximum number of rows of a page; null if the list has no pages.
 */
export type List = {
  path: string;
  rows: string;
  pageSize: number | null;
  filters: FilterFlags;
  columns: readonly Column<Listed>[];
  /** The line that is printed if there are no rows. */
  none: string;
  query?: ApiQuery;
};

type ListFlags = OutputFlags & { limit?: string; newest?: true };

/** Adds the command that shows a list. It is what its group of commands does without a further word. */
export function addListCommand(
  group: Command,
  list: List,
  { context, name = "list", about }: { context: ClientContext; name?: string; about: string },
): Command {
  const command = withFilters(
    group.command(name, { isDefault: name === "list" }).description(about),
    list.filters,
  );
  if (list.pageSize !== null) command.option("--limit <n>", "most entries to show", "100");
  return withOutput(command).action((flags: ListFlags & Record<string, unknown>) =>
    runList(list, context, flags),
  );
}

/** Shows a list. */
async function runList(
  list: List,
  context: ClientContext,
  flags: ListFlags & Record<string, unknown>,
): Promise<void> {
  const api = connectToApi(context);
  const limit = list.pageSize === null ? Infinity : parseWhole("--limit", flags.limit ?? "100");
  await showResult(flags, () => {
    const query = { ...list.query, ...readFilters(list.filters, flags, systemClock.now()) };
    return loadList(api, list, { query, limit });
  });
}

async function loadList(
  api: Api,
  list: List,
  { query, limit }: { query: ApiQuery; limit: number },
): Promise<Shown> {
  const rows: Fields[] = [];
  let page: Fields = {};
  let cursor = "";
  do {
    const count =
      list.pageSize === null ? undefined : Math.max(1, Math.min(list.pageSize, limit - rows.length));
    page = await api.read({
      path: list.path,
      query: { ...query, count, ...(cursor !== "" && { cursor }) },
    });
    rows.push(...readObjects(page, list.rows));
    cursor = readRaw(page, "cursor");
  } while (cursor !== "" && rows.length < limit);
  const shown = rows.slice(0, limit);
  const total = readLine(page, "total");
  const value = list.rows === "items" ? shown : { ...page, [list.rows]: shown };
  return {
    value,
    describe: () => {
      const now = systemClock.now();
      if (shown.length === 0) return [styled("dim", list.none)];
      const listed = shown.map((row) => ({ row, now }));
      const isCut = cursor !== "" || rows.length > shown.length;
      const of = total === "" ? "" : ` of ${total}${page["more"] === true ? " or more" : ""}`;
      const more = isCut ? [styled("dim", `${shown.length}${of} shown; --limit shows more`)] : [];
      return [...formatTable(list.columns, listed, columnsOfOutput()), ...more];
    },
  };
}
