import { spans } from "../../src/core/values/limits.ts";
import type { StoredMessage, Limiter, MessageState, Millis } from "../../src/core/model/message.ts";
import { listWrongCounters } from "../model/counters.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { parseEndpoint } from "./accountLimits.ts";
import { isLease } from "./observedBatch.ts";
import type { MessageHistory } from "./messageHistory.ts";
import { QueueSlotChecker } from "./queueSlots.ts";
import type { Tables } from "./changes.ts";

type MessageHistories = ReadonlyMap<string, MessageHistory>;
type LimiterCheckContext = {
  messageHistories: MessageHistories;
  assertHolds: AssertHolds;
  tables: Tables;
  now: Millis;
  cover: (what: string) => void;
};

/** The limits that held at any moment of a batch, at their most generous; which of its window's rules were set anew by hand. */
type PossibleLimits = { parallelism: number; rate: number; period: Millis; isReset: boolean; isPinned: boolean; isPaused: boolean };

/** What the judge itself has counted of one queue or key. */
class LimiterRecord {
  running = 0;
  /** Who stands in its line. */
  readonly waiting = new Set<string>();
  /** Who of its messages stands in a line of the account that comes after it. */
  readonly onward = new Set<string>();
  windowStart = 0;
  used = 0;
  maxRate = 0;
  /** When the last one of those that were never delayed got a slot, by the time it was accepted at. */
  lastAccepted = 0;
}

/** Queues and flow control keys: counters, limits, order, and that nobody waits for ever before what is open. */
export class LimiterChecker {
  readonly #records = new Map<string, LimiterRecord>();
  readonly #queueSlots = new QueueSlotChecker();

  check(observed: ObservedBatch, checkContext: LimiterCheckContext): void {
    const touched = new Set<string>();
    for (const { after } of observed.changes.messages) if (after) checkNames(after, checkContext);
    this.#checkOrder(observed, checkContext);
    const before = new Map([...this.#records].map(([name, { running }]) => [name, running]));
    this.#count(observed, touched, checkContext.messageHistories);
    for (const { before, after } of observed.changes.limiters)
      for (const row of [before, after]) if (row) touched.add(makeKey(row, row.id));
    for (const { message } of observed.result.deliveries) if (message.queue !== null) touched.add(queueName(message));
    const created = observed.changes.storedMessages.flatMap(({ after }) => after ?? []);
    for (const name of touched) this.#checkOne(name, { observed, checkContext, created, runningBefore: before.get(name) ?? 0 });
    checkAll(checkContext);
    this.#queueSlots.check(observed, checkContext);
  }

  /** When all is quiet. */
  checkQuiet({ tables, assertHolds }: Pick<LimiterCheckContext, "tables" | "assertHolds">): void {
    for (const [name, { running, waiting }] of this.#records) {
      assertHolds(
        running === 0 && waiting.size === 0,
        `nothing stays behind: ${quoted(name)} has ${running} running, ${waiting.size} waiting`,
      );
    }
    for (const { id, running, waiting } of tables.limiters.values()) {
      assertHolds(!isEndpointWaitlist(id), `no row of an endpoint is left when all has ended: ${id}`);
      assertHolds(
        running === 0 && waiting === 0,
        `nothing is counted when all has ended: ${id} has ${running} running, ${waiting} waiting`,
      );
    }
    assertHolds(tables.queueSlots.size === 0, `slots are given back: ${tables.queueSlots.size} are not`);
  }

  #getRecord(name: string): LimiterRecord {
    let record = this.#records.get(name);
    if (!record) this.#records.set(name, (record = new LimiterRecord()));
    return record;
  }

  #count({ changes }: ObservedBatch, touched: Set<string>, messageHistories: MessageHistories): void {
    const count = (name: string, by: 1 | -1): void => {
      this.#getRecord(name).running += by;
      touched.add(name);
    };
    for (const { before, after } of changes.messages) {
      if (before) touch(before, -1);
      if (after) touch(after, 1);
    }
    for (const { before, after } of changes.queueSlots) {
      if (before && before.queue !== "") count(makeKey(before, `queue:${before.queue}`), -1);
      if (after && after.queue !== "") count(makeKey(after, `queue:${after.queue}`), 1);
    }

    function touch(state: MessageState, by: 1 | -1): void {
      if (state.leasedBy !== null && state.flowControlKey !== null) count(makeKey(state, `key:${state.flowControlKey}`), by);
      if (state.leasedBy !== null && state.counted) count(makeKey(state, accountWaitlist), by);
      if (state.leasedBy !== null && state.countedToEndpoint) count(makeKey(state, toEndpointWaitlist(state, messageHistories)), by);
    }
    for (const { before, after } of changes.messages) {
      if (isInWaitlist(before)) this.#getRecord(makeKey(before, before.waitlist)).waiting.delete(before.id);
      if (isInWaitlist(after)) this.#getRecord(makeKey(after, after.waitlist)).waiting.add(after.id);
      for (const row of [before, after]) if (isInWaitlist(row)) touched.add(makeKey(row, row.waitlist));
      for (const name of listReservedIds(before, messageHistories)) this.#getRecord(name).onward.delete(before?.id ?? "");
      for (const name of listReservedIds(after, messageHistories)) this.#getRecord(name).onward.add(after?.id ?? "");
      for (const name of [...listReservedIds(before, messageHistories), ...listReservedIds(after, messageHistories)]) touched.add(name);
    }
  }

  #checkOne(name: string, { observed, checkContext, created, runningBefore }: LimiterCheck): void {
    const { assertHolds, tables, now } = checkContext;
    const record = this.#getRecord(name);
    const row = tables.limiters.get(name);
    const { before } =
      observed.changes.limiters.find(({ before, after }) => [before, after].some((row) => row && makeKey(row, row.id) === name)) ?? {};
    const { running, waiting, waitingDownstream = 0 } = row ?? { running: 0, waiting: 0 };
    assertHolds(
      waitingDownstream === record.onward.size,
      `who went on is counted: ${quoted(name)} says ${waitingDownstream}, there are ${record.onward.size}`,
    );
    assertHolds(running === record.running, `running is counted: ${quoted(name)} says ${running}, there are ${record.running}`);
    assertHolds(waiting === record.waiting.size, `waiting is counted: ${quoted(name)} says ${waiting}, there are ${record.waiting.size}`);
    const limits = readPossibleLimits(name, { before: before ?? row, after: row, created, of: observed });
    const started =
      observed.changes.queueSlots.filter(({ before, after }) => !before && after && makeKey(after, `queue:${after.queue}`) === name)
        .length + countStarts(name, observed);
    assertHolds(started === 0 || !limits.isPaused, `nothing begins in what is paused: ${quoted(name)}`);
    const isSent = observed.result.deliveries.some(({ message }) => queueName(message) === name);
    assertHolds(!isSent || !limits.isPaused, `nothing of a paused queue is sent, nor sent again: ${quoted(name)}`);
    const max = Math.max(runningBefore, limits.parallelism);
    assertHolds(record.running <= max, `no more at once than the limit: ${quoted(name)} has ${record.running} of ${limits.parallelism}`);
    if (name.includes("\nkey:")) this.#checkWindow(name, { observed, checkContext, before, after: row, limits });
    if (row) checkDueTime(row, checkContext);
    const countsAnything = running + waiting + waitingDownstream > 0;
    assertHolds(!row || !isEndpointWaitlist(row.id) || countsAnything, `the row of an endpoint goes with its last place: ${quoted(name)}`);
    if (row) coverStates(row, checkContext);
    if (row && before) checkPins({ before, after: row, limits, assertHolds });
    else if (before && name.includes("\nkey:")) checkForgotten(before, { assertHolds, now });
  }

  /** Starts are counted by what is handed over, windows by the rows; a window may only begin when the last one is over. */
  #checkWindow(name: string, { observed, checkContext: { assertHolds, now }, before, after, limits }: WindowCheck): void {
    if (!after) return;
    const record = this.#getRecord(name);
    const starts = countStarts(name, observed);
    const isNew = after.windowStart !== record.windowStart || limits.isReset;
    if (isNew && before) {
      const isOver = now >= before.windowStart + limits.period || limits.isReset;
      assertHolds(isOver, `a window lasts for its period: ${quoted(name)}, ${before.windowStart} → ${after.windowStart}`);
    }
    record.used = isNew ? starts : record.used + starts;
    record.maxRate = isNew ? limits.rate : Math.max(record.maxRate, limits.rate);
    record.windowStart = after.windowStart;
    assertHolds(
      record.used <= record.maxRate,
      `no more in a window than the rate: ${quoted(name)} began ${record.used} of ${record.maxRate}`,
    );
    assertHolds(
      isNew || after.windowUsed === record.used,
      `starts are counted: ${quoted(name)} says ${after.windowUsed}, there were ${record.used}`,
    );
    if (isNew) record.used = after.windowUsed;
  }

  /** Nobody overtakes those that stand in line. */
  #checkOrder({ changes }: ObservedBatch, { assertHolds, messageHistories }: LimiterCheckContext): void {
    const left = new Set(
      changes.messages.flatMap(({ before, after }) => (isInWaitlist(before) && after?.waitlist !== before.waitlist ? before.id : [])),
    );
    const firstStaying = (name: string): string | undefined =>
      [...(this.#records.get(name)?.waiting ?? [])]
        .filter((id) => !left.has(id))
        .reduce<string | undefined>((a, b) => (a && a < b ? a : b), undefined);
    for (const { before, after } of changes.queueSlots) {
      if (before || !after) continue;
      const name = makeKey(after, `queue:${after.queue}`);
      const first = firstStaying(name);
      assertHolds(
        first === undefined || after.id < first,
        `first come, first served: ${after.id} got a slot of ${quoted(name)} before ${first}`,
      );
      const message = messageHistories.get(after.id)?.message;
      if (!message || message.notBefore > message.createdAt) continue;
      const record = this.#getRecord(name);
      assertHolds(message.createdAt >= record.lastAccepted, `a queue keeps the order: ${after.id} of ${quoted(name)}`);
      record.lastAccepted = message.createdAt;
    }
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after)) continue;
      const passed = [
        ...(after.counted ? [accountWaitlist] : []),
        ...(after.countedToEndpoint ? [toEndpointWaitlist(after, messageHistories)] : []),
      ];
      for (const waitlist of passed) {
        const first = firstStaying(makeKey(after, waitlist));
        const isFromBehind =
          before?.waitlist?.startsWith("capacity:") || (waitlist !== accountWaitlist && before?.waitlist === accountWaitlist);
        const mayPass = first === undefined || isFromBehind || (before?.waitlist && after.id < first);
        assertHolds(Boolean(mayPass), `nobody overtakes: ${after.id} was sent before ${first} of ${waitlist}`);
      }
    }
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after) || after.flowControlKey === null || isOfAccount(before?.waitlist)) continue;
      const waitlist = `key:${after.flowControlKey}`;
      const first = firstStaying(makeKey(after, waitlist));
      const mayPass =
        first === undefined || before?.waitlist?.startsWith("capacity:") || (before?.waitlist === waitlist && after.id < first);
      // Out of the queue's line it may have come to the key's own, and gone on, within one batch.
      assertHolds(
        mayPass || (before?.waitlist?.startsWith("queue:") === true && after.id < (first ?? "")),
        `nobody overtakes: ${after.id} was sent before ${first} of ${waitlist}`,
      );
    }
  }
}

/** Whatever the judge has followed: the counters of all limiters are what the rows of messages and slots say. */
function checkAll({ tables, messageHistories, assertHolds }: LimiterCheckContext): void {
  const messages = [...tables.messages.values()];
  const slots = [...tables.queueSlots.values()];
  const flows = [...tables.limiters.values()];
  const wrong = listWrongCounters({ messages, slots, flows, endpointOf: (state) => parseEndpoint(state, messageHistories) });
  assertHolds(wrong.length === 0, `limiters count what the rows say: ${wrong.join("; ")}`);
}

type LimiterCheck = {
  observed: ObservedBatch;
  checkContext: LimiterCheckContext;
  created: readonly StoredMessage[];
  runningBefore: number;
};
type WindowCheck = {
  observed: ObservedBatch;
  checkContext: LimiterCheckContext;
  before: Limiter | undefined;
  after: Limiter | undefined;
  limits: PossibleLimits;
};

/** The line of those that wait until their account has less under way. */
const accountWaitlist = "account:";

/** That of those that wait until it has less under way to their endpoint. */
const toEndpointWaitlist = (state: MessageState, messageHistories: MessageHistories): string =>
  `endpoint:${parseEndpoint(state, messageHistories)}`;
const isEndpointWaitlist = (id: string): boolean => id.startsWith("endpoint:");
const isOfAccount = (id: string | null | undefined): boolean =>
  id === accountWaitlist || (typeof id === "string" && isEndpointWaitlist(id));

/** The key and the endpoint for a place of which a message stands in a line of its account. */
function listReservedIds(state: MessageState | undefined, messageHistories: MessageHistories): string[] {
  if (!state || !isOfAccount(state.waitlist)) return [];
  return [
    ...(state.flowControlKey === null ? [] : [makeKey(state, `key:${state.flowControlKey}`)]),
    ...(state.waitlist === accountWaitlist && state.countedToEndpoint ? [makeKey(state, toEndpointWaitlist(state, messageHistories))] : []),
  ];
}

const makeKey = ({ account }: { account: string }, id: string): string => `${account}\n${id}`;
const quoted = (name: string): string => JSON.stringify(name);

const isInWaitlist = (state: MessageState | undefined): state is MessageState & { waitlist: string } =>
  state?.waitlist !== undefined && state.waitlist !== null && !state.waitlist.startsWith("capacity:");

/** Deliveries under a key that begin with a batch. */
const queueName = (message: StoredMessage): string => makeKey(message, `queue:${message.queue}`);

const countStarts = (name: string, { result }: ObservedBatch): number =>
  result.deliveries.filter(({ message }) => makeKey(message, `key:${message.flowControl?.key}`) === name).length;

/** A message passes the gates that its envelope names, and stands before one of them. */
function checkNames(state: MessageState, { messageHistories, assertHolds, tables }: LimiterCheckContext): void {
  const message = messageHistories.get(state.id)?.message;
  if (!message) return;
  const { id, waitlist, slot } = state;
  assertHolds(
    state.queue === message.queue && state.flowControlKey === (message.flowControl?.key ?? null),
    `gates are those of the letter: ${id}`,
  );
  assertHolds((state.state === "held") === (waitlist !== null), `who is held stands in a line: ${id}`);
  const waitlists = [
    `queue:${state.queue}`,
    `key:${state.flowControlKey}`,
    `capacity:${state.host}`,
    accountWaitlist,
    toEndpointWaitlist(state, messageHistories),
  ];
  assertHolds(waitlist === null || waitlists.includes(waitlist), `who waits stands before a gate of its own: ${id} in ${waitlist}`);
  assertHolds(waitlist !== waitlists[0] || slot === null, `who waits for a slot has none: ${id}`);
  assertHolds(
    state.queue === null || (slot === null) === !tables.queueSlots.has(`${state.account}\n${id}`),
    `a slot belongs to its message: ${id}`,
  );
  assertHolds(state.leasedBy === null || state.queue === null || slot !== null, `nothing of a queue is sent without a slot: ${id}`);
}

function readPossibleLimits(
  name: string,
  observed: { before: Limiter | undefined; after: Limiter | undefined; created: readonly StoredMessage[]; of: ObservedBatch },
): PossibleLimits {
  const [account, id = ""] = name.split("\n");
  const rows = [observed.before, observed.after].flatMap((row) => row ?? []);
  const pinned = (what: "parallelism" | "rate"): boolean => rows.length > 0 && rows.every((row) => row.pinned[what]);
  const calls = observed.of.calls.map(({ name, input }) => ({
    name,
    ...(input as { account: string; id?: string; key?: string; name?: string } & Partial<Limiter>),
    call: name,
  }));
  const about = calls.filter((one) => one.account === account && (`key:${one.key}` === id || `queue:${one.name}` === id));
  const inputs = observed.created.flatMap((one) =>
    one.account === account && `key:${one.flowControl?.key}` === id ? (one.flowControl ?? []) : [],
  );
  const orInfinite = (value: number | null | undefined): number[] => (value === undefined ? [] : [value ?? Infinity]);
  const rates = [...rows, ...(pinned("rate") ? [] : inputs)];
  return {
    parallelism: Math.max(
      ...(id.startsWith("queue:") && !observed.before ? [1] : []),
      ...[...rows, ...(pinned("parallelism") ? [] : inputs), ...about].flatMap(({ parallelism }) => orInfinite(parallelism)),
    ),
    rate: Math.max(...[...rates, ...about].flatMap(({ rate }) => orInfinite(rate))),
    period: Math.min(...rates.map(({ period }) => period ?? 1000)),
    isPaused: rows.length === 2 && rows.every(({ paused }) => paused) && !calls.some(({ call }) => changesPause.has(call)),
    isReset: about.some(({ call, rate, period }) => call === "resetRate" || (call === "pinFlowControl" && (rate ?? period) !== undefined)),
    isPinned: about.some(({ call }) => call === "pinFlowControl" || call === "upsertQueue"),
  };
}

const changesPause = new Set(["pauseLimiter", "resumeLimiter", "upsertQueue"]);

/** Whoever waits before what is open, or opens at a known time, is looked at then. */
function checkDueTime(limiter: Limiter, { assertHolds, now }: LimiterCheckContext): void {
  const { id, waiting, paused, parallelism, running, rate, windowStart, windowUsed, period, dueAt } = limiter;
  if (waiting === 0) {
    const isKept = running + (limiter.waitingDownstream ?? 0) > 0 || paused || limiter.pinned.parallelism || limiter.pinned.rate;
    return assertHolds(isKept || dueAt !== null, `what nobody uses is forgotten some time: ${id}`);
  }
  const waitingDownstream = limiter.waitingDownstream ?? 0;
  const hasPlace =
    !paused && (parallelism === null || running + waitingDownstream < parallelism) && (rate === null || rate > waitingDownstream);
  const isWindowFull = rate !== null && windowUsed + waitingDownstream >= rate && now < windowStart + period;
  // The limit of an account may be another one by now, and does not tell the flows of its endpoints. Where all places are those of
  // messages that stand in the line of the account, it is seen when one of these moves.
  const closed = isEndpointWaitlist(id) && running > 0 ? now + spans.waitlistCheck : Infinity;
  const opensAt = !hasPlace ? closed : isWindowFull ? windowStart + period : now;
  assertHolds(
    (dueAt ?? Infinity) <= opensAt + spans.limiterCheck,
    `nobody waits for ever: ${id} opens at ${opensAt} and is looked at ${dueAt}`,
  );
}

/** What a run must have seen to be worth its name. */
function coverStates({ id, waiting, paused, parallelism, running, rate, windowUsed }: Limiter, { cover }: LimiterCheckContext): void {
  const kind = id.startsWith("queue:") ? "queue" : id === accountWaitlist ? "account" : isEndpointWaitlist(id) ? "endpoint" : "key";
  if (running > 1) cover(`${kind} with several at once`);
  if (waiting === 0) return;
  if (paused) cover(`${kind} paused with a line`);
  if (!paused && parallelism !== null && running >= parallelism) cover(`${kind} full with a line`);
  if (!paused && rate !== null && windowUsed >= rate) cover(`${kind} with a full window and a line`);
}

/** What people have pinned does not follow the messages. */
function checkPins({
  before,
  after,
  limits,
  assertHolds,
}: {
  before: Limiter;
  after: Limiter;
  limits: PossibleLimits;
  assertHolds: AssertHolds;
}): void {
  for (const limit of ["parallelism", "rate"] as const) {
    const isPinned = before.pinned[limit] && after.pinned[limit] && !limits.isPinned;
    assertHolds(
      !isPinned || before[limit] === after[limit],
      `a pinned limit stays: ${limit} of ${after.id}, ${before[limit]} → ${after[limit]}`,
    );
  }
}

function checkForgotten(limiter: Limiter, { assertHolds, now }: Pick<LimiterCheckContext, "assertHolds" | "now">): void {
  const { id, running, waiting, paused, pinned, updatedAt } = limiter;
  const isIdle = running === 0 && waiting === 0 && !paused && !pinned.parallelism && !pinned.rate;
  assertHolds(isIdle && now >= updatedAt + spans.idleKey, `only what nobody uses is forgotten: ${id}`);
  const isWindowOver = limiter.rate === null || limiter.windowUsed === 0 || now >= limiter.windowStart + limiter.period;
  assertHolds(isWindowOver, `a window is not forgotten before it is over: ${id}`);
}
