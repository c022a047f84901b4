import type { Command } from "commander";
import { systemClock } from "../clock/clock.ts";
import { second } from "../core/values/time.ts";
import type { Api, ClientContext, OutputFlags } from "./api.ts";
import { connectToApi, pause, tolerateOutages, withJson } from "./api.ts";
import { CommandFailed } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { readLine, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { logFilters, parseWhole, readFilters, withFilters } from "./filterFlags.ts";
import { fitLine, toSafeJson } from "./terminal/safeText.ts";
import { columnsOfOutput, print, styled } from "./terminal/terminal.ts";
import { formatSpan, formatTime } from "./terminal/times.ts";

type LogFlags = OutputFlags & Readonly<Record<string, unknown>> & { follow?: true; limit: string };
type LogQuery = ReturnType<typeof readFilters>;

/** Adds the command `waypost logs`. */
export function addLogCommand(program: Command, context: ClientContext): void {
  const command = withFilters(
    program.command("logs").description("print the log of messages, the newest entries last"),
    logFilters,
  )
    .option("--limit <n>", "most entries before those that are followed", "100")
    .option("--follow", "print new entries as they are written, until Ctrl-C");
  withJson(command).action(async (flags: LogFlags) => {
    const api = connectToApi(context);
    const limit = parseWhole("--limit", flags.limit);
    const query = readFilters(logFilters, flags, systemClock.now());
    if (flags.follow && "toDate" in query)
      throw new CommandFailed("usage", "--until: does not go together with --follow; remove one of the two");
    const entries = limit === 0 && flags.follow ? [] : await readNewest(api, query, limit);
    for (const entry of entries) printEntry(entry, flags);
    if (flags.follow) await follow(api, { query, flags, seen: entries });
    else if (entries.length === 0 && !flags.json) print(styled("dim", "no entries"));
  });
}

/** Returns the newest entries, the oldest of them first. */
async function readNewest(api: Api, query: LogQuery, limit: number): Promise<Fields[]> {
  const entries: Fields[] = [];
  let cursor = "";
  do {
    const count = Math.max(1, Math.min(1000, limit - entries.length));
    const page = await api.read({
      path: "/v2/logs",
      needs: { one: { logs: "objects" } },
      query: { ...query, order: "latestFirst", count, ...(cursor !== "" && { cursor }) },
    });
    entries.push(...readObjects(page, "logs"));
    cursor = readRaw(page, "cursor");
  } while (cursor !== "" && entries.length < limit);
  return entries.slice(0, limit).reverse();
}

/** How often new entries are read. */
const interval = second;
/** Entries may be written this long after their time, for example by another node. */
const overlap = 5 * second;
/** The most entries that are read at a time. */
const pageSize = 1000;

/** Prints entries as they are written. Reads the last seconds again, and prints each entry once. */
async function follow(
  api: Api,
  { query, flags, seen }: { query: LogQuery; flags: LogFlags; seen: readonly Fields[] },
): Promise<never> {
  const printed = new Map(seen.map((entry) => [toKey(entry), readNumber(entry, "time") ?? 0]));
  const start = typeof query["fromDate"] === "number" ? query["fromDate"] : 0;
  let newest = Math.max(start, ...printed.values());
  if (newest === 0) newest = systemClock.now();
  const attempt = tolerateOutages();
  for (;;) {
    await attempt(async () => {
      const fromDate = Math.max(start, newest - overlap);
      let cursor = "";
      do {
        const page = await api.read({
          path: "/v2/logs",
          needs: { one: { logs: "objects" } },
          query: {
            ...query,
            ...{ fromDate, order: "earliestFirst", count: pageSize },
            ...(cursor !== "" && { cursor }),
          },
        });
        for (const entry of readObjects(page, "logs")) {
          const key = toKey(entry);
          if (printed.has(key)) continue;
          const time = readNumber(entry, "time") ?? 0;
          printed.set(key, time);
          newest = Math.max(newest, time);
          printEntry(entry, flags);
        }
        cursor = readRaw(page, "cursor");
      } while (cursor !== "");
    });
    for (const [key, time] of printed) if (time < newest - 2 * overlap) printed.delete(key);
    await pause(interval);
  }
}

/** Identifies an entry: a message has one entry of a state at a time. */
const toKey = (entry: Fields): string =>
  JSON.stringify([
    ...["time", "messageId", "state", "url", "error"].map((name) => readRaw(entry, name)),
    readRaw(readObject(entry, "attempt"), "startedAt"),
  ]);

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
