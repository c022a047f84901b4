import type { Limiter } from "../../../../src/engine/core/model/limiter.ts";
import type { StoredMessage } from "../../../../src/engine/core/model/message.ts";
import type { MessageState } from "../../../../src/engine/core/model/messageState.ts";
import { listWrongCounters } from "../../../model/counters.ts";
import type { ObservedBatch } from "../observedBatch.ts";
import { parseEndpoint } from "./accountLimits.ts";
import { isLease } from "../observedBatch.ts";
import type { LimiterCheckContext, MessageHistories } from "./limiterContext.ts";
import { checkDueTime, checkForgotten, checkPins, coverStates } from "./limiterRows.ts";
import { readPossibleLimits, type PossibleLimits } from "./possibleLimits.ts";
import { QueueSlotChecker } from "./queueSlots.ts";
import {
  accountWaitlist,
  isEndpointWaitlist,
  isInWaitlist,
  isOfAccount,
  listReservedIds,
  makeKey,
  quoted,
  toEndpointWaitlist,
} from "./waitlistNames.ts";

/** The checker's own counts of one limiter. */
class LimiterRecord {
  running = 0;
  /** Messages in its waitlist. */
  readonly waiting = new Set<string>();
  /** Its messages that wait for an account limit after it. */
  readonly waitingDownstream = new Set<string>();
  windowStart = 0;
  used = 0;
  maxRate = 0;
  /** When the latest message without a delay that got a slot was accepted. */
  lastAccepted = 0;
}

/**
 * Checks queues and flow-control keys: counters, limits, order, and that no message waits forever for an open
 * gate.
 */
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
    for (const { message } of observed.result.deliveries)
      if (message.queue !== null) touched.add(queueName(message));
    const created = observed.changes.storedMessages.flatMap(({ after }) => after ?? []);
    for (const name of touched)
      this.#checkOne(name, { observed, checkContext, created, runningBefore: before.get(name) ?? 0 });
    checkAll(checkContext);
    this.#queueSlots.check(observed, checkContext);
  }

  /** Checks that nothing is counted when everything has ended. */
  checkQuiet({ tables, assertHolds }: Pick<LimiterCheckContext, "tables" | "assertHolds">): void {
    for (const [name, { running, waiting }] of this.#records) {
      assertHolds(
        running === 0 && waiting.size === 0,
        `nothing is left behind: ${quoted(name)} has ${running} running, ${waiting.size} waiting`,
      );
    }
    for (const { id, running, waiting } of tables.limiters.values()) {
      assertHolds(!isEndpointWaitlist(id), `no row of an endpoint is left at the end: ${id}`);
      assertHolds(
        running === 0 && waiting === 0,
        `nothing is counted at the end: ${id} has ${running} running, ${waiting} waiting`,
      );
    }
    assertHolds(tables.queueSlots.size === 0, `slots are released: ${tables.queueSlots.size} are not`);
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
      if (state.leasedBy !== null && state.flowControlKey !== null)
        count(makeKey(state, `key:${state.flowControlKey}`), by);
      if (state.leasedBy !== null && state.counted) count(makeKey(state, accountWaitlist), by);
      if (state.leasedBy !== null && state.countedToEndpoint)
        count(makeKey(state, toEndpointWaitlist(state, messageHistories)), by);
    }
    for (const { before, after } of changes.messages) {
      if (isInWaitlist(before)) this.#getRecord(makeKey(before, before.waitlist)).waiting.delete(before.id);
      if (isInWaitlist(after)) this.#getRecord(makeKey(after, after.waitlist)).waiting.add(after.id);
      for (const row of [before, after]) if (isInWaitlist(row)) touched.add(makeKey(row, row.waitlist));
      for (const name of listReservedIds(before, messageHistories))
        this.#getRecord(name).waitingDownstream.delete(before?.id ?? "");
      for (const name of listReservedIds(after, messageHistories))
        this.#getRecord(name).waitingDownstream.add(after?.id ?? "");
      for (const name of [
        ...listReservedIds(before, messageHistories),
        ...listReservedIds(after, messageHistories),
      ])
        touched.add(name);
    }
  }

  #checkOne(name: string, { observed, checkContext, created, runningBefore }: LimiterCheck): void {
    const { assertHolds, tables, now } = checkContext;
    const record = this.#getRecord(name);
    const row = tables.limiters.get(name);
    const { before } =
      observed.changes.limiters.find(({ before, after }) =>
        [before, after].some((row) => row && makeKey(row, row.id) === name),
      ) ?? {};
    const { running, waiting, waitingDownstream = 0 } = row ?? { running: 0, waiting: 0 };
    assertHolds(
      waitingDownstream === record.waitingDownstream.size,
      `waitingDownstream is correct: ${quoted(name)} has ${waitingDownstream} ` +
        `of ${record.waitingDownstream.size}`,
    );
    assertHolds(
      running === record.running,
      `running is correct: ${quoted(name)} has ${running} of ${record.running}`,
    );
    assertHolds(
      waiting === record.waiting.size,
      `waiting is correct: ${quoted(name)} has ${waiting} of ${record.waiting.size}`,
    );
    const limits = readPossibleLimits(name, { before: before ?? row, after: row, created, of: observed });
    const started =
      observed.changes.queueSlots.filter(
        ({ before, after }) => !before && after && makeKey(after, `queue:${after.queue}`) === name,
      ).length + countStarts(name, observed);
    assertHolds(
      started === 0 || !limits.isPaused,
      `nothing starts while a limiter is paused: ${quoted(name)}`,
    );
    const isSent = observed.result.deliveries.some(({ message }) => queueName(message) === name);
    assertHolds(
      !isSent || !limits.isPaused,
      `no message of a paused queue is sent or retried: ${quoted(name)}`,
    );
    const max = Math.max(runningBefore, limits.parallelism);
    assertHolds(
      record.running <= max,
      `a limit is not exceeded: ${quoted(name)} has ${record.running} of ${limits.parallelism}`,
    );
    if (name.includes("\nkey:"))
      this.#checkWindow(name, { observed, checkContext, before, after: row, limits });
    if (row) checkDueTime(row, checkContext);
    const countsAnything = running + waiting + waitingDownstream > 0;
    assertHolds(
      !row || !isEndpointWaitlist(row.id) || countsAnything,
      `the row of an endpoint is removed with its last count: ${quoted(name)}`,
    );
    if (row) coverStates(row, checkContext);
    if (row && before) checkPins({ before, after: row, limits, assertHolds });
    else if (before && name.includes("\nkey:")) checkForgotten(before, { assertHolds, now });
  }

  /**
   * Checks the rate. Starts are counted by deliveries, windows by rows. A window may only begin after the
   * last one has ended.
   */
  #checkWindow(
    name: string,
    { observed, checkContext: { assertHolds, now }, before, after, limits }: WindowCheck,
  ): void {
    if (!after) return;
    const record = this.#getRecord(name);
    const starts = countStarts(name, observed);
    const isNew = after.windowStart !== record.windowStart || limits.isReset;
    if (isNew && before) {
      const isOver = now >= before.windowStart + limits.period || limits.isReset;
      assertHolds(
        isOver,
        `a window lasts for its period: ${quoted(name)}, ${before.windowStart} → ${after.windowStart}`,
      );
    }
    record.used = isNew ? starts : record.used + starts;
    record.maxRate = isNew ? limits.rate : Math.max(record.maxRate, limits.rate);
    record.windowStart = after.windowStart;
    assertHolds(
      record.used <= record.maxRate,
      `a rate is not exceeded in a window: ${quoted(name)} started ${record.used} of ${record.maxRate}`,
    );
    assertHolds(
      isNew || after.windowUsed === record.used,
      `starts are counted: ${quoted(name)} has ${after.windowUsed} of ${record.used}`,
    );
    if (isNew) record.used = after.windowUsed;
  }

  /** Checks that no message overtakes a waitlist. */
  #checkOrder({ changes }: ObservedBatch, { assertHolds, messageHistories }: LimiterCheckContext): void {
    const left = new Set(
      changes.messages.flatMap(({ before, after }) =>
        isInWaitlist(before) && after?.waitlist !== before.waitlist ? before.id : [],
      ),
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
        `slots are given in order: ${after.id} got a slot of ${quoted(name)} before ${first}`,
      );
      const message = messageHistories.get(after.id)?.message;
      if (!message || message.notBefore > message.createdAt) continue;
      const record = this.#getRecord(name);
      assertHolds(
        message.createdAt >= record.lastAccepted,
        `a queue keeps the order: ${after.id} of ${quoted(name)}`,
      );
      record.lastAccepted = message.createdAt;
    }
    const mayHaveLeft = (first: string | undefined): boolean => {
      const { account, flowControl } = messageHistories.get(first ?? "")?.message ?? {};
      return changes.limiters.some(
        ({ before, after }) =>
          flowControl &&
          [before, after].some((row) => row?.account === account && row?.id === `key:${flowControl.key}`) &&
          wasFull(before, after),
      );
    };
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after)) continue;
      const passed = [
        ...(after.counted ? [accountWaitlist] : []),
        ...(after.countedToEndpoint ? [toEndpointWaitlist(after, messageHistories)] : []),
      ];
      for (const waitlist of passed) {
        const first = firstStaying(makeKey(after, waitlist));
        const isFromBehind =
          before?.waitlist?.startsWith("capacity:") ||
          (waitlist !== accountWaitlist && before?.waitlist === accountWaitlist);
        const mayPass =
          first === undefined || isFromBehind || (before?.waitlist && after.id < first) || mayHaveLeft(first);
        assertHolds(mayPass, `no message overtakes: ${after.id} was sent before ${first} of ${waitlist}`);
      }
    }
    for (const { before, after } of changes.messages) {
      if (!isLease(before, after) || after.flowControlKey === null || isOfAccount(before?.waitlist)) continue;
      const waitlist = `key:${after.flowControlKey}`;
      const first = firstStaying(makeKey(after, waitlist));
      const mayPass =
        first === undefined ||
        before?.waitlist?.startsWith("capacity:") ||
        (before?.waitlist === waitlist && after.id < first);
      // Within one batch it may have moved from the queue's waitlist to that of its key, and on.
      assertHolds(
        mayPass || (before?.waitlist?.startsWith("queue:") === true && after.id < (first ?? "")),
        `no message overtakes: ${after.id} was sent before ${first} of ${waitlist}`,
      );
    }
  }
}

/**
 * Reports whether a key was at its limit at some time during a batch. If its limit was lowered, a message
 * that waits for its account has no reserved slot left. It moves back to the waitlist of the key, and may
 * return in the same batch.
 */
const wasFull = (before: Limiter | undefined, after: Limiter | undefined): boolean =>
  Math.max(before?.running ?? 0, after?.running ?? 0) >=
  Math.min(before?.parallelism ?? Infinity, after?.parallelism ?? Infinity);

/** Checks the counters of all limiters against the rows of messages and slots. */
function checkAll({ tables, messageHistories, assertHolds }: LimiterCheckContext): void {
  const messages = [...tables.messages.values()];
  const slots = [...tables.queueSlots.values()];
  const flows = [...tables.limiters.values()];
  const wrong = listWrongCounters({
    messages,
    slots,
    flows,
    endpointOf: (state) => parseEndpoint(state, messageHistories),
  });
  assertHolds(wrong.length === 0, `limiters match the rows: ${wrong.join("; ")}`);
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

/** Returns the limiter of a message's queue. */
const queueName = (message: StoredMessage): string => makeKey(message, `queue:${message.queue}`);

const countStarts = (name: string, { result }: ObservedBatch): number =>
  result.deliveries.filter(({ message }) => makeKey(message, `key:${message.flowControl?.key}`) === name)
    .length;

/** Checks that a message passes the gates of its stored message, and waits for one of them. */
function checkNames(
  state: MessageState,
  { messageHistories, assertHolds, tables }: LimiterCheckContext,
): void {
  const message = messageHistories.get(state.id)?.message;
  if (!message) return;
  const { id, waitlist, slot } = state;
  assertHolds(
    state.queue === message.queue && state.flowControlKey === (message.flowControl?.key ?? null),
    `gates are those of the stored message: ${id}`,
  );
  assertHolds((state.state === "held") === (waitlist !== null), `a held message is in a waitlist: ${id}`);
  const waitlists = [
    `queue:${state.queue}`,
    `key:${state.flowControlKey}`,
    `capacity:${state.host}`,
    accountWaitlist,
    toEndpointWaitlist(state, messageHistories),
  ];
  assertHolds(
    waitlist === null || waitlists.includes(waitlist),
    `a message waits only for its own gates: ${id} in ${waitlist}`,
  );
  assertHolds(waitlist !== waitlists[0] || slot === null, `a message that waits for a slot has none: ${id}`);
  assertHolds(
    state.queue === null || (slot === null) === !tables.queueSlots.has(`${state.account}\n${id}`),
    `a slot belongs to its message: ${id}`,
  );
  assertHolds(
    state.leasedBy === null || state.queue === null || slot !== null,
    `no message of a queue is sent without a slot: ${id}`,
  );
}
