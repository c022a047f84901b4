import type { Command } from "commander";
import { systemClock } from "../engine/clock/clock.ts";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, withJson } from "./api.ts";
import type { ApiQuery } from "./connection.ts";
import { logFilters, parseWhole, readFilters, withFilters } from "./filterFlags.ts";
import { maxLimit } from "./listCommand.ts";
import { followLog, maxLogPage, readLogPages } from "./logTail.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObject } from "./terminal/fields.ts";
import { fitLine, toSafeJson } from "./terminal/safeText.ts";
import { columnsOfOutput, print, styled } from "./terminal/terminal.ts";
import { formatSpan, formatTime } from "./terminal/times.ts";

type LogFlags = OutputFlags & Readonly<Record<string, unknown>> & { follow?: true; limit: string };

/** Adds the command `waypost logs`. */
export function addLogCommand(program: Command, context: ClientContext): void {
  const command = withFilters(
    program.command("logs").description("print the log of messages, the newest entries last"),
    logFilters,
  )
    .option("--limit <n>", "maximum number of older entries to print before the new ones", "100")
    .option("--follow", "print new entries as they are written, until Ctrl-C");
  withJson(command).action(async (flags: LogFlags) => {
    const api = connectToApi(context);
    const limit = parseWhole("--limit", flags.limit, maxLimit);
    const query = readFilters(logFilters, flags, systemClock.now());
    if (flags.follow && "toDate" in query)
      throw new CommandFailed("usage", "--until: does not go together with --follow; remove one of the two");
    const newest = limit === 0 ? [] : await readNewest(api, query, limit + 1);
    const isCut = newest.length > limit;
    const entries = isCut ? newest.slice(1) : newest;
    for (const entry of entries) printEntry(entry, flags);
    if (flags.follow) {
      const seen = limit === 0 ? null : { entries, isCut };
      await followLog(api, { query, seen, show: (entry) => printEntry(entry, flags) });
    } else if (entries.length === 0 && !flags.json && limit > 0) print(styled("dim", "no entries"));
  });
}

/** Returns the newest entries, the oldest of them first. */
async function readNewest(api: Api, query: ApiQuery, most: number): Promise<Fields[]> {
  let entries: Fields[] = [];
  const count = Math.min(maxLogPage, most);
  for await (const page of readLogPages(api, { ...query, order: "latestFirst", count })) {
    entries = entries.concat(page);
    if (entries.length >= most) break;
  }
  return entries.slice(0, most).reverse();
}

const styles: Readonly<Record<string, "green" | "red" | "yellow">> = {
  DELIVERED: "green",
  FAILED: "red",
  ERROR: "yellow",
  RETRY: "yellow",
};

function printEntry(entry: Fields, flags: LogFlags): void {
  if (flags.json) return print(toSafeJson(entry));
  const state = readLine(entry, "state");
  const style = styles[state];
  const duration = readNumber(readObject(entry, "attempt"), "duration");
  const head = `${formatTime(entry, "time")}  ${state.padEnd(16)}`;
  const rest = [
    readLine(entry, "messageId"),
    readLine(entry, "url"),
    readLine(entry, "responseStatus"),
    readLine(entry, "error"),
    duration === null ? "" : formatSpan(duration),
  ]
    .filter(Boolean)
    .join("  ");
  const width = columnsOfOutput();
  const line = `${head}  ${rest}`;
  const fitted = width === null ? line : fitLine(line, width);
  print(style && fitted.startsWith(head) ? styled(style, head) + fitted.slice(head.length) : fitted);
}
