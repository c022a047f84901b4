import type { Routes } from "../../api/schema.ts";

/** A line of the stream of the log. */
export type TailLine = Routes["GET /v2/logs/tail"]["response"];
type Entry = Extract<TailLine, { messageId: string }>;

/** An entry, without its headers and bodies, so that a thousand of them need little memory. */
type EntryRow = { id: number; kind: "entry"; time: number } & Pick<Entry, "messageId" | "state" | "method"> &
  Partial<Record<"url" | "label" | "error", string>> & {
    responseStatus?: number | undefined;
    duration?: number | undefined;
  };

/** A time of which entries are missing. `count` is the number of them, if it is known. */
type GapRow = { id: number; kind: "gap"; from: number; to: number; count?: number; why: string };

export type TailRow = EntryRow | GapRow;

/**
 * The maximum number of rows on the page, and the most that wait while it is paused. Older rows are removed.
 */
export const maxRows = 500;
/** The rows that may come on top before the oldest are removed, all in one step. */
const spare = 100;

const lostConnection = "the connection was lost";

/** The longest text of an entry that is kept, in characters. */
const longestText = 300;

/** The rows and numbers on the page. */
export type TailView = {
  shown: readonly TailRow[];
  /** The rows that wait until the page is no longer paused. */
  waiting: number;
  /** The number of entries that came. */
  came: number;
  /** The number of entries that the server left out because the connection is slow. */
  leftOut: number;
};

/** The rows of a tail: those that are shown, and those that wait to be shown. */
export class TailRows {
  view: TailView = { shown: [], waiting: 0, came: 0, leftOut: 0 };
  #waiting: TailRow[] = [];
  #nextId = 0;
  /** All entries up to this time came, unless a gap says otherwise. Null before the first line. */
  #reached: number | null = null;
  #isNew = true;
  #why = lostConnection;

  /** Notes that a connection begins. Entries since the last one are missing if there were any. */
  begin(): void {
    this.#isNew = true;
  }

  /** Notes that the page gave the connection back because it is hidden. */
  hide(): void {
    this.#why = "the page was hidden";
  }

  /** Takes a line of the stream. Its rows wait until `flush`. */
  take(line: TailLine): void {
    if ("heartbeat" in line) return this.#beat(line.heartbeat);
    if ("dropped" in line) return this.#skip(line);
    if ("ended" in line) return;
    const { messageId, state, method, time, url, label, error, responseStatus, attempt } = line;
    this.view.came++;
    this.#reached = Math.max(this.#reached ?? 0, time);
    this.#add({
      id: this.#nextId++,
      kind: "entry",
      messageId,
      state,
      method,
      time,
      url: url.slice(0, longestText),
      ...(label !== undefined && { label: label.slice(0, longestText) }),
      ...(error !== undefined && { error: error.slice(0, longestText) }),
      responseStatus,
      duration: attempt?.duration,
    });
  }

  /**
   * Shows the waiting rows. The oldest rows are removed in a separate step, so that the page never moves rows
   * and adds some at the same time. Reports whether anything changed.
   */
  flush(): boolean {
    const { shown } = this.view;
    if (shown.length > maxRows + spare) {
      this.view = { ...this.view, shown: shown.slice(-maxRows) };
      return true;
    }
    if (this.#waiting.length === 0) return false;
    this.view = { ...this.view, shown: [...shown, ...this.#waiting], waiting: 0 };
    this.#waiting = [];
    return true;
  }

  /** Shows how many rows wait, without the rows. Reports whether anything changed. */
  count(): boolean {
    if (this.view.waiting === this.#waiting.length) return false;
    this.view = { ...this.view, waiting: this.#waiting.length };
    return true;
  }

  /** Reports whether the next `flush` would change anything. */
  get isBehind(): boolean {
    return this.#waiting.length > 0 || this.view.shown.length > maxRows + spare;
  }

  /** Removes all rows. */
  clear(): void {
    this.#waiting = [];
    this.view = { ...this.view, shown: [], waiting: 0 };
  }

  #beat(time: number): void {
    if (this.#isNew && this.#reached !== null && time > this.#reached)
      this.#gap({ from: this.#reached + 1, to: time, why: this.#why });
    this.#isNew = false;
    this.#why = lostConnection;
    this.#reached = Math.max(this.#reached ?? 0, time);
  }

  #skip({ dropped, fromDate, toDate }: Extract<TailLine, { dropped: number | null }>): void {
    this.view.leftOut += dropped ?? 0;
    const known = dropped === null ? {} : { count: dropped };
    this.#gap({ from: fromDate, to: toDate, why: "the connection is too slow", ...known });
    this.#reached = Math.max(this.#reached ?? 0, toDate);
  }

  #gap(gap: Omit<GapRow, "id" | "kind">): void {
    this.#add({ id: this.#nextId++, kind: "gap", ...gap });
  }

  /** Adds a row. If too many wait, the oldest become one gap. */
  #add(row: TailRow): void {
    this.#waiting.push(row);
    if (this.#waiting.length <= maxRows + spare) return;
    const removed = this.#waiting.splice(0, spare + 1);
    const [first] = removed;
    const count = removed.reduce((sum, one) => sum + (one.kind === "entry" ? 1 : (one.count ?? 0)), 0);
    const from = first?.kind === "gap" ? first.from : (first?.time ?? 0);
    const last = removed.at(-1);
    const to = last?.kind === "gap" ? last.to : (last?.time ?? from);
    this.#waiting.unshift({ id: this.#nextId++, kind: "gap", from, to, count, why: "the page was paused" });
  }
}
