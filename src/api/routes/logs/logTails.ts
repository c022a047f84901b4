import type { Filter } from "../../../engine/core/search/filter.ts";
import { matchesFilter } from "../../../engine/core/search/filter.ts";
import type { AccountId, Millis } from "../../../engine/core/values/basics.ts";
import type { ErrorCode } from "../../../engine/core/values/errors.ts";
import { Refusal } from "../../../engine/core/values/errors.ts";
import { readIdTime } from "../../../engine/core/values/ids.ts";
import { limits } from "../../../engine/core/values/limits.ts";
import { second } from "../../../engine/core/values/time.ts";
import type { LogEntry } from "../../../engine/store/queries/logs.ts";
import { LineStream } from "../../http/lineStream.ts";
import type { RouteContext } from "../../route/route.ts";
import { toJson } from "../../fields/field.ts";
import { eventFields } from "../../fields/logEvent.ts";

/** How often the log is polled for new entries, once the tails have all older ones. */
const pollInterval: Millis = second / 2;
/** The pause between two pages while the tails lack older entries. */
const pageInterval: Millis = 50;
/** After this many pages, the newest entry is looked up again. */
const pagesPerPoll = pollInterval / pageInterval;
const pageSize = 500;
/**
 * An entry is shown after this many later polls. Nodes do not commit their batches in the
 * order of their times, so an entry with an earlier time may follow. See docs/decisions/0050.
 */
const reorderDelayPolls = 3;
/** A tail that is this far behind skips entries, because it would never catch up. */
const maxLag: Millis = 30 * second;
/** How often a line without an entry shows that the stream is alive. */
const heartbeat: Millis = 15 * second;
/** The number of entries that are written in one slice of work. */
const entriesPerSlice = 50;
/** The tails of an account end if its log could not be read this often in a row. */
const maxFailures = 60;

type Tail = { stream: LineStream; filter: Filter; from: Millis; stopHeartbeat: () => void };

/**
 * The tails of one account. All entries before `next` were shown. `cursor` is present within that reading.
 * `newest` has the time of the newest entry at each of the last polls, the oldest poll first.
 */
type TailedLog = {
  tails: Set<Tail>;
  next: Millis;
  cursor: string | null;
  newest: Millis[];
  failures: number;
};

type Parts = Pick<RouteContext, "store" | "wakeAfter" | "longWork">;

/**
 * Sends the entries of the log to the clients that follow it. The log of each account is read once for all
 * its tails, one page at a time, from the store. So a tail shows the entries of all nodes.
 */
export class LogTails {
  readonly #parts: Parts;
  readonly #logs = new Map<AccountId, TailedLog>();
  #count = 0;
  #isReading = false;
  #isClosed = false;
  /** Pages that were read since the last poll. */
  #pages = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Opens a tail that begins after the newest entry. Throws `Refusal` if too many are open. */
  async open(account: AccountId, filter: Filter): Promise<LineStream> {
    const log = this.#logs.get(account);
    if (this.#isClosed) throw new Refusal("stopping", "the server is stopping; retry later");
    if ((log?.tails.size ?? 0) >= limits.tails)
      throw new Refusal("busy", `tails: the account has ${limits.tails} open on this server; close one`);
    if (this.#count >= limits.serverTails)
      throw new Refusal("busy", `tails: this server has ${limits.serverTails} open; retry later`);
    const stream = new LineStream(limits.tailBytes);
    const tail = { stream, filter, from: Infinity, stopHeartbeat: () => undefined };
    this.#add(account, tail);
    try {
      const newest = await this.#parts.store.read.newestLogTime(account);
      tail.from = newest + 1;
      const tailed = this.#logs.get(account);
      if (tailed && tailed.newest.length === 0) Object.assign(tailed, { next: tail.from, newest: [newest] });
    } catch (error) {
      stream.destroy();
      throw error;
    }
    this.#sendHeartbeat(account, tail);
    this.#start();
    return stream;
  }

  /** Ends all tails, and opens no more. */
  close(): void {
    this.#isClosed = true;
    for (const log of this.#logs.values()) endAll(log, { ended: "the server is stopping", code: "stopping" });
  }

  #add(account: AccountId, tail: Tail): void {
    const log = this.#logs.get(account) ?? {
      tails: new Set(),
      next: 0,
      cursor: null,
      newest: [],
      failures: 0,
    };
    this.#logs.set(account, log);
    log.tails.add(tail);
    this.#count++;
    tail.stream.once("close", () => {
      tail.stopHeartbeat();
      log.tails.delete(tail);
      this.#count--;
      if (log.tails.size === 0) this.#logs.delete(account);
    });
  }

  #sendHeartbeat(account: AccountId, tail: Tail): void {
    if (tail.stream.destroyed) return;
    const shownUntil = Math.max(tail.from, this.#logs.get(account)?.next ?? 0) - 1;
    tail.stream.beat(JSON.stringify({ heartbeat: shownUntil }));
    tail.stopHeartbeat = this.#parts.wakeAfter(heartbeat, () => this.#sendHeartbeat(account, tail));
  }

  /** Starts the reading, unless it runs. It stops when no tail is open. */
  #start(): void {
    if (this.#isReading) return;
    this.#isReading = true;
    this.#pages = 0;
    this.#parts.wakeAfter(pollInterval, () => void this.#readAll());
  }

  async #readAll(): Promise<void> {
    const isPoll = this.#pages === 0;
    let isBehind = false;
    for (const [account, log] of this.#logs) {
      // Its first tail is still being opened.
      if (log.newest.length === 0) continue;
      try {
        if (isPoll) await this.#poll(account, log);
        isBehind = (await this.#readPage(account, log)) || isBehind;
        log.failures = 0;
      } catch {
        if (++log.failures >= maxFailures)
          endAll(log, { ended: "the storage is unavailable; retry later", code: "unavailable" });
      }
    }
    if (this.#logs.size === 0) {
      this.#isReading = false;
      return;
    }
    this.#pages = isBehind ? (this.#pages + 1) % pagesPerPoll : 0;
    this.#parts.wakeAfter(isBehind ? pageInterval : pollInterval, () => void this.#readAll());
  }

  /** Records the time of the newest entry. Skips entries if the tails are too far behind. */
  async #poll(account: AccountId, log: TailedLog): Promise<void> {
    const newest = await this.#parts.store.read.newestLogTime(account);
    log.newest = [...log.newest, newest].slice(-(reorderDelayPolls + 1));
    const end = findReadableEnd(log);
    const reached = log.cursor === null ? log.next : Number(log.cursor.slice(0, 13));
    // After a quiet time, the first new entries are far from the last ones, but few.
    if (log.cursor === null || end - reached < maxLag) return;
    for (const { stream } of log.tails) stream.skip(reached, end - 1);
    Object.assign(log, { next: end, cursor: null });
  }

  /** Shows the next page of entries. Reports whether there are more. */
  async #readPage(account: AccountId, log: TailedLog): Promise<boolean> {
    const end = findReadableEnd(log);
    if (end <= log.next) return false;
    const page = await this.#parts.store.read.log({
      account,
      filter: { to: end - 1 },
      order: "earliestFirst",
      cursor: log.cursor ?? String(log.next),
      count: pageSize,
    });
    for (let at = 0; at < page.events.length; at += entriesPerSlice) {
      await this.#inSlice(account);
      for (const event of page.events.slice(at, at + entriesPerSlice)) show(log, event);
    }
    log.cursor = page.cursor;
    if (page.cursor === null) log.next = end;
    return page.cursor !== null;
  }

  #inSlice(account: AccountId): Promise<void> {
    return new Promise((resolve) => this.#parts.longWork.next(account, resolve));
  }
}

/** Returns the time before which no more entries are expected. */
const findReadableEnd = ({ newest, next }: TailedLog): Millis =>
  newest.length > reorderDelayPolls ? (newest[0] ?? 0) + 1 : next;

function show({ tails }: TailedLog, event: LogEntry): void {
  const { message, state, row } = event;
  const time = readIdTime((row ?? message).id);
  let text: string | null = null;
  for (const { stream, filter, from } of tails) {
    if (time < from || !matchesFilter(filter, { message, state, time: event.time })) continue;
    text ??= JSON.stringify(toJson(eventFields, event));
    stream.offer({ time: event.time, text });
  }
}

function endAll({ tails }: TailedLog, last: { ended: string; code: ErrorCode }): void {
  for (const { stream } of tails) stream.finish(JSON.stringify(last));
}
