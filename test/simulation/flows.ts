import { spans } from "../../src/core/values/limits.ts";
import type { Envelope, Flow, MessageState, Millis } from "../../src/core/model/message.ts";
import { listWrongCounters } from "../model/counters.ts";
import type { Case, Demand } from "./batch.ts";
import { endpointOf } from "./allowances.ts";
import { isLease } from "./batch.ts";
import type { Life } from "./life.ts";
import { Places } from "./places.ts";
import type { Tables } from "./changes.ts";

type Lives = ReadonlyMap<string, Life>;
type Court = { lives: Lives; demand: Demand; tables: Tables; now: Millis; happens: (what: string) => void };

/** The limits that held at any moment of a batch, at their most generous; which of its window's rules were set anew by hand. */
type Limits = { parallelism: number; rate: number; period: Millis; isReset: boolean; isPinned: boolean; isPaused: boolean };

/** What the judge itself has counted of one queue or key. */
class Book {
  running = 0;
  /** Who stands in its line. */
  readonly waiting = new Set<string>();
  /** Who of its messages stands in a line of the account that comes after it. */
  readonly onward = new Set<string>();
  windowStart = 0;
  used = 0;
  mostRate = 0;
  /** When the last one of those that were never delayed got a slot, by the time it was accepted at. */
  lastAccepted = 0;
}

/** Queues and flow control keys: counters, limits, order, and that nobody waits for ever before what is open. */
export class Flows {
  readonly #books = new Map<string, Book>();
  readonly #places = new Places();

  judge(of: Case, court: Court): void {
    const touched = new Set<string>();
    for (const { after } of of.changes.messages) if (after) checkNames(after, court);
    this.#checkOrder(of, court);
    const before = new Map([...this.#books].map(([name, { running }]) => [name, running]));
    this.#count(of, touched, court.lives);
    for (const { before, after } of of.changes.flows) for (const row of [before, after]) if (row) touched.add(nameOf(row, row.id));
    for (const { message } of of.result.deliveries) if (message.queue !== null) touched.add(queueName(message));
    const born = of.changes.envelopes.flatMap(({ after }) => after ?? []);
    for (const name of touched) this.#checkOne(name, { of, court, born, runningBefore: before.get(name) ?? 0 });
    checkAll(court);
    this.#places.judge(of, court);
  }

  /** When all is quiet. */
  checkQuiet({ tables, demand }: Pick<Court, "tables" | "demand">): void {
    for (const [name, { running, waiting }] of this.#books) {
      demand(running === 0 && waiting.size === 0, `nothing stays behind: ${quoted(name)} has ${running} running, ${waiting.size} waiting`);
    }
    for (const { id, running, waiting } of tables.flows.values()) {
      demand(!isEndpointLine(id), `no row of an endpoint is left when all has ended: ${id}`);
      demand(running === 0 && waiting === 0, `nothing is counted when all has ended: ${id} has ${running} running, ${waiting} waiting`);
    }
    demand(tables.slots.size === 0, `slots are given back: ${tables.slots.size} are not`);
  }

  #book(name: string): Book {
    let book = this.#books.get(name);
    if (!book) this.#books.set(name, (book = new Book()));
    return book;
  }

  #count({ changes }: Case, touched: Set<string>, lives: Lives): void {
    const count = (name: string, by: 1 | -1): void => {
      this.#book(name).running += by;
      touched.add(name);
    };
    for (const { before, after } of changes.messages) {
      if (before) touch(before, -1);
      if (after) touch(after, 1);
    }
    for (const { before, after } of changes.slots) {
      if (before && before.queue !== "") count(nameOf(before, `queue:${before.queue}`), -1);
      if (after && after.queue !== "") count(nameOf(after, `queue:${after.queue}`), 1);
    }

    function touch(state: MessageState, by: 1 | -1): void {
      if (state.leasedBy !== null && state.flowKey !== null) count(nameOf(state, `key:${state.flowKey}`), by);
      if (state.leasedBy !== null && state.counted) count(nameOf(state, accountLine), by);
      if (state.leasedBy !== null && state.countedToEndpoint) count(nameOf(state, endpointLineOf(state, lives)), by);
    }
    for (const { before, after } of changes.messages) {
      if (isInLine(before)) this.#book(nameOf(before, before.line)).waiting.delete(before.id);
      if (isInLine(after)) this.#book(nameOf(after, after.line)).waiting.add(after.id);
      for (const row of [before, after]) if (isInLine(row)) touched.add(nameOf(row, row.line));
      for (const name of onwardOf(before, lives)) this.#book(name).onward.delete(before?.id ?? "");
      for (const name of onwardOf(after, lives)) this.#book(name).onward.add(after?.id ?? "");
      for (const name of [...onwardOf(before, lives), ...onwardOf(after, lives)]) touched.add(name);
    }
  }

  #checkOne(name: string, { of, court, born, runningBefore }: One): void {
    const { demand, tables, now } = court;
    const book = this.#book(name);
    const row = tables.flows.get(name);
    const { before } =
      of.changes.flows.find(({ before, after }) => [before, after].some((row) => row && nameOf(row, row.id) === name)) ?? {};
    const { running, waiting, onward = 0 } = row ?? { running: 0, waiting: 0 };
    demand(onward === book.onward.size, `who went on is counted: ${quoted(name)} says ${onward}, there are ${book.onward.size}`);
    demand(running === book.running, `running is counted: ${quoted(name)} says ${running}, there are ${book.running}`);
    demand(waiting === book.waiting.size, `waiting is counted: ${quoted(name)} says ${waiting}, there are ${book.waiting.size}`);
    const limits = limitsOf(name, { before: before ?? row, after: row, born, of });
    const begun =
      of.changes.slots.filter(({ before, after }) => !before && after && nameOf(after, `queue:${after.queue}`) === name).length +
      startsOf(name, of);
    demand(begun === 0 || !limits.isPaused, `nothing begins in what is paused: ${quoted(name)}`);
    const isSent = of.result.deliveries.some(({ message }) => queueName(message) === name);
    demand(!isSent || !limits.isPaused, `nothing of a paused queue is sent, nor sent again: ${quoted(name)}`);
    const most = Math.max(runningBefore, limits.parallelism);
    demand(book.running <= most, `no more at once than the limit: ${quoted(name)} has ${book.running} of ${limits.parallelism}`);
    if (name.includes("\nkey:")) this.#checkWindow(name, { of, court, before, after: row, limits });
    if (row) checkLook(row, court);
    const countsAnything = running + waiting + onward > 0;
    demand(!row || !isEndpointLine(row.id) || countsAnything, `the row of an endpoint goes with its last place: ${quoted(name)}`);
    if (row) noteHappenings(row, court);
    if (row && before) checkPins({ before, after: row, limits, demand });
    else if (before && name.includes("\nkey:")) checkForgotten(before, { demand, now });
  }

  /** Starts are counted by what is handed over, windows by the rows; a window may only begin when the last one is over. */
  #checkWindow(name: string, { of, court: { demand, now }, before, after, limits }: Window): void {
    if (!after) return;
    const book = this.#book(name);
    const starts = startsOf(name, of);
    const isNew = after.windowStart !== book.windowStart || limits.isReset;
    if (isNew && before) {
      const isOver = now >= before.windowStart + limits.period || limits.isReset;
      demand(isOver, `a window lasts for its period: ${quoted(name)}, ${before.windowStart} → ${after.windowStart}`);
    }
    book.used = isNew ? starts : book.used + starts;
    book.mostRate = isNew ? limits.rate : Math.max(book.mostRate, limits.rate);
    book.windowStart = after.windowStart;
    demand(book.used <= book.mostRate, `no more in a window than the rate: ${quoted(name)} began ${book.used} of ${book.mostRate}`);
    demand(
      isNew || after.windowUsed === book.used,
      `starts are counted: ${quoted(name)} says ${after.windowUsed}, there were ${book.used}`,
    );
    if (isNew) book.used = after.windowUsed;
  }

  /** Nobody overtakes those that stand in line. */
  #checkOrder({ changes }: Case, { demand, lives }: Court): void {
    const left = new Set(
      changes.messages.flatMap(({ before, after }) => (isInLine(before) && after?.line !== before.line ? before.id : [])),
    );
    const firstStaying = (name: string): string | undefined =>
      [...(this.#books.get(name)?.waiting ?? [])]
        .filter((id) => !left.has(id))
        .reduce<string | undefined>((a, b) => (a && a < b ? a : b), undefined);
    for (const { before, after } of changes.slots) {
      if (before || !after) continue;
      const name = nameOf(after, `queue:${after.queue}`);
      const first = firstStaying(name);
      demand(
        first === undefined || after.id < first,
        `first come, first served: ${after.id} got a slot of ${quoted(name)} before ${first}`,
      );
      const envelope = lives.get(after.id)?.envelope;
      if (!envelope || envelope.notBefore > envelope.createdAt) continue;
      const book = this.#book(name);
      demand(envelope.createdAt >= book.lastAccepted, `a queue keeps the order: ${after.id} of ${quoted(name)}`);
      book.lastAccepted = envelope.createdAt;
    }
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after)) continue;
      const passed = [...(after.counted ? [accountLine] : []), ...(after.countedToEndpoint ? [endpointLineOf(after, lives)] : [])];
      for (const line of passed) {
        const first = firstStaying(nameOf(after, line));
        const isFromBehind = before?.line?.startsWith("capacity:") || (line !== accountLine && before?.line === accountLine);
        const mayPass = first === undefined || isFromBehind || (before?.line && after.id < first);
        demand(Boolean(mayPass), `nobody overtakes: ${after.id} was sent before ${first} of ${line}`);
      }
    }
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after) || after.flowKey === null || isOfAccount(before?.line)) continue;
      const line = `key:${after.flowKey}`;
      const first = firstStaying(nameOf(after, line));
      const mayPass = first === undefined || before?.line?.startsWith("capacity:") || (before?.line === line && after.id < first);
      // Out of the queue's line it may have come to the key's own, and gone on, within one batch.
      demand(
        mayPass || (before?.line?.startsWith("queue:") === true && after.id < (first ?? "")),
        `nobody overtakes: ${after.id} was sent before ${first} of ${line}`,
      );
    }
  }
}

/** Whatever the judge has followed: the counters of all limiters are what the rows of messages and slots say. */
function checkAll({ tables, lives, demand }: Court): void {
  const [messages, slots, flows] = [[...tables.messages.values()], [...tables.slots.values()], [...tables.flows.values()]];
  const wrong = listWrongCounters({ messages, slots, flows, endpointOf: (state) => endpointOf(state, lives) });
  demand(wrong.length === 0, `limiters count what the rows say: ${wrong.join("; ")}`);
}

type One = { of: Case; court: Court; born: readonly Envelope[]; runningBefore: number };
type Window = { of: Case; court: Court; before: Flow | undefined; after: Flow | undefined; limits: Limits };

/** The line of those that wait until their account has less under way. */
const accountLine = "account:";

/** That of those that wait until it has less under way to their endpoint. */
const endpointLineOf = (state: MessageState, lives: Lives): string => `endpoint:${endpointOf(state, lives)}`;
const isEndpointLine = (id: string): boolean => id.startsWith("endpoint:");
const isOfAccount = (id: string | null | undefined): boolean => id === accountLine || (typeof id === "string" && isEndpointLine(id));

/** The key and the endpoint for a place of which a message stands in a line of its account. */
function onwardOf(state: MessageState | undefined, lives: Lives): string[] {
  if (!state || !isOfAccount(state.line)) return [];
  return [
    ...(state.flowKey === null ? [] : [nameOf(state, `key:${state.flowKey}`)]),
    ...(state.line === accountLine && state.countedToEndpoint ? [nameOf(state, endpointLineOf(state, lives))] : []),
  ];
}

const nameOf = ({ account }: { account: string }, id: string): string => `${account}\n${id}`;
const quoted = (name: string): string => JSON.stringify(name);

const isInLine = (state: MessageState | undefined): state is MessageState & { line: string } =>
  state?.line !== undefined && state.line !== null && !state.line.startsWith("capacity:");

/** Deliveries under a key that begin with a batch. */
const queueName = (message: Envelope): string => nameOf(message, `queue:${message.queue}`);

const startsOf = (name: string, { result }: Case): number =>
  result.deliveries.filter(({ message }) => nameOf(message, `key:${message.flowControl?.key}`) === name).length;

/** A message passes the gates that its envelope names, and stands before one of them. */
function checkNames(state: MessageState, { lives, demand, tables }: Court): void {
  const envelope = lives.get(state.id)?.envelope;
  if (!envelope) return;
  const { id, line, slot } = state;
  demand(state.queue === envelope.queue && state.flowKey === (envelope.flowControl?.key ?? null), `gates are those of the letter: ${id}`);
  demand((state.state === "held") === (line !== null), `who is held stands in a line: ${id}`);
  const lines = [`queue:${state.queue}`, `key:${state.flowKey}`, `capacity:${state.host}`, accountLine, endpointLineOf(state, lives)];
  demand(line === null || lines.includes(line), `who waits stands before a gate of its own: ${id} in ${line}`);
  demand(line !== lines[0] || slot === null, `who waits for a slot has none: ${id}`);
  demand(state.queue === null || (slot === null) === !tables.slots.has(`${state.account}\n${id}`), `a slot belongs to its message: ${id}`);
  demand(state.leasedBy === null || state.queue === null || slot !== null, `nothing of a queue is sent without a slot: ${id}`);
}

function limitsOf(name: string, of: { before: Flow | undefined; after: Flow | undefined; born: readonly Envelope[]; of: Case }): Limits {
  const [account, id = ""] = name.split("\n");
  const rows = [of.before, of.after].flatMap((row) => row ?? []);
  const pinned = (what: "parallelism" | "rate"): boolean => rows.length > 0 && rows.every((row) => row.pinned[what]);
  const calls = of.of.calls.map(({ name, input }) => ({
    name,
    ...(input as { account: string; id?: string; key?: string; name?: string } & Partial<Flow>),
    call: name,
  }));
  const about = calls.filter((one) => one.account === account && (`key:${one.key}` === id || `queue:${one.name}` === id));
  const letters = of.born.flatMap((one) =>
    one.account === account && `key:${one.flowControl?.key}` === id ? (one.flowControl ?? []) : [],
  );
  const orInfinite = (value: number | null | undefined): number[] => (value === undefined ? [] : [value ?? Infinity]);
  const rates = [...rows, ...(pinned("rate") ? [] : letters)];
  return {
    parallelism: Math.max(
      ...(id.startsWith("queue:") && !of.before ? [1] : []),
      ...[...rows, ...(pinned("parallelism") ? [] : letters), ...about].flatMap(({ parallelism }) => orInfinite(parallelism)),
    ),
    rate: Math.max(...[...rates, ...about].flatMap(({ rate }) => orInfinite(rate))),
    period: Math.min(...rates.map(({ period }) => period ?? 1000)),
    isPaused: rows.length === 2 && rows.every(({ paused }) => paused) && !calls.some(({ call }) => changesPause.has(call)),
    isReset: about.some(({ call, rate, period }) => call === "resetRate" || (call === "pinFlow" && (rate ?? period) !== undefined)),
    isPinned: about.some(({ call }) => call === "pinFlow" || call === "upsertQueue"),
  };
}

const changesPause = new Set(["pauseFlow", "resumeFlow", "upsertQueue"]);

/** Whoever waits before what is open, or opens at a known time, is looked at then. */
function checkLook(flow: Flow, { demand, now }: Court): void {
  const { id, waiting, paused, parallelism, running, rate, windowStart, windowUsed, period, dueAt } = flow;
  if (waiting === 0) {
    const isKept = running + (flow.onward ?? 0) > 0 || paused || flow.pinned.parallelism || flow.pinned.rate;
    return demand(isKept || dueAt !== null, `what nobody uses is forgotten some time: ${id}`);
  }
  const ahead = flow.onward ?? 0;
  const hasPlace = !paused && (parallelism === null || running + ahead < parallelism) && (rate === null || rate > ahead);
  const isWindowFull = rate !== null && windowUsed + ahead >= rate && now < windowStart + period;
  // The limit of an account may be another one by now, and does not tell the flows of its endpoints. Where all places are those of
  // messages that stand in the line of the account, it is seen when one of these moves.
  const closed = isEndpointLine(id) && running > 0 ? now + spans.lineCheck : Infinity;
  const opensAt = !hasPlace ? closed : isWindowFull ? windowStart + period : now;
  demand((dueAt ?? Infinity) <= opensAt + spans.flowCheck, `nobody waits for ever: ${id} opens at ${opensAt} and is looked at ${dueAt}`);
}

/** What a run must have seen to be worth its name. */
function noteHappenings({ id, waiting, paused, parallelism, running, rate, windowUsed }: Flow, { happens }: Court): void {
  const kind = id.startsWith("queue:") ? "queue" : id === accountLine ? "account" : isEndpointLine(id) ? "endpoint" : "key";
  if (running > 1) happens(`${kind} with several at once`);
  if (waiting === 0) return;
  if (paused) happens(`${kind} paused with a line`);
  if (!paused && parallelism !== null && running >= parallelism) happens(`${kind} full with a line`);
  if (!paused && rate !== null && windowUsed >= rate) happens(`${kind} with a full window and a line`);
}

/** What people have pinned does not follow the messages. */
function checkPins({ before, after, limits, demand }: { before: Flow; after: Flow; limits: Limits; demand: Demand }): void {
  for (const limit of ["parallelism", "rate"] as const) {
    const isPinned = before.pinned[limit] && after.pinned[limit] && !limits.isPinned;
    demand(
      !isPinned || before[limit] === after[limit],
      `a pinned limit stays: ${limit} of ${after.id}, ${before[limit]} → ${after[limit]}`,
    );
  }
}

function checkForgotten(flow: Flow, { demand, now }: Pick<Court, "demand" | "now">): void {
  const { id, running, waiting, paused, pinned, updatedAt } = flow;
  const isIdle = running === 0 && waiting === 0 && !paused && !pinned.parallelism && !pinned.rate;
  demand(isIdle && now >= updatedAt + spans.idleKey, `only what nobody uses is forgotten: ${id}`);
  const isWindowOver = flow.rate === null || flow.windowUsed === 0 || now >= flow.windowStart + flow.period;
  demand(isWindowOver, `a window is not forgotten before it is over: ${id}`);
}
