import type { Command } from "commander";
import { systemClock } from "../engine/clock/clock.ts";
import type { Api, ClientContext, OutputFlags, Shown } from "./api.ts";
import { connectToApi, showResult, withOutput } from "./api.ts";
import type { ApiQuery } from "./connection.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readObjects, readRaw } from "./terminal/fields.ts";
import type { FilterFlags } from "./filterFlags.ts";
import { parseWhole, readFilters, withFilters } from "./filterFlags.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
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
  /** Unites the rows of several pages. Only for a list without a limit. */
  unite?: (rows: readonly Fields[]) => Fields[];
  /** Returns a line about what the last page leaves out, or null. */
  describeRest?: (page: Fields, rows: readonly Fields[]) => string | null;
};

/**
 * Where each of a list can be paused, and the field of the response that says whether it is. `isMade`: a
 * pause creates it.
 */
export type Pausing = { toPath(name: string): string; isPaused: string; isMade: boolean };

/** A list of what an account has. `about` names its entries. `addMore` adds further commands to its group. */
export type Resource = List & {
  about: string;
  pausing?: Pausing;
  addMore?: (group: Command, context: ClientContext) => void;
};

/**
 * The maximum number of entries of a list, and of pages that are read for them, as pages may be almost empty.
 */
export const maxLimit = 100_000;
const maxPages = 2_000;

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
  if (list.pageSize !== null) command.option("--limit <n>", "maximum number of entries", "100");
  return withOutput(command).action((flags: ListFlags & Record<string, unknown>) =>
    runList(list, context, flags),
  );
}

/** Shows a list. */
export async function runList(
  list: List,
  context: ClientContext,
  flags: ListFlags & Record<string, unknown>,
): Promise<void> {
  const api = connectToApi(context);
  const limit = list.pageSize === null ? Infinity : parseWhole("--limit", flags.limit ?? "100", maxLimit);
  await showResult(flags, () => {
    const query = { ...list.query, ...readFilters(list.filters, flags, systemClock.now()) };
    return loadList(api, list, { query, limit });
  });
}

type ListRange = { query: ApiQuery; limit: number };
/** `total` and `more` are those of the last page. */
type Loaded = { page: Fields; rows: readonly Fields[]; isCut: boolean };

async function loadList(api: Api, list: List, range: ListRange): Promise<Shown> {
  const { page, rows: read, isCut } = await loadRows(api, list, range);
  const rows = list.unite?.(read) ?? read;
  const rest = list.describeRest?.(page, rows) ?? null;
  const shown = rows.slice(0, range.limit);
  const total = readLine(page, "total");
  const value = list.rows === "items" ? shown : { ...page, [list.rows]: shown };
  return {
    value,
    describe: () => {
      const now = systemClock.now();
      if (rows.length === 0 && !isCut) return [styled("dim", list.none)];
      const listed = shown.map((row) => ({ row, now }));
      const of = total === "" ? "" : ` of ${total}${page["more"] === true ? " or more" : ""}`;
      const more = isCut ? [styled("dim", `${shown.length}${of} shown; --limit shows more`)] : [];
      return [
        ...(listed.length > 0 ? formatTable(list.columns, listed, columnsOfOutput()) : []),
        ...more,
        ...(rest === null ? [] : [styled("dim", rest)]),
      ];
    },
  };
}

/** Reads pages until there are enough rows. Fails if the pages do not end. */
async function loadRows(api: Api, list: List, { query, limit }: ListRange): Promise<Loaded> {
  let rows: Fields[] = [];
  let cursor = "";
  for (let pages = 1; pages <= maxPages; pages++) {
    const count =
      list.pageSize === null ? undefined : Math.max(1, Math.min(list.pageSize, limit - rows.length));
    const page = await api.read({
      path: list.path,
      query: { ...query, count, ...(cursor !== "" && { cursor }) },
      needs: list.rows === "items" ? { each: {} } : { one: { [list.rows]: "objects" } },
    });
    rows = rows.concat(readObjects(page, list.rows));
    const next = readRaw(page, "cursor");
    if (next === "" || rows.length >= limit) return { page, rows, isCut: next !== "" || rows.length > limit };
    if (next === cursor) break;
    cursor = next;
  }
  throw endlessPages();
}

/** Returns the failure that a server returns pages without an end. */
export const endlessPages = (): CommandFailed =>
  new CommandFailed(
    "unavailable",
    "the server returned page after page without an end; use filters, such as --since, or a smaller --limit",
  );
