import type { PublishResult } from "../../src/core/commands/publish.ts";
import { hasCapacity, laneName } from "../../src/core/admission/capacity.ts";
import { maxLostAttempts } from "../../src/core/values/limits.ts";
import type { Delivery, StoredMessage, MessageInput, LogRow, MessageState } from "../../src/core/model/message.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { CommandCall } from "../../src/store/store.ts";
import type { Batch, ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { endsReportedAttempt, isLease } from "./observedBatch.ts";
import { AccountChecker } from "./accounts.ts";
import { makeFreeCapacity, readInUse } from "./capacityInUse.ts";
import { AccountLimitChecker } from "./accountLimits.ts";
import { LimiterChecker } from "./limiters.ts";
import { DeduplicationChecker } from "./deduplication.ts";
import { MessageHistory } from "./messageHistory.ts";
import { checkEmpty, checkRemovals } from "./removals.ts";
import { RequestChecker } from "./requests.ts";
import type { NodeCapacity } from "./node.ts";
import { isExpectedRefusal, mapInputs, mapRetried } from "./inputsOfBatch.ts";
import { RunChecker } from "./runs.ts";
import { ScheduleChecker } from "./schedules.ts";
import { UsageRecount } from "./usage.ts";
import type { Change, Changes } from "./changes.ts";
import type { Storage } from "./storage.ts";
import type { VirtualTime } from "./virtualTime.ts";

/**
 * Watches every batch and every call, and knows from its own records what may happen next. It is told what was asked and
 * sees the rows; it shares no rule with `core`.
 */
export class InvariantChecker {
  readonly messageHistories = new Map<string, MessageHistory>();
  readonly #virtualTime: VirtualTime;
  readonly #storage: Storage;
  readonly #keys = new DeduplicationChecker();
  readonly #limiters = new LimiterChecker();
  readonly #accountLimits = new AccountLimitChecker();
  readonly accounts = new AccountChecker();
  readonly #schedules = new ScheduleChecker();
  readonly requests = new RequestChecker();
  readonly runs = new RunChecker();
  readonly #usage = new UsageRecount();
  readonly #retention: Retention;
  /** Messages that wait for a hand, by lane. */
  readonly #held = new Map<string, Set<string>>();
  /** Calls under way, by node and by lane. */
  readonly #calls = new Map<string, number>();
  /** The bytes of their bodies. */
  readonly #bytes = new Map<string, number>();
  readonly #totalCapacity: NodeCapacity;
  /** When signing keys were replaced. */
  readonly #replaced = new Map<string, number>();
  /** Claims of a node, one after another, that met a world in which nothing had changed, and changed nothing, since it had its hold. */
  readonly idleClaims = new Map<string, number>();
  claims = 0;
  /** What a run must have seen to be worth its name, besides what its trace tells. */
  readonly happened = new Set<string>();
  /** The first broken promise. */
  broken: string | null = null;

  constructor(observed: { virtualTime: VirtualTime; storage: Storage; retention: Retention; hands: NodeCapacity }) {
    this.#virtualTime = observed.virtualTime;
    this.#storage = observed.storage;
    this.#retention = observed.retention;
    this.#totalCapacity = observed.hands;
  }

  get unfinished(): number {
    return this.#storage.tables.messages.size + this.#storage.tables.activeRuns.size;
  }

  readonly assertHolds: AssertHolds = (holds, promise) => {
    if (holds || this.broken !== null) return;
    this.broken = promise;
    this.#virtualTime.note(`BROKEN: ${promise}`);
  };

  async committed(batch: Batch): Promise<void> {
    const changes = await this.#storage.changes();
    const { now } = this.#virtualTime;
    const observed = { ...batch, changes };
    this.#countClaims(observed);
    const touched = this.#noteCreated(observed);
    for (const { before, after } of changes.log) {
      if (!after || before) continue;
      const messageHistory = this.#findHistory(after.account, after.messageId);
      if (messageHistory) touched.add(messageHistory);
      messageHistory?.log(after, now);
    }
    for (const change of changes.messages) this.#checkState(change, observed);
    this.#checkReports(observed);
    this.#checkDeliveries(observed);
    this.#checkDeadLetters(observed);
    for (const messageHistory of touched) messageHistory.checkCallbacks(this.#storage.tables);
    this.#checkHostWaitlists(changes);
    const { messageHistories, assertHolds } = this;
    const { tables } = this.#storage;
    this.#keys.check(observed, { messageHistories, now, assertHolds });
    const cover = (what: string): unknown => this.happened.add(what);
    this.#limiters.check(observed, { messageHistories, now, assertHolds, tables, cover });
    this.#accountLimits.check(observed, { assertHolds, tables, messageHistories });
    this.requests.check(observed, { assertHolds, tables, cover });
    this.accounts.check(observed, { assertHolds, tables, now, retention: this.#retention, cover });
    const hasSpent = (account: string): boolean | null => this.accounts.isPublishForbidden(account, { tables, now });
    this.#schedules.check(observed, { now, assertHolds, tables, cover, hasSpent, retried: mapRetried(observed) });
    this.runs.check(observed, { assertHolds, tables, now, retention: this.#retention, cover });
    this.#usage.check(observed, { messageHistories, now, assertHolds, tables, cover });
    checkRemovals(observed, { messageHistories, assertHolds, tables, now, retention: this.#retention, cover });
  }

  /** A client was told that its message is taken in. */
  acknowledged(results: readonly PublishResult[]): void {
    for (const result of results) {
      // A group may have no endpoints.
      const isRefused = "refused" in result && isExpectedRefusal(result);
      const all = "each" in result ? result.each : isRefused ? [] : [result];
      for (const one of all) {
        const exists = "messageId" in one && this.messageHistories.has(one.messageId);
        this.assertHolds(exists, `what was acknowledged exists: ${JSON.stringify(result)}`);
      }
    }
  }

  /** A node calls a destination. `running`: the deliveries of the node, this one included. */
  deliveryStarted({ node, delivery, lane, running }: { node: string; delivery: Delivery; lane: string; running: number }): void {
    const { message, attempt } = delivery;
    const messageHistory = this.#findHistory(message.account, message.id);
    messageHistory?.call(attempt, this.#virtualTime.now);
    const { total, perHost, bytes } = this.#totalCapacity;
    this.assertHolds(running <= total, `no more deliveries than hands: ${node} has ${running} of ${total}`);
    const before = readInUse({ calls: this.#calls, bytes: this.#bytes }, { node, lane, account: message.account });
    const capacity = makeFreeCapacity({ total, perHost, bytes });
    const hasShare = hasCapacity(capacity, before, lane);
    this.assertHolds(hasShare, `none has more than its share: ${node} calls ${lane}, and has ${JSON.stringify(before)}`);
    this.#count(delivery, { node, lane, by: 1 });
    this.requests.begin(node, delivery);
    this.#virtualTime.note(`${node} calls ${message.id} #${attempt} ${message.url}`);
  }

  deliveryEnded(node: string, delivery: Delivery): void {
    const { account, url } = delivery.message;
    this.#count(delivery, { node, lane: laneName(account, new URL(url).host), by: -1 });
    this.requests.end(delivery);
  }

  /** A node has ended gracefully. */
  nodeStopped(node: string, harmed: boolean): void {
    if (harmed) return;
    for (const state of this.#storage.tables.messages.values()) {
      const leases = state.leasedBy === node && (state.dueAt ?? 0) > this.#virtualTime.now;
      this.assertHolds(!leases, `a node that has stopped has nothing leased: ${state.id} by ${node}`);
    }
  }

  #count({ message }: Delivery, { node, lane, by }: { node: string; lane: string; by: number }): void {
    for (const name of [node, `${node} ${lane}`, `${node} ${message.account}`]) {
      this.#calls.set(name, (this.#calls.get(name) ?? 0) + by);
      this.#bytes.set(name, (this.#bytes.get(name) ?? 0) + by * message.body.byteLength);
    }
  }

  #findHistory(account: string, id: string): MessageHistory | null {
    const messageHistory = this.messageHistories.get(id) ?? null;
    const isOwn = messageHistory !== null && messageHistory.message.account === account;
    this.assertHolds(isOwn, `rows name messages of their own account: ${account} ${id}`);
    return messageHistory;
  }

  /** A claim comes when there is something to claim, or when it was woken for something that another has taken. */
  #countClaims({ node, calls, changes }: ObservedBatch): void {
    this.claims += calls.filter(({ name }) => name === "claim").length;
    if (Object.values(changes).some((list) => list.length > 0)) return this.idleClaims.clear();
    if (!calls.some(({ name }) => name === "claim")) return;
    const idle = (this.idleClaims.get(node) ?? 0) + 1;
    this.idleClaims.set(node, idle);
    this.assertHolds(idle <= 6, `nobody claims again and again when there is nothing to claim: ${node}`);
  }

  /** Every new message has an envelope and a state, and a reason. */
  #noteCreated(observed: ObservedBatch): Set<MessageHistory> {
    const { changes } = observed;
    const created = new Set<MessageHistory>();
    const retried = mapRetried(observed);
    const inputs = mapInputs(observed, this.#storage.tables, this.assertHolds);
    const changedWaitlists = new Set(
      changes.hostWaitlists
        .flatMap(({ before, after }) => [before ?? [], after ?? []].flat())
        .map(({ account, host }) => `${account}\n${host}`),
    );
    for (const { before, after } of changes.storedMessages) {
      if (after) {
        this.assertHolds(before === undefined, `an envelope is written once: ${after.id}`);
        created.add(this.#createHistory(after, { input: inputs.get(after.id), retried: retried.has(after.id), changedWaitlists }));
      }
    }
    for (const dlqId of retried.values()) {
      const isGone = changes.deadLetters.some(({ before, after }) => before?.id === dlqId && !after);
      this.assertHolds(isGone, `what is sent again leaves the queue: ${dlqId}`);
    }
    for (const id of inputs.keys()) this.assertHolds(this.messageHistories.has(id), `what is answered is kept: ${id}`);
    return created;
  }

  #createHistory(message: StoredMessage, { input, retried, changedWaitlists }: Creation): MessageHistory {
    const { now } = this.#virtualTime;
    const isScheduled = message.scheduleId !== null && !retried;
    const isSaid = isScheduled || message.run !== undefined || (message.reportsOn !== null && !retried);
    const notBefore = input ? (input.notBefore ?? now + (input.delay ?? 0)) : isSaid ? message.notBefore : now;
    const messageHistory = new MessageHistory({ envelope: message, notBefore, assertHolds: this.assertHolds });
    this.messageHistories.set(message.id, messageHistory);
    const { reportsOn } = message;
    this.assertHolds(retried || input !== undefined || reportsOn !== null || isSaid, `every message has a reason: ${message.id}`);
    const state = this.#storage.tables.messages.get(`${message.account}\n${message.id}`);
    // Its run may have been cancelled in the same batch.
    const run = this.#storage.tables.runs.get(`${message.account}\n${message.run?.run}`);
    this.assertHolds(state !== undefined || typeof run?.endedAt === "number", `a new message is to be sent: ${message.id}`);
    const lane = `${message.account}\n${new URL(message.url).host}`;
    const overtakes = message.startedAtOnce && this.#storage.tables.hostWaitlists.has(lane) && !changedWaitlists.has(lane);
    this.assertHolds(!overtakes, `who comes later stands behind: ${message.id}`);
    if (reportsOn && !retried) this.#findHistory(message.account, reportsOn.messageId)?.noteReport(reportsOn, message);
    return messageHistory;
  }

  #checkState({ before, after }: Change<"messages">, observed: ObservedBatch): void {
    const row = after ?? before;
    if (!row) return;
    const messageHistory = this.#findHistory(row.account, row.id);
    const lane = laneName(row.account, row.host);
    const held = this.#held.get(lane) ?? new Set();
    if (after?.waitlist?.startsWith("capacity:")) this.#held.set(lane, held.add(row.id));
    else held.delete(row.id);
    if (!after) return this.assertHolds(messageHistory?.ended !== null, `nothing is lost: ${row.id} is gone and has not ended`);
    this.assertHolds((after.state === "held") === (after.dueAt === null), `held means no due time: ${row.id}`);
    const isSent = ["active", "cancelling"].includes(after.state);
    this.assertHolds(isSent === (after.leasedBy !== null), `active means leased: ${row.id}`);
    const isWithinBudget =
      after.lostAttempts <= maxLostAttempts && after.attempts - after.lostAttempts <= (messageHistory?.message.retries ?? 0);
    this.assertHolds(isWithinBudget, `attempts stay within their budget: ${row.id}`);
    messageHistory?.state(before, after, {
      now: this.#virtualTime.now,
      names: this.#listCommandsAbout(observed, row.id),
      node: observed.node,
    });
  }

  /** The commands of a batch that may change a message, by name. */
  #listCommandsAbout({ calls }: ObservedBatch, id: string): Set<string> {
    const about = ({ name, input }: CommandCall): boolean => {
      if (name === "returnLeases" || name === "renew")
        return (input as { leases: { messageId: string }[] }).leases.some(({ messageId }) => messageId === id);
      return name !== "settle" || (input as { messageId: string }).messageId === id;
    };
    return new Set(calls.filter(about).map(({ name }) => name));
  }

  /** A report counts when its node had the lease of this very attempt, and once. */
  #checkReports({ node, calls, result, changes }: ObservedBatch): void {
    const before = new Map(changes.messages.map(({ before }) => [before?.id, before]));
    const counted = new Map<string, number>();
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      this.assertHolds(reply !== undefined && !("failed" in reply), `no command fails: ${name} ${JSON.stringify(reply)}`);
      if (name !== "settle" || !reply || !("answer" in reply)) return;
      const { messageId, attempt } = input as { messageId: string; attempt: number };
      if ((reply.answer as { became: string }).became === "late") return;
      const state = before.get(messageId);
      const holds = state?.leasedBy === node && state.attempts === attempt;
      this.assertHolds(holds, `only who has the lease is heard: ${messageId} #${attempt} of ${node}`);
      counted.set(messageId, (counted.get(messageId) ?? 0) + 1);
    });
    const added = changes.log.flatMap(({ before, after }) => (after && !before ? [after] : []));
    const retried = new Set(added.filter(({ states }) => states.includes("RETRY")).map(({ messageId }) => messageId));
    // What is to be sent again may be dropped in the same batch, with its run. That ends no attempt.
    const isDropped = ({ states: [first], messageId }: LogRow): boolean => first === "CANCELLED" && retried.has(messageId);
    const rows = added.flatMap((row) => (endsReportedAttempt(row) && !isDropped(row) ? [row.messageId] : []));
    for (const [id, reports] of counted) {
      this.assertHolds(reports === 1 && rows.filter((row) => row === id).length === 1, `a report is counted once: ${id}`);
    }
  }

  /** What was leased is delivered, by the node that leased it, and nothing else is. */
  #checkDeliveries(observed: ObservedBatch): void {
    const { node, result, changes } = observed;
    this.#checkBytes(observed);
    for (const { message } of result.deliveries) {
      const { size } = this.#storage.tables.messages.get(`${message.account}\n${message.id}`) ?? {};
      const length = message.body.byteLength;
      const fits = message.run?.kind === "step" ? length <= (size ?? 0) : length === size;
      this.assertHolds(fits, `the size is that of the body, which is sent whole: ${message.id}, ${size}`);
    }
    for (const what of result.faults) this.assertHolds(false, what);
    for (const { before } of changes.accounts)
      for (const key of Object.values(before?.signingKeys ?? {})) this.#replaced.set(key, this.#virtualTime.now);
    const leased = changes.messages.flatMap(({ before, after }) => (isLease(before, after) && after ? [after] : []));
    for (const state of leased) {
      const delivered = result.deliveries.filter(({ message, attempt }) => message.id === state.id && attempt === state.attempts);
      this.assertHolds(state.leasedBy === node, `a node leases for itself: ${state.id}`);
      this.assertHolds(delivered.length === 1, `what is leased is sent, once: ${state.id}`);
      const keys = this.#storage.tables.accounts.get(state.account)?.signingKeys;
      // Who was at work at the same time as the change of keys may have read them before.
      this.assertHolds(
        delivered.every(({ signingKey }) => signingKey === keys?.current || this.#replaced.get(signingKey) === this.#virtualTime.now),
        `signed with the account's key: ${state.id}`,
      );
    }
    for (const { message } of result.deliveries) {
      const isLeased = leased.some(({ account, id }) => account === message.account && id === message.id);
      this.assertHolds(isLeased, `what is sent is leased: ${message.id}`);
    }
  }

  /** What waited is loaded to be sent up to a limit, and with its size known before. */
  #checkBytes({ calls, result, changes }: ObservedBatch): void {
    const othersThanWaiting = new Set([
      ...changes.messages.flatMap(({ before, after }) => (before ? [] : (after?.id ?? []))),
      // The envelope of what is reported on is here for its callback.
      ...calls.flatMap(({ name, input }) => (name === "settle" ? (input as { messageId: string }).messageId : [])),
    ]);
    const sizes = result.deliveries.flatMap(({ message }) => (othersThanWaiting.has(message.id) ? [] : message.body.byteLength));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    // The first one may have been larger than all that is allowed.
    const isBounded = bytes - Math.max(0, ...sizes) <= this.#totalCapacity.bytes.perBatch;
    this.assertHolds(isBounded, `a batch loads no more than it may: ${bytes} bytes in ${sizes.length} messages`);
  }

  #checkDeadLetters({ changes }: ObservedBatch): void {
    for (const { before, after } of changes.deadLetters) {
      if (before || !after) continue;
      const messageHistory = this.#findHistory(after.account, after.messageId);
      this.assertHolds(
        messageHistory?.ended === "failed" && messageHistory.dlqId === after.id,
        `a dead letter is a message that failed: ${after.id}`,
      );
      if (messageHistory) messageHistory.deadLetters++;
    }
  }

  /** Whoever waits in a line stands in one that is looked at. */
  #checkHostWaitlists(changes: Changes): void {
    const { hostWaitlists: waitlists } = this.#storage.tables;
    const lanes = [
      ...changes.messages.flatMap(({ before, after }) => after ?? before ?? []),
      ...changes.hostWaitlists.flatMap(({ before, after }) => after ?? before ?? []),
    ];
    for (const { account, host } of lanes) {
      const held = this.#held.get(laneName(account, host))?.size ?? 0;
      this.assertHolds(held === 0 || waitlists.has(`${account}\n${host}`), `held messages have a line: ${held} to ${host}`);
    }
  }

  /** No schedule is forgotten. It may have to wait for a node that has a hand free. */
  checkSchedules(): void {
    for (const { id, dueAt } of this.#storage.tables.schedules.values()) {
      this.assertHolds(
        (dueAt ?? Infinity) > this.#virtualTime.now - 300_000,
        `schedules fire when they are due: ${id} was due at ${dueAt}`,
      );
    }
  }

  /** Hours after the last trouble: whoever waits in line does so because of somebody who is on the way, or by the will of people. */
  checkHeldBack(): void {
    for (const state of this.#storage.tables.messages.values()) {
      this.assertHolds(this.#isHeldBack(state), `nobody waits in a line that is open: ${state.id} in ${state.waitlist}`);
    }
  }

  #isHeldBack({ account, waitlist }: MessageState): boolean {
    const { limiters, queueSlots, messages } = this.#storage.tables;
    const limiter = limiters.get(`${account}\n${waitlist}`);
    if (!limiter) return waitlist === null || waitlist.startsWith("capacity:");
    const { paused, rate, period, running, waitingDownstream = 0, windowStart, windowUsed } = limiter;
    const isWindowFull = rate !== null && windowUsed >= rate && this.#virtualTime.now < windowStart + period;
    if (paused || isWindowFull) return true;
    if (/^(key|account|endpoint):/.test(waitlist ?? "")) return running + waitingDownstream > 0;
    const taken = new Set(
      [...queueSlots.values()].flatMap((slot) => (slot.account === account && `queue:${slot.queue}` === waitlist ? slot.id : [])),
    );
    return [...messages.values()].some((one) => one.slot !== null && taken.has(one.slot) && this.#isHeldBack(one));
  }

  /** When all is quiet: nothing is left to do. */
  checkQuiet(): void {
    for (const messageHistory of this.messageHistories.values()) messageHistory.checkEnd();
    const { tables } = this.#storage;
    const { messages, hostWaitlists: waitlists } = tables;
    this.#limiters.checkQuiet({ tables, assertHolds: this.assertHolds });
    this.runs.checkQuiet(tables);
    this.assertHolds(messages.size === 0, `every message ends: ${messages.size} have not`);
    this.assertHolds(waitlists.size === 0, `a line ends with its last message: ${waitlists.size} have not`);
  }

  /** When everything is past its time: nothing is left. */
  checkEmpty(): void {
    checkEmpty(this.#storage.tables, this.assertHolds);
  }
}

type Creation = { input: MessageInput | undefined; retried: boolean; changedWaitlists: ReadonlySet<string> };
