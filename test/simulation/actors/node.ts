import type { CommandName, CommandInput } from "../../../src/engine/store/catalog/commands.ts";
import { createIdGenerator } from "../../../src/engine/core/values/ids.ts";
import type { Delivery } from "../../../src/engine/core/model/delivery.ts";
import type { Outcome } from "../../../src/engine/core/model/attempt.ts";
import { parseHost } from "../../../src/engine/core/values/url.ts";
import type { Settled } from "../../../src/engine/core/attempts/applyOutcome.ts";
import type { NodeMembership } from "../../../src/engine/core/cluster/takeover.ts";
import { Dispatcher } from "../../../src/engine/delivery/dispatcher.ts";
import {
  MaintenanceScheduler,
  createPromptRetentionTask,
  createRetentionTask,
} from "../../../src/engine/upkeep/scheduler.ts";
import { createSpendingDuty } from "../../../src/engine/upkeep/meterSpending.ts";
import { createSelfCheckTask } from "../../../src/operations/selfCheck/task.ts";
import { createStorageTask } from "../../../src/engine/upkeep/weighStorage.ts";
import { createTrimmingTask } from "../../../src/engine/upkeep/trimHistory.ts";
import { createGroupCommitStore } from "../../../src/engine/store/batch/groupCommit.ts";
import { withAuditActor } from "../../../src/engine/store/auditActor.ts";
import type { BatchResult, RunBatch, Store } from "../../../src/engine/store/store.ts";
import { Unavailable } from "../../../src/engine/store/layout/storageErrors.ts";
import { prices } from "../checkers/budgets.ts";
import type { RandomSource } from "../randomSource.ts";
import { toOutcome } from "./destinations.ts";
import { isWorkflow } from "./programs.ts";
import { NodeJobs } from "../../operations/simulated.ts";
import { SimulatedMembership } from "./memberships.ts";
import type { Cluster } from "../cluster.ts";
import type { ConnectionLoss, NodeStorage } from "../storage/storage.ts";
import { UnreportedBatch } from "../storage/storage.ts";
import { NodeClock } from "../virtualTime.ts";
import { withSentBody } from "../../sentBody.ts";

/** How often nodes look for changes that were not signalled to them, in milliseconds. */
const pollInterval = 30_000;

/** One process: a real dispatcher and real timers on a simulated connection to the storage. */
export class SimulatedNode {
  readonly id: string;
  readonly clock: NodeClock;
  readonly store: Store;
  readonly dispatcher: Dispatcher;
  /** Null: there are no jobs in this simulation. */
  readonly jobs: NodeJobs | null;
  /** Clients send no more requests to this node. */
  closed = false;
  /** A fault of its storage or its outcomes may have left a lease behind. */
  harmed = false;
  /** Until then the node cannot reach the storage. */
  cutOffUntil = 0;
  readonly #cluster: Cluster;
  readonly #storage: NodeStorage;
  readonly #timers: MaintenanceScheduler;
  readonly #membership: SimulatedMembership | null;
  readonly #asked = new Set<Promise<unknown>>();
  readonly #listeners = new Set<(at: number) => void>();
  #dead = false;

  /** Whether it was killed. */
  get isDead(): boolean {
    return this.#dead;
  }

  constructor(cluster: Cluster, id: string, clockOffset: number) {
    const { virtualTime } = cluster;
    this.id = id;
    this.#cluster = cluster;
    this.clock = new NodeClock(virtualTime, id);
    this.clock.clockOffset = clockOffset;
    const random = (): number => virtualTime.random.next();
    const way = cluster.storage.open({
      node: id,
      now: () => virtualTime.now,
      random,
      newId: createIdGenerator(random),
    });
    this.#storage = way;
    this.store = createGroupCommitStore({
      ...way,
      runBatch: this.#unreliable(),
      nextDueAt: () => this.#read(() => way.nextDueAt()),
      read: {
        ...way.read,
        accounts: () => this.#read(() => way.read.accounts()),
        nextExpiryAt: (...of) => this.#read(() => way.read.nextExpiryAt(...of)),
        storedBytes: (...of) => this.#read(() => way.read.storedBytes(...of)),
        oldestDue: () => this.#read(() => way.read.oldestDue()),
        suspects: (range) => this.#read(() => way.read.suspects(range)),
        findOverLimit: (...of) => this.#read(() => way.read.findOverLimit(...of)),
      },
      forgetBefore: (time) => this.#read(async () => way.forgetBefore?.(time)),
      onOtherNodesDue: (listener) => this.#listeners.add(listener),
    });
    const failure = (what: string, error: unknown): void =>
      virtualTime.note(`${id} trouble: ${what}: ${String(error)}`);
    this.#membership =
      cluster.holds &&
      new SimulatedMembership({
        node: id,
        virtualTime,
        holds: cluster.holds,
        takeOver: (membership) => this.#takeOver(membership),
      });
    // A node that regains its membership looks for due messages itself.
    this.#membership?.onChange(() => void cluster.checker.idleClaims.delete(id));
    this.dispatcher = new Dispatcher({
      store: {
        ...this.store,
        ...(this.#membership && { upkeep: { ...this.store.upkeep, membership: this.#membership } }),
        execute: this.#executeUnreliably(),
      },
      deliver: (delivery) => {
        const end = new AbortController();
        return { outcome: this.#deliver(withSentBody(delivery), end.signal), abort: () => end.abort() };
      },
      clock: this.clock,
      log: {
        attempt: ({ message, attempt }, { status }, became) =>
          virtualTime.note(`${id} ${message.id} #${attempt} ${status} → ${became}`),
        failure,
      },
      capacity: cluster.capacity,
      pulling: { region: "virtual", newId: () => "jwt_1", isShared: true },
    });
    const { clock, store } = this;
    const read = <T>(run: () => Promise<T>): Promise<T> => this.#read(run);
    this.jobs = cluster.hasJobs
      ? new NodeJobs({ ...{ cluster, node: id, clock, store, read }, logFailure: failure })
      : null;
    this.#timers = new MaintenanceScheduler({
      tasks: [
        createRetentionTask({ store, clock, retention: cluster.retention }),
        createPromptRetentionTask({ store, clock, retention: cluster.retention }),
        createTrimmingTask({ store, clock }),
        createSpendingDuty({ store, clock, prices }),
        createSelfCheckTask({
          store,
          clock,
          sender: this.dispatcher,
          onRepair: (repaired) =>
            cluster.checker.assertHolds(false, `nothing needs repair: ${JSON.stringify(repaired)}`),
        }),
        ...(cluster.quota === null ? [] : [createStorageTask({ store, clock })]),
      ],
      clock,
      logFailure: failure,
    });
  }

  /** Starts the node. `alone`: no other node can be alive, so all leases are due now. */
  async start(alone: boolean): Promise<void> {
    await this.#membership?.take();
    if (alone) await this.store.execute("reclaim", { node: this.id, limit: 10_000 }).catch(() => undefined);
    this.dispatcher.start();
    this.#timers.start();
    this.jobs?.start();
  }

  /** Stops gracefully: responds to its clients, and finishes or gives back what it is sending. */
  async stop(grace: number): Promise<void> {
    this.closed = true;
    await Promise.allSettled([...this.#asked]);
    await this.dispatcher.stop(grace);
    await this.jobs?.stop();
    await this.#timers.stop();
    await this.store.close();
    this.#membership?.end();
    this.#cluster.checker.nodeStopped(this.id, this.harmed);
    this.#cluster.virtualTime.note(`${this.id} stopped`);
  }

  /** Kills the node. Nothing that it does afterwards is visible. */
  die(): void {
    this.#dead = true;
    this.closed = true;
    this.#cluster.virtualTime.forget(this.id);
    this.#cluster.checker.requests.died(this.id);
    this.#listeners.clear();
    this.#membership?.end();
    void this.#storage.close();
  }

  /** Disconnects the node from its storage for some time. */
  disconnect(until: number): void {
    this.cutOffUntil = until;
    this.#storage.hangUp?.();
  }

  /**
   * Ends the node's membership. Other nodes notice at once, this node after `unheard` milliseconds. A new
   * membership begins after `back` milliseconds.
   */
  loseMembership(back: number, unheard: number): void {
    this.harmed = true;
    this.#membership?.lose(back, unheard);
  }

  async #takeOver(membership: NodeMembership): Promise<void> {
    const { reclaimed } = await this.store.execute("takeOver", {
      ...membership,
      now: this.#cluster.virtualTime.now,
      limit: 1_000,
    });
    this.#cluster.virtualTime.note(`${this.id} takes over ${reclaimed} of ${membership.node}`);
  }

  /** Sends a client request to this node. */
  ask<T>(request: (store: Store) => Promise<T>): Promise<T> {
    const answer = request(withAuditActor(this.store, this.#cluster.checker.accounts.audit.newActor()));
    this.#asked.add(answer);
    const forget = (): void => void this.#asked.delete(answer);
    answer.then(forget, forget);
    return answer;
  }

  receiveSignal(at: number): void {
    for (const listener of this.#listeners) listener(at);
  }

  #wait(delay: number, what: string): Promise<void> {
    return this.#cluster.virtualTime.wait(delay, { owner: this.id, what });
  }

  /** Returns a `runBatch` that takes time and may fail: before the commit, during it, or after it. */
  #unreliable(): RunBatch {
    const { virtualTime, faults } = this.#cluster;
    return async (calls, capacity) => {
      await this.#wait(virtualTime.random.integerBetween(1, 5), "commit");
      const names = calls.map(({ name }) => name).join(" ");
      if (virtualTime.now < this.cutOffUntil || virtualTime.random.isHit(faults.refusedBatch)) {
        this.harmed = true;
        virtualTime.note(`${this.id} refused: ${names}`);
        throw new Error("storage: refused");
      }
      const result = await this.#commit(calls, capacity);
      if (result.dueAt !== null) this.#cluster.signalWork(this.id, result.dueAt);
      await this.#wait(virtualTime.random.integerBetween(0, 5), "answer");
      if (!virtualTime.random.isHit(faults.lostAnswer)) return result;
      this.harmed = true;
      virtualTime.note(`${this.id} answer lost: ${names}`);
      const Kind = virtualTime.random.of([Error, Unavailable]);
      throw new Kind("storage: the answer was lost");
    };
  }

  /** Commits a batch. It never returns if the node dies during it. */
  async #commit(...[calls, capacity]: Parameters<RunBatch>): Promise<BatchResult> {
    const { virtualTime, checker, faults, meetings } = this.#cluster;
    const names = calls.map(({ name }) => name).join(" ");
    const loss = virtualTime.random.isHit(faults.lostConnection) ? pickLoss(virtualTime.random) : null;
    if (loss) {
      this.harmed = true;
      virtualTime.note(`${this.id} loses its connection ${JSON.stringify(loss)}: ${names}`);
    }
    const run = async (): Promise<BatchResult | null> => {
      const result = await this.#storage.runBatch(calls, capacity, loss).catch((error: unknown) => {
        if (error instanceof UnreportedBatch) return error.result;
        if (loss?.dies) return null;
        throw error;
      });
      if (!result) return null;
      const leased = result.deliveries.map(({ message }) => message.id).join(" ");
      virtualTime.note(`${this.id} commit: ${names} | free ${capacity.free} | leased ${leased}`);
      const deliveries = result.deliveries.map(withSentBody);
      const rowsMet = this.#storage.rowsMet?.();
      await checker.committed({ node: this.id, calls, result: { ...result, deliveries }, capacity, rowsMet });
      if (calls.some(({ name }) => name === "createJob")) this.#cluster.lookForJobs();
      return result;
    };
    const task = { node: this.id, isAlive: () => !this.#dead, run };
    const stored = await (loss ? meetings.inTurn(run) : meetings.meet(task));
    if (stored && loss?.at !== "stored") return stored;
    if (stored) this.#delaySignal(stored);
    if (!loss?.dies) throw new Unavailable("storage: the connection was lost");
    this.#cluster.kill(this, "in the middle of a batch");
    return new Promise(() => undefined);
  }

  /**
   * Delays the signal of a commit without a response: the nodes, including this one, find it when they look
   * themselves.
   */
  #delaySignal({ dueAt }: BatchResult): void {
    if (dueAt === null) return;
    this.#cluster.virtualTime.after(pollInterval, { owner: "world", what: "look" }, () =>
      this.#cluster.signalWork("nobody", dueAt),
    );
  }

  async #read<T>(run: () => Promise<T>): Promise<T> {
    await this.#wait(this.#cluster.virtualTime.random.integerBetween(1, 2), "read");
    if (this.#cluster.virtualTime.now < this.cutOffUntil) throw new Error("storage: not reached");
    return this.#cluster.meetings.inTurn(run);
  }

  /** Returns an `execute` that loses, doubles or delays outcomes, and delays renewals. */
  #executeUnreliably(): Store["execute"] {
    const { execute } = this.store;
    const settle = async (outcome: CommandInput<"settle">): Promise<Settled> => {
      const { virtualTime, faults } = this.#cluster;
      if (virtualTime.random.isHit(faults.lostReport)) {
        this.harmed = true;
        virtualTime.note(`${this.id} report lost: ${outcome.messageId} #${outcome.attempt}`);
        return new Promise(() => undefined);
      }
      if (virtualTime.random.isHit(faults.lateReport)) {
        this.harmed = true;
        await this.#wait(virtualTime.random.integerBetween(1_000, 70_000), "late report");
      }
      if (virtualTime.random.isHit(faults.doubledReport)) {
        const again = virtualTime.random.of([0, 1, 10, 20_000, 50_000]);
        void this.#wait(again, "doubled report").then(() =>
          execute("settle", outcome).catch(() => undefined),
        );
      }
      return execute("settle", outcome);
    };
    const renew = async (held: CommandInput<"renew">): Promise<unknown> => {
      const { virtualTime, faults } = this.#cluster;
      if (virtualTime.random.isHit(3 * faults.lateReport)) {
        this.harmed = true;
        await this.#wait(virtualTime.random.integerBetween(1_000, 70_000), "late renewal");
      }
      return execute("renew", held);
    };
    const unreliable = (name: CommandName, input: never): Promise<unknown> => {
      if (name === "settle") return settle(input);
      return name === "renew" ? renew(input) : execute(name, input);
    };
    return unreliable as Store["execute"];
  }

  #deliver(delivery: Delivery, signal: AbortSignal): Promise<Outcome> {
    const { virtualTime, destinations, checker } = this.#cluster;
    // A dead process sends nothing.
    if (this.#dead) return new Promise(() => undefined);
    const lane = `${delivery.message.account} ${parseHost(delivery.message.url)}`;
    const { deliveries } = this.dispatcher;
    // A call that has waited for the end of another one is among them.
    const isCounted = deliveries
      .list()
      .some(
        (one) => one.delivery.message.id === delivery.message.id && one.delivery.attempt === delivery.attempt,
      );
    const running = deliveries.count + (isCounted ? 0 : 1);
    checker.deliveryStarted({ node: this.id, delivery, lane, running });
    if (isWorkflow(delivery.message.url)) return this.#callWorkflow(delivery, signal);
    const { receivers } = this.#cluster;
    const reacted = destinations.react(delivery, virtualTime.now);
    const reaction = receivers?.respond(delivery, reacted) ?? reacted;
    if (reaction.kills)
      virtualTime.after(1, { owner: "world", what: "death" }, () =>
        this.#cluster.kill(this, `by ${delivery.message.id}`),
      );
    const { after, outcome } = toOutcome(delivery, reaction);
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver) return;
        isOver = true;
        checker.deliveryEnded(delivery);
        resolve(outcome);
      };
      const callOff = virtualTime.after(after, { owner: this.id, what: "answer of a destination" }, () =>
        end(outcome),
      );
      signal.addEventListener("abort", () => {
        callOff();
        end(toOutcome(delivery, "aborted").outcome);
      });
    });
  }

  /** Calls an endpoint, which does its work even if the node stops listening. */
  #callWorkflow(delivery: Delivery, signal: AbortSignal): Promise<Outcome> {
    const { virtualTime, endpoints, checker } = this.#cluster;
    const started = virtualTime.now;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver || this.#dead) return;
        isOver = true;
        checker.deliveryEnded(delivery);
        resolve(outcome);
      };
      const late = toOutcome(delivery, {
        after: Infinity,
        status: null,
        headers: [],
        body: "",
        error: null,
        kills: false,
      });
      virtualTime.after(late.after, { owner: this.id, what: "answer of a destination" }, () =>
        end(late.outcome),
      );
      signal.addEventListener("abort", () => end(toOutcome(delivery, "aborted").outcome));
      void endpoints.respond(delivery).then((answer) => {
        const error = answer.status === null ? "connection reset by peer" : null;
        end(
          toOutcome(delivery, { after: virtualTime.now - started, ...answer, error, kills: false }).outcome,
        );
      });
    });
  }
}

const pickLoss = (random: RandomSource): ConnectionLoss => ({
  at: random.of([random.integerBetween(0, 4), random.integerBetween(0, 20), "unstored", "stored"]),
  dies: random.isHit(0.3),
});
