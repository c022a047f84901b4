import { createHash } from "node:crypto";
import { elapsed } from "../engine/clock/clock.ts";
import { second } from "../engine/core/values/time.ts";
import type { Api } from "./api.ts";
import { outageTimeout, pause, tolerateOutages } from "./api.ts";
import type { ApiQuery } from "./connection.ts";
import { toStranger } from "./connection.ts";
import { endlessPages } from "./listCommand.ts";
import { CommandFailed, exitCodes } from "./terminal/commandFailed.ts";
import type { Fields } from "./terminal/fields.ts";
import { isObject, readLine, readNumber, readObject, readObjects, readRaw } from "./terminal/fields.ts";
import { note } from "./terminal/terminal.ts";

/** The maximum number of entries of a page of the log. */
export const maxLogPage = 1000;
/** The maximum number of pages without an entry that are read in a row. */
const maxEmptyPages = 2_000;

/** Yields the pages of the log. Fails if they do not end. */
export async function* readLogPages(api: Api, query: ApiQuery): AsyncGenerator<Fields[], void> {
  let cursor = "";
  let empty = 0;
  for (;;) {
    const page = await api.read({
      path: "/v2/logs",
      needs: { one: { logs: "objects" } },
      query: { ...query, ...(cursor !== "" && { cursor }) },
    });
    const entries = readObjects(page, "logs");
    yield entries;
    const next = readRaw(page, "cursor");
    if (next === "") return;
    empty = entries.length === 0 ? empty + 1 : 0;
    if (next === cursor || empty >= maxEmptyPages) throw endlessPages();
    cursor = next;
  }
}

/**
 * The log that is followed. `seen` has the entries that were shown before, the oldest first, and whether
 * there are older ones that were not shown. Null: nothing was read, and only new entries are shown.
 */
type Followed = {
  query: ApiQuery;
  seen: { entries: readonly Fields[]; isCut: boolean } | null;
  show(entry: Fields): void;
};

/**
 * The times of following. `settle`: nodes may write entries this long after their time, so what was missed is
 * read after this pause. `steady`: after a connection of this length, the next pause is the first one again.
 */
const followTimes = {
  settle: 2 * second,
  firstPause: second,
  longestPause: 15 * second,
  steady: 30 * second,
  patience: outageTimeout,
};

/**
 * Shows entries as they are written, each once, until the process ends. Connects again if the stream ends,
 * and then shows first what it missed. Fails if the server is unavailable for `patience` milliseconds.
 */
export async function followLog(api: Api, followed: Followed, times = followTimes): Promise<never> {
  const shown = new ShownEntries(followed);
  const attempt = tolerateOutages(times.patience);
  let span = times.firstPause;
  for (;;) {
    const startedAt = elapsed();
    await attempt(() => showTail(api, { followed, shown, settle: times.settle }));
    if (elapsed() - startedAt >= times.steady) span = times.firstPause;
    await pause(span);
    span = Math.min(times.longestPause, 2 * span);
  }
}

type Following = { followed: Followed; shown: ShownEntries; settle: number };

/** Shows a stream until it ends. Fails if that happens before everything that was missed is shown. */
async function showTail(api: Api, { followed, shown, settle }: Following): Promise<void> {
  const { fromDate: _, ...query } = followed.query;
  let isComplete = false;
  try {
    for await (const text of api.lines({ path: "/v2/logs/tail", query })) {
      const line = parseLine(api, text);
      if ("ended" in line) throw new CommandFailed("unavailable", readLine(line, "ended"));
      if (!isComplete) {
        const heartbeat = readNumber(line, "heartbeat");
        if (heartbeat === null) throw toStranger(api.url, 'its first line has no field "heartbeat"');
        shown.begin(heartbeat);
        await pause(settle);
        await showMissed(api, followed, shown);
        isComplete = true;
      }
      showLine(line, followed, shown);
    }
    throw new CommandFailed("unavailable", `${api.url}: the stream ended`);
  } catch (error) {
    const isOutage = error instanceof CommandFailed && error.exitCode === exitCodes.unavailable;
    if (!isComplete || !isOutage) throw error;
    note(`waypost: ${error.message}; connecting again`);
  }
}

/** Shows the entries that were written before the stream began, or while there was none. */
async function showMissed(api: Api, { query, show }: Followed, shown: ShownEntries): Promise<void> {
  const missedQuery = { ...query, fromDate: shown.missedFrom, order: "earliestFirst", count: maxLogPage };
  for await (const entries of readLogPages(api, missedQuery))
    for (const entry of entries) if (shown.add(entry)) show(entry);
}

function showLine(line: Fields, { show }: Followed, shown: ShownEntries): void {
  const heartbeat = readNumber(line, "heartbeat");
  if (heartbeat !== null) shown.reach(heartbeat);
  else if ("dropped" in line) {
    const count = readNumber(line, "dropped");
    const [from, to] = [readLine(line, "fromDate"), readLine(line, "toDate")];
    note(
      `waypost: ${count === null ? "" : `${count} `}entries were left out; ` +
        `"waypost logs --since ${from} --until ${to}" prints them`,
    );
  } else if (shown.add(line)) show(line);
}

function parseLine(api: Api, text: string): Fields {
  try {
    const line: unknown = JSON.parse(text);
    if (isObject(line)) return line;
  } catch {
    // It is reported below.
  }
  throw toStranger(api.url, "a line is not a JSON object");
}

/** Entries may be written this long after later ones, for example by another node. */
const overlap = 5 * second;
/** The number of entries that are remembered, so that they are not shown twice. */
const maxRemembered = 100_000;

/** The entries that were shown last, and the time up to which the log was shown. */
class ShownEntries {
  readonly #keys = new Set<string>();
  /** Entries before this time are not shown. Null until the first stream begins. */
  #floor: number | null;
  #reached = 0;

  constructor({ query, seen }: Followed) {
    const from = typeof query["fromDate"] === "number" ? query["fromDate"] : 0;
    const oldest = seen?.isCut ? seen.entries[0] : undefined;
    this.#floor = seen && Math.max(from, oldest ? (readNumber(oldest, "time") ?? 0) + 1 : 0);
    for (const entry of seen?.entries ?? []) this.#remember(entry);
  }

  /** The time from which entries may have been missed. */
  get missedFrom(): number {
    return Math.max(this.#floor ?? 0, this.#reached - overlap);
  }

  /** Notes that a stream begins, and that it sends the entries after `heartbeat`. */
  begin(heartbeat: number): void {
    this.#floor ??= heartbeat + 1;
  }

  /** Notes that all entries up to a time were shown. */
  reach(time: number): void {
    if (Number.isSafeInteger(time)) this.#reached = Math.max(this.#reached, time);
  }

  /** Reports whether an entry must be shown, and remembers it. */
  add(entry: Fields): boolean {
    return (readNumber(entry, "time") ?? 0) >= (this.#floor ?? 0) && this.#remember(entry);
  }

  /** Reports whether an entry is new. */
  #remember(entry: Fields): boolean {
    const key = toKey(entry);
    if (this.#keys.has(key)) return false;
    this.#keys.add(key);
    for (const oldest of this.#keys) {
      if (this.#keys.size <= maxRemembered) break;
      this.#keys.delete(oldest);
    }
    this.reach(readNumber(entry, "time") ?? 0);
    return true;
  }
}

/** Identifies an entry: a message has one entry of a state at a time. */
function toKey(entry: Fields): string {
  const fields = ["time", "messageId", "state", "url", "error"].map((name) => readRaw(entry, name));
  const attempt = readRaw(readObject(entry, "attempt"), "startedAt");
  return createHash("sha256")
    .update(JSON.stringify([...fields, attempt]))
    .digest("base64");
}
