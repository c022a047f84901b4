import type { CommandName, CommandInput } from "../../src/core/commands/index.ts";
import { createIdGenerator } from "../../src/core/values/ids.ts";
import type { Delivery, Outcome } from "../../src/core/model/message.ts";
import { parseHost } from "../../src/core/values/url.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Settled } from "../../src/core/commands/settle.ts";
import type { NodeSession } from "../../src/core/nodes/takeover.ts";
import { Dispatcher } from "../../src/delivery/dispatcher.ts";
import { MaintenanceScheduler, createPromptRetentionTask, createRetentionTask } from "../../src/maintenance/scheduler.ts";
import { createSpendingDuty } from "../../src/maintenance/meterSpending.ts";
import { createStorageTask } from "../../src/maintenance/storage.ts";
import { createTrimmingTask } from "../../src/maintenance/trimHistory.ts";
import { createGroupCommitStore } from "../../src/store/batch/groupCommit.ts";
import { withAuditActor } from "../../src/store/auditActor.ts";
import type { BatchResult, RunBatch, Store } from "../../src/store/store.ts";
import { Unavailable } from "../../src/store/store.ts";
import { prices } from "./budgets.ts";
import type { RandomSource } from "./randomSource.ts";
import type { SimulatedHosts } from "./destinations.ts";
import { toOutcome } from "./destinations.ts";
import type { Endpoints } from "./endpoints.ts";
import type { InvariantChecker } from "./invariantChecker.ts";
import { isWorkflow } from "./programs.ts";
import { SimulatedNodeSession } from "./nodeSessions.ts";
import type { SharedSessions } from "./nodeSessions.ts";
import type { BatchScheduler } from "./batchScheduler.ts";
import type { ConnectionLoss, Storage, NodeStorage } from "./storage.ts";
import { UnreportedBatch } from "./storage.ts";
import type { VirtualTime } from "./virtualTime.ts";
import { NodeClock } from "./virtualTime.ts";

/** How often what goes wrong, from 0 to 1. */
export type Faults = Record<(typeof faultNames)[number], number>;

export const faultNames = ["refusedBatch", "lostAnswer", "lostConnection", "lostReport", "doubledReport", "lateReport"] as const;

export const noFaults: Faults = { refusedBatch: 0, lostAnswer: 0, lostConnection: 0, lostReport: 0, doubledReport: 0, lateReport: 0 };

/** When nodes look by themselves for what was stored and nobody told them of. */
const pollInterval = 30_000;

export type NodeCapacity = { total: number; perHost: number; bytes: { total: number; perBatch: number } };

/** What all nodes share. */
export type Cluster = {
  virtualTime: VirtualTime;
  storage: Storage;
  destinations: SimulatedHosts;
  endpoints: Endpoints;
  checker: InvariantChecker;
  retention: Retention;
  faults: Faults;
  capacity: NodeCapacity;
  meetings: BatchScheduler;
  /** Bytes that each account may store. Null: nobody looks at them. */
  quota: number | null;
  /** Null: leases end by time alone. */
  holds: SharedSessions | null;
  /** Tells every node but this one what became due. */
  signalWork(from: string, at: number): void;
  kill(node: SimulatedNode, why: string): void;
};

/** One process: a real dispatcher and real timers over its own way into the storage. */
export class SimulatedNode {
  readonly id: string;
  readonly clock: NodeClock;
  readonly store: Store;
  readonly dispatcher: Dispatcher;
  /** Clients send it nothing any more. */
  closed = false;
  /** Something went wrong in its storage or its reports, so that a lease of it may be left behind. */
  harmed = false;
  /** Until then it cannot reach the storage. */
  cutOffUntil = 0;
  readonly #cluster: Cluster;
  readonly #storage: NodeStorage;
  readonly #timers: MaintenanceScheduler;
  readonly #nodeSession: SimulatedNodeSession | null;
  readonly #asked = new Set<Promise<unknown>>();
  readonly #listeners = new Set<(at: number) => void>();
  #dead = false;

  constructor(cluster: Cluster, id: string, clockOffset: number) {
    const { virtualTime } = cluster;
    this.id = id;
    this.#cluster = cluster;
    this.clock = new NodeClock(virtualTime, id);
    this.clock.clockOffset = clockOffset;
    const random = (): number => virtualTime.random.next();
    const way = cluster.storage.open({ node: id, now: () => virtualTime.now, random, newId: createIdGenerator(random) });
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
        findOverLimit: (...of) => this.#read(() => way.read.findOverLimit(...of)),
      },
      forgetBefore: (time) => this.#read(async () => way.forgetBefore?.(time)),
      onOtherNodesDue: (listener) => this.#listeners.add(listener),
    });
    const failure = (what: string, error: unknown): void => virtualTime.note(`${id} trouble: ${what}: ${String(error)}`);
    this.#nodeSession =
      cluster.holds &&
      new SimulatedNodeSession({ node: id, virtualTime, holds: cluster.holds, takeOver: (session) => this.#takeOver(session) });
    // A node that has its hold again looks for itself.
    this.#nodeSession?.onChange(() => void cluster.checker.idleClaims.delete(id));
    this.dispatcher = new Dispatcher({
      store: { ...this.store, ...(this.#nodeSession && { sessionLease: this.#nodeSession }), execute: this.#executeUnreliably() },
      deliver: (delivery) => {
        const end = new AbortController();
        return { outcome: this.#deliver(delivery, end.signal), abort: () => end.abort() };
      },
      clock: this.clock,
      log: {
        attempt: ({ message, attempt }, { status }, became) => virtualTime.note(`${id} ${message.id} #${attempt} ${status} → ${became}`),
        failure,
      },
      capacity: cluster.capacity,
    });
    const { clock, store } = this;
    this.#timers = new MaintenanceScheduler({
      tasks: [
        createRetentionTask({ store, clock, retention: cluster.retention }),
        createPromptRetentionTask({ store, clock, retention: cluster.retention }),
        createTrimmingTask({ store, clock }),
        createSpendingDuty({ store, clock, prices }),
        ...(cluster.quota === null ? [] : [createStorageTask({ store, clock })]),
      ],
      clock,
      logFailure: failure,
    });
  }

  /** `alone`: no other node can be alive, so what any has leased is due now. */
  async start(alone: boolean): Promise<void> {
    await this.#nodeSession?.take();
    if (alone) await this.store.execute("reclaim", { node: this.id, limit: 10_000 }).catch(() => undefined);
    this.dispatcher.start();
    this.#timers.start();
  }

  /** A graceful end: answers its clients, finishes or gives back what it is sending. */
  async stop(grace: number): Promise<void> {
    this.closed = true;
    await Promise.allSettled([...this.#asked]);
    await this.dispatcher.stop(grace);
    await this.#timers.stop();
    await this.store.close();
    this.#nodeSession?.end();
    this.#cluster.checker.nodeStopped(this.id, this.harmed);
    this.#cluster.virtualTime.note(`${this.id} stopped`);
  }

  /** From now on nothing that it does is seen by anyone. */
  die(): void {
    this.#dead = true;
    this.closed = true;
    this.#cluster.virtualTime.forget(this.id);
    this.#cluster.checker.requests.died(this.id);
    this.#listeners.clear();
    this.#nodeSession?.end();
    void this.#storage.close();
  }

  /** It does not reach its storage for a while. */
  disconnect(until: number): void {
    this.cutOffUntil = until;
    this.#storage.hangUp?.();
  }

  /** Its session ends, which the others see at once, and this node after `unheard` milliseconds. `back` later it begins another one. */
  loseSession(back: number, unheard: number): void {
    this.harmed = true;
    this.#nodeSession?.lose(back, unheard);
  }

  async #takeOver(session: NodeSession): Promise<void> {
    const { reclaimed } = await this.store.execute("takeOver", { ...session, now: this.#cluster.virtualTime.now, limit: 1_000 });
    this.#cluster.virtualTime.note(`${this.id} takes over ${reclaimed} of ${session.node}`);
  }

  /** What a client asks of this node. */
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

  /** The way to the disk and back takes time, and may fail: before anything happened, in the middle of it, or after all of it did. */
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

  /** Never answers when the node dies of it. */
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
      await checker.committed({ node: this.id, calls, result, capacity });
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

  /** What became due is found when the nodes look for themselves, this one as well. */
  #delaySignal({ dueAt }: BatchResult): void {
    if (dueAt === null) return;
    this.#cluster.virtualTime.after(pollInterval, { owner: "world", what: "look" }, () => this.#cluster.signalWork("nobody", dueAt));
  }

  async #read<T>(run: () => Promise<T>): Promise<T> {
    await this.#wait(this.#cluster.virtualTime.random.integerBetween(1, 2), "read");
    if (this.#cluster.virtualTime.now < this.cutOffUntil) throw new Error("storage: not reached");
    return this.#cluster.meetings.inTurn(run);
  }

  /** Reports may be lost, doubled or late, and renewals late. */
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
        void this.#wait(again, "doubled report").then(() => execute("settle", outcome).catch(() => undefined));
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
    // The hand of a dead process does not move.
    if (this.#dead) return new Promise(() => undefined);
    const lane = `${delivery.message.account} ${parseHost(delivery.message.url)}`;
    checker.deliveryStarted({ node: this.id, delivery, lane, running: this.dispatcher.running + 1 });
    if (isWorkflow(delivery.message.url)) return this.#callWorkflow(delivery, signal);
    const reaction = destinations.react(delivery, virtualTime.now);
    if (reaction.kills)
      virtualTime.after(1, { owner: "world", what: "death" }, () => this.#cluster.kill(this, `by ${delivery.message.id}`));
    const { after, outcome } = toOutcome(delivery, reaction);
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver) return;
        isOver = true;
        checker.deliveryEnded(this.id, delivery);
        resolve(outcome);
      };
      const callOff = virtualTime.after(after, { owner: this.id, what: "answer of a destination" }, () => end(outcome));
      signal.addEventListener("abort", () => {
        callOff();
        end(toOutcome(delivery, "aborted").outcome);
      });
    });
  }

  /** The endpoint does what it does, whether anybody still listens or not. */
  #callWorkflow(delivery: Delivery, signal: AbortSignal): Promise<Outcome> {
    const { virtualTime, endpoints, checker } = this.#cluster;
    const started = virtualTime.now;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver || this.#dead) return;
        isOver = true;
        checker.deliveryEnded(this.id, delivery);
        resolve(outcome);
      };
      const late = toOutcome(delivery, { after: Infinity, status: null, headers: [], body: "", error: null, kills: false });
      virtualTime.after(late.after, { owner: this.id, what: "answer of a destination" }, () => end(late.outcome));
      signal.addEventListener("abort", () => end(toOutcome(delivery, "aborted").outcome));
      void endpoints.respond(delivery).then((answer) => {
        const error = answer.status === null ? "connection reset by peer" : null;
        end(toOutcome(delivery, { after: virtualTime.now - started, ...answer, error, kills: false }).outcome);
      });
    });
  }
}

const pickLoss = (random: RandomSource): ConnectionLoss => ({
  at: random.of([random.integerBetween(0, 4), random.integerBetween(0, 20), "unstored", "stored"]),
  dies: random.isHit(0.3),
});
