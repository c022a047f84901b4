import { countRetries } from "../../../src/engine/core/sending/retry.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import { causeStart, runCauseStart } from "../../../src/engine/core/search/tags.ts";
import { checkBulkOutcomes } from "./bulkOutcomes.ts";
import { HandoverChecker } from "./handovers.ts";
import { HeldAttemptChecker } from "./heldAttempts.ts";
import { checkHeldMessages } from "./heldMessages.ts";
import { HostWaitlistChecker } from "./hostWaitlists.ts";
import { JobChecker } from "../../operations/simulated.ts";
import { LeaseChecker, listCommandsAbout } from "./leases.ts";
import { maxLostAttempts } from "../../../src/engine/core/values/limits.ts";
import type { MessageState } from "../../../src/engine/core/model/messageState.ts";
import type { RunProgress } from "../../../src/engine/core/model/run.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { StoredMessage, MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Retention } from "../../../src/engine/core/accounts/retention.ts";
import type { Batch, ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { listKeysMet } from "./observedBatch.ts";
import { AccountChecker } from "./accounts.ts";
import { RunningCalls } from "./runningCalls.ts";
import { AccountLimitChecker } from "./limits/accountLimits.ts";
import { LimiterChecker } from "./limits/limiters.ts";
import { DeduplicationChecker } from "./deduplication.ts";
import { MessageHistory } from "./messageHistory.ts";
import { checkEmpty, checkRemovals } from "./removals.ts";
import { RequestChecker } from "./requests.ts";
import type { NodeCapacity } from "../cluster.ts";
import { isExpectedRefusal, mapInputs, mapRetried } from "./inputsOfBatch.ts";
import { FailureCallbackChecker } from "./failureCallbacks.ts";
import { PostedStepChecker } from "./postedSteps.ts";
import { RunChecker } from "./runs.ts";
import { ScheduleChecker } from "./schedules.ts";
import { checkEndedAttempts } from "./endedAttempts.ts";
import { checkSentNow } from "./sentNow.ts";
import { UsageRecount } from "./usage.ts";
import type { Change } from "../storage/changes.ts";
import type { Storage } from "../storage/storage.ts";
import type { VirtualTime } from "../virtualTime.ts";

/**
 * Checks every batch and every call, and knows from its own records what may happen next. It sees the
 * requests and the rows, and shares no rule with `core`.
 */
export class InvariantChecker {
  readonly messageHistories = new Map<string, MessageHistory>();
  readonly #virtualTime: VirtualTime;
  readonly #storage: Storage;
  readonly #leases = new LeaseChecker();
  readonly #keys = new DeduplicationChecker();
  readonly #limiters = new LimiterChecker();
  readonly #accountLimits = new AccountLimitChecker();
  readonly accounts = new AccountChecker();
  readonly #schedules = new ScheduleChecker();
  readonly requests = new RequestChecker();
  readonly runs = new RunChecker();
  readonly jobs = new JobChecker(this.messageHistories);
  readonly postedSteps = new PostedStepChecker();
  readonly #failureCallbacks = new FailureCallbackChecker();
  readonly #usage = new UsageRecount();
  readonly #retention: Retention;
  readonly #handovers = new HandoverChecker();
  readonly #heldAttempts = new HeldAttemptChecker();
  readonly #hostWaitlists = new HostWaitlistChecker();
  readonly #totalCapacity: NodeCapacity;
  readonly #runningCalls: RunningCalls;
  /** Consecutive claims of a node that found nothing to change, since it last had its membership. */
  readonly idleClaims = new Map<string, number>();
  claims = 0;
  /** Events that a run must contain to be meaningful, besides its trace. */
  readonly happened = new Set<string>();
  /** The first broken invariant. */
  broken: string | null = null;

  constructor(observed: {
    virtualTime: VirtualTime;
    storage: Storage;
    retention: Retention;
    capacity: NodeCapacity;
  }) {
    this.#virtualTime = observed.virtualTime;
    this.#storage = observed.storage;
    this.#retention = observed.retention;
    this.#totalCapacity = observed.capacity;
    this.#runningCalls = new RunningCalls(observed.capacity);
  }

  get unfinished(): number {
    const { tables } = this.#storage;
    return tables.messages.size + tables.activeRuns.size + (this.jobs.areUnfinished(tables) ? 1 : 0);
  }

  readonly assertHolds: AssertHolds = (holds, promise) => {
    if (holds || this.broken !== null) return;
    this.broken = promise;
    this.#virtualTime.note(`BROKEN: ${promise}`);
  };

  /** Checks a batch. An error of a checker is a failure: nodes would take it for one of their storage. */
  async committed(batch: Batch): Promise<void> {
    try {
      await this.#checkBatch(batch);
    } catch (error) {
      this.assertHolds(false, `no checker fails: ${error instanceof Error ? error.stack : String(error)}`);
    }
  }

  async #checkBatch(batch: Batch): Promise<void> {
    const changes = await this.#storage.changes();
    const { now } = this.#virtualTime;
    const observed = { ...batch, changes };
    this.#runningCalls.taken(batch.result.deliveries);
    this.#countClaims(observed);
    const touched = this.#noteCreated(observed);
    for (const { before, after } of changes.log) {
      if (!after || before) continue;
      const messageHistory = this.#findHistory(after.account, after.messageId);
      if (messageHistory) touched.add(messageHistory);
      messageHistory?.log(after, now);
    }
    const { messageHistories, assertHolds } = this;
    const cover = (what: string): unknown => this.happened.add(what);
    checkSentNow(observed, { assertHolds, now, messageHistories, cover });
    checkEndedAttempts(observed, { assertHolds, messageHistories, cover });
    for (const change of changes.messages) this.#checkState(change, observed);
    this.#leases.check(observed, {
      assertHolds: this.assertHolds,
      tables: this.#storage.tables,
      now,
      bytesPerBatch: this.#totalCapacity.bytes.perBatch,
    });
    this.#checkDeadLetters(observed);
    const { tables } = this.#storage;
    this.#handovers.check(observed, now);
    const handovers = this.#handovers;
    this.#heldAttempts.check(observed, { assertHolds, tables, now, messageHistories, handovers, cover });
    for (const messageHistory of touched) messageHistory.checkCallbacks(tables);
    this.#hostWaitlists.check(changes, tables, assertHolds);
    this.#keys.check(observed, { messageHistories, now, assertHolds });
    this.#limiters.check(observed, { messageHistories, now, assertHolds, tables, cover });
    this.#accountLimits.check(observed, { assertHolds, tables, messageHistories });
    this.requests.check(observed, { assertHolds, tables, cover });
    this.accounts.check(observed, { assertHolds, tables, now, retention: this.#retention, cover });
    const isForbidden = (account: string): boolean | null =>
      this.accounts.isPublishForbidden(account, { tables, now });
    this.#schedules.check(observed, {
      now,
      assertHolds,
      tables,
      cover,
      hasSpent: isForbidden,
      retried: mapRetried(observed, messageHistories),
    });
    this.jobs.check(observed, { assertHolds, tables, now, isForbidden, cover });
    this.runs.check(observed, { assertHolds, tables, now, retention: this.#retention, cover });
    this.postedSteps.check(observed, { assertHolds, tables, cover });
    this.#failureCallbacks.check(observed, { assertHolds, cover });
    this.#usage.check(observed, { messageHistories, now, assertHolds, tables, cover });
    const retention = this.#retention;
    checkRemovals(observed, { messageHistories, assertHolds, tables, now, retention, cover });
    checkBulkOutcomes(observed, { assertHolds, tables, cover });
  }

  /** Called when a client has received the response to its publish. */
  acknowledged(results: readonly PublishResult[]): void {
    for (const result of results) {
      // A group may have no endpoints.
      const isRefused = "refused" in result && isExpectedRefusal(result);
      const all = "each" in result ? result.each : isRefused ? [] : [result];
      for (const one of all) {
        const exists = "messageId" in one && this.messageHistories.has(one.messageId);
        this.assertHolds(exists, `an acknowledged message exists: ${JSON.stringify(result)}`);
      }
    }
  }

  /**
   * Called when a node calls a destination, or gives an attempt to a puller, which holds it for the time of
   * its `lease`. `running` is the number of deliveries of the node, including this one.
   */
  deliveryStarted({
    node,
    delivery,
    lane,
    running,
    lease = null,
  }: {
    node: string;
    delivery: Delivery;
    lane: string;
    running: number;
    lease?: number | null;
  }): void {
    const { message, attempt } = delivery;
    const messageHistory = this.#findHistory(message.account, message.id);
    messageHistory?.call(attempt, this.#virtualTime.now);
    const { total } = this.#totalCapacity;
    this.assertHolds(
      running <= total,
      `deliveries do not exceed the capacity: ${node} has ${running} of ${total}`,
    );
    const { inUse, broken } = this.#runningCalls.begin(delivery, { node, lane });
    this.assertHolds(broken === null, `${broken}: ${node} calls ${lane}, uses ${JSON.stringify(inUse)}`);
    this.requests.begin(node, delivery);
    this.#handovers.begin(delivery, lease, this.assertHolds);
    this.#virtualTime.note(`${node} calls ${message.id} #${attempt} ${message.url}`);
  }

  deliveryEnded(delivery: Delivery): void {
    this.#runningCalls.end(delivery);
    this.requests.end(delivery);
  }

  /** Called when a node has stopped gracefully. */
  nodeStopped(node: string, harmed: boolean): void {
    if (harmed) return;
    for (const state of this.#storage.tables.messages.values()) {
      const leases = state.leasedBy === node && (state.dueAt ?? 0) > this.#virtualTime.now;
      this.assertHolds(!leases, `a stopped node holds no leases: ${state.id} by ${node}`);
    }
  }

  #findHistory(account: string, id: string): MessageHistory | null {
    const messageHistory = this.messageHistories.get(id) ?? null;
    const isOwn = messageHistory !== null && messageHistory.message.account === account;
    this.assertHolds(isOwn, `rows refer to messages of the same account: ${account} ${id}`);
    return messageHistory;
  }

  /**
   * Checks that claims are not repeated without need. A node may claim nothing after it was woken for a
   * message that another node has taken.
   */
  #countClaims({ node, calls, changes }: ObservedBatch): void {
    this.claims += calls.filter(({ name }) => name === "claim").length;
    if (Object.values(changes).some((list) => list.length > 0)) return this.idleClaims.clear();
    if (!calls.some(({ name }) => name === "claim")) return;
    const idle = (this.idleClaims.get(node) ?? 0) + 1;
    this.idleClaims.set(node, idle);
    this.assertHolds(idle <= 6, `no node repeats claims when nothing is due: ${node}`);
  }

  /** Checks that every new message has a stored message, a state, and a cause. */
  #noteCreated(observed: ObservedBatch): Set<MessageHistory> {
    const { changes } = observed;
    const created = new Set<MessageHistory>();
    const retried = mapRetried(observed, this.messageHistories);
    const inputs = mapInputs(observed, this.#storage.tables, this.assertHolds);
    // A batch may have looked for a waitlist before another node created it, and then counts as the earlier
    // one, because no row existed for it to lock.
    const changedWaitlists = new Set([
      ...changes.hostWaitlists
        .flatMap(({ before, after }) => [before ?? [], after ?? []].flat())
        .map(({ account, host }) => `${account}\n${host}`),
      ...listKeysMet(observed, "hostWaitlists"),
    ]);
    for (const { before, after } of changes.storedMessages) {
      if (after) {
        this.assertHolds(before === undefined, `a stored message is written once: ${after.id}`);
        created.add(
          this.#createHistory(after, {
            input: inputs.get(after.id),
            retried: retried.has(after.id),
            changedWaitlists,
          }),
        );
      }
    }
    for (const dlqId of retried.values()) {
      const isGone = changes.deadLetters.some(({ before, after }) => before?.id === dlqId && !after);
      this.assertHolds(isGone, `a retried dead letter leaves the dead-letter queue: ${dlqId}`);
    }
    for (const id of inputs.keys())
      this.assertHolds(this.messageHistories.has(id), `a message in a response is stored: ${id}`);
    return created;
  }

  #createHistory(message: StoredMessage, { input, retried, changedWaitlists }: Creation): MessageHistory {
    const { now } = this.#virtualTime;
    const isScheduled = message.scheduleId !== null && !retried;
    const isSaid = isScheduled || message.run !== undefined || (message.reportsOn !== null && !retried);
    const notBefore = input
      ? (input.notBefore ?? now + (input.delay ?? 0))
      : isSaid
        ? message.notBefore
        : now;
    const messageHistory = new MessageHistory({
      message,
      notBefore,
      assertHolds: this.assertHolds,
    });
    this.messageHistories.set(message.id, messageHistory);
    const { reportsOn } = message;
    this.assertHolds(
      retried || input !== undefined || reportsOn !== null || isSaid,
      `every message has a cause: ${message.id}`,
    );
    const state = this.#storage.tables.messages.get(`${message.account}\n${message.id}`);
    // Its run may have been cancelled in the same batch.
    const run = this.#storage.tables.runs.get(`${message.account}\n${message.run?.run}`);
    this.assertHolds(
      state !== undefined || typeof run?.endedAt === "number",
      `a new message is pending: ${message.id}`,
    );
    const lane = `${message.account}\n${new URL(message.url).host}`;
    const overtakes =
      message.startedAtOnce && this.#storage.tables.hostWaitlists.has(lane) && !changedWaitlists.has(lane);
    this.assertHolds(!overtakes, `a new message does not overtake a waitlist: ${message.id}`);
    if (reportsOn && !retried)
      this.#findHistory(message.account, reportsOn.messageId)?.noteReport(reportsOn, message);
    return messageHistory;
  }

  /** Returns the progress of a run in the calls of a message, if it has made any. */
  #findProgress({ account, id, run }: MessageState): RunProgress | undefined {
    const { runs, activeRuns } = this.#storage.tables;
    const lastCall = activeRuns.get(`${account}\n${runs.get(`${account}\n${run}`)?.runId}`)?.lastCall;
    return lastCall?.messageId === id ? lastCall.progress : undefined;
  }

  #checkState({ before, after }: Change<"messages">, observed: ObservedBatch): void {
    const row = after ?? before;
    if (!row) return;
    const messageHistory = this.#findHistory(row.account, row.id);
    this.#hostWaitlists.noteState({ before, after });
    if (!after)
      return this.assertHolds(
        messageHistory?.ended !== null,
        `no message is lost: ${row.id} was removed and has not ended`,
      );
    this.assertHolds(
      (after.state === "held") === (after.dueAt === null),
      `a held message has no due time: ${row.id}`,
    );
    const isSent = ["active", "ending", "acknowledging", "cancelling", "settled"].includes(after.state);
    this.assertHolds(isSent === (after.leasedBy !== null), `an active message is leased: ${row.id}`);
    const progressed = messageHistory?.noteProgress(this.#findProgress(after));
    const isWithinBudget =
      after.lostAttempts <= maxLostAttempts + (progressed?.lost ?? 0) &&
      countRetries(after) <= (messageHistory?.message.retries ?? 0) + (progressed?.retried ?? 0);
    this.assertHolds(isWithinBudget, `attempts do not exceed the retries: ${row.id}`);
    messageHistory?.state(before, after, {
      now: this.#virtualTime.now,
      names: listCommandsAbout(observed, row.id),
      node: observed.node,
    });
  }

  #checkDeadLetters({ changes }: ObservedBatch): void {
    for (const { before, after } of changes.deadLetters) {
      if (before || !after) continue;
      const messageHistory = this.#findHistory(after.account, after.messageId);
      this.assertHolds(
        messageHistory?.ended === "failed" && messageHistory.dlqId === after.id,
        `a dead letter belongs to a failed message: ${after.id}`,
      );
      const start = after.run ? runCauseStart : causeStart;
      const causes = after.tags.filter((tag) => tag.includes("cause:"));
      this.assertHolds(
        causes.length === 1 && causes[0]?.startsWith(start) === true && after.cause !== undefined,
        `a dead letter is in one group of failures: ${after.id}`,
      );
      if (messageHistory) messageHistory.deadLetters++;
    }
  }

  /** Checks that no schedule is forgotten. A firing may have to wait for a node with free capacity. */
  checkSchedules(): void {
    for (const { id, dueAt } of this.#storage.tables.schedules.values()) {
      this.assertHolds(
        (dueAt ?? Infinity) > this.#virtualTime.now - 300_000,
        `schedules fire when they are due: ${id} was due at ${dueAt}`,
      );
    }
  }

  /** Checks, hours after the last fault, that no message waits for an open gate. */
  checkHeldBack(): void {
    checkHeldMessages(this.#storage.tables, { now: this.#virtualTime.now, assertHolds: this.assertHolds });
  }

  /** Checks that nothing is left to do when everything has ended. */
  checkQuiet(): void {
    for (const messageHistory of this.messageHistories.values()) messageHistory.checkEnd();
    const { tables } = this.#storage;
    const { messages, hostWaitlists: waitlists } = tables;
    this.#limiters.checkQuiet({ tables, assertHolds: this.assertHolds });
    this.runs.checkQuiet(tables);
    this.jobs.checkQuiet(this.assertHolds);
    this.assertHolds(messages.size === 0, `every message ends: ${messages.size} have not`);
    this.assertHolds(
      waitlists.size === 0,
      `a waitlist ends with its last message: ${waitlists.size} have not`,
    );
  }

  /** Checks that nothing is left when all retention has ended. */
  checkEmpty(): void {
    checkEmpty(this.#storage.tables, this.assertHolds);
  }
}

type Creation = { input: MessageInput | undefined; retried: boolean; changedWaitlists: ReadonlySet<string> };

/** Returns the bytes that a delivery sends. */
