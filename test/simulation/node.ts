import type { CommandName, InputOf } from "../../src/core/commands/index.ts";
import { idMaker } from "../../src/core/values/ids.ts";
import type { Delivery, Outcome } from "../../src/core/model/message.ts";
import { hostOf } from "../../src/core/values/url.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Settled } from "../../src/core/commands/settle.ts";
import type { Session } from "../../src/core/nodes/takeover.ts";
import { Dispatcher } from "../../src/delivery/dispatcher.ts";
import { Timers, promptRetentionDuty, retentionDuty } from "../../src/maintenance/scheduler.ts";
import { spendingDuty } from "../../src/maintenance/meterSpending.ts";
import { storageDuty } from "../../src/maintenance/storage.ts";
import { trimmingDuty } from "../../src/maintenance/trimHistory.ts";
import { groupCommit } from "../../src/store/batch/groupCommit.ts";
import { storeFor } from "../../src/store/audited.ts";
import type { BatchResult, RunBatch, Store } from "../../src/store/store.ts";
import { Unavailable } from "../../src/store/store.ts";
import { prices } from "./budgets.ts";
import type { Chance } from "./chance.ts";
import type { Destinations } from "./destinations.ts";
import { outcomeOf } from "./destinations.ts";
import type { Endpoints } from "./endpoints.ts";
import type { Judge } from "./judge.ts";
import { isWorkflow } from "./programs.ts";
import { SimulatedHold } from "./holds.ts";
import type { Holds } from "./holds.ts";
import type { Meetings } from "./meetings.ts";
import type { Loss, Storage, Way } from "./storage.ts";
import { Unheard } from "./storage.ts";
import type { World } from "./world.ts";
import { NodeClock } from "./world.ts";

/** How often what goes wrong, from 0 to 1. */
export type Faults = Record<(typeof faultNames)[number], number>;

export const faultNames = ["refusedBatch", "lostAnswer", "lostConnection", "lostReport", "doubledReport", "lateReport"] as const;

export const noFaults: Faults = { refusedBatch: 0, lostAnswer: 0, lostConnection: 0, lostReport: 0, doubledReport: 0, lateReport: 0 };

/** When nodes look by themselves for what was stored and nobody told them of. */
const ownLook = 30_000;

export type NodeHands = { total: number; perHost: number; bytes: { total: number; perBatch: number } };

/** What all nodes share. */
export type Broker = {
  world: World;
  storage: Storage;
  destinations: Destinations;
  endpoints: Endpoints;
  judge: Judge;
  retention: Retention;
  faults: Faults;
  hands: NodeHands;
  meetings: Meetings;
  /** Bytes that each account may store. Null: nobody looks at them. */
  quota: number | null;
  /** Null: leases end by time alone. */
  holds: Holds | null;
  /** Tells every node but this one what became due. */
  tell(from: string, at: number): void;
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
  readonly #broker: Broker;
  readonly #way: Way;
  readonly #timers: Timers;
  readonly #hold: SimulatedHold | null;
  readonly #asked = new Set<Promise<unknown>>();
  readonly #listeners = new Set<(at: number) => void>();
  #dead = false;

  constructor(broker: Broker, id: string, ahead: number) {
    const { world } = broker;
    this.id = id;
    this.#broker = broker;
    this.clock = new NodeClock(world, id);
    this.clock.ahead = ahead;
    const random = (): number => world.chance.next();
    const way = broker.storage.open({ node: id, now: () => world.now, random, newId: idMaker(random) });
    this.#way = way;
    this.store = groupCommit({
      ...way,
      runBatch: this.#unreliable(),
      nextDueAt: () => this.#read(() => way.nextDueAt()),
      read: {
        ...way.read,
        accounts: () => this.#read(() => way.read.accounts()),
        nextExpiryAt: (...of) => this.#read(() => way.read.nextExpiryAt(...of)),
        storedBytes: (...of) => this.#read(() => way.read.storedBytes(...of)),
        tooMany: (...of) => this.#read(() => way.read.tooMany(...of)),
      },
      forgetBefore: (time) => this.#read(async () => way.forgetBefore?.(time)),
      hearOthers: (listener) => this.#listeners.add(listener),
    });
    const trouble = (what: string, error: unknown): void => world.note(`${id} trouble: ${what}: ${String(error)}`);
    this.#hold =
      broker.holds && new SimulatedHold({ node: id, world, holds: broker.holds, takeOver: (session) => this.#takeOver(session) });
    // A node that has its hold again looks for itself.
    this.#hold?.onChange(() => void broker.judge.idleClaims.delete(id));
    this.dispatcher = new Dispatcher({
      store: { ...this.store, ...(this.#hold && { hold: this.#hold }), execute: this.#executeUnreliably() },
      deliver: (delivery) => {
        const end = new AbortController();
        return { outcome: this.#deliver(delivery, end.signal), abort: () => end.abort() };
      },
      clock: this.clock,
      log: {
        attempt: ({ message, attempt }, { status }, became) => world.note(`${id} ${message.id} #${attempt} ${status} → ${became}`),
        trouble,
      },
      hands: broker.hands,
    });
    const { clock, store } = this;
    this.#timers = new Timers({
      duties: [
        retentionDuty({ store, clock, retention: broker.retention }),
        promptRetentionDuty({ store, clock, retention: broker.retention }),
        trimmingDuty({ store, clock }),
        spendingDuty({ store, clock, prices }),
        ...(broker.quota === null ? [] : [storageDuty({ store, clock })]),
      ],
      clock,
      trouble,
    });
  }

  /** `alone`: no other node can be alive, so what any has leased is due now. */
  async start(alone: boolean): Promise<void> {
    await this.#hold?.take();
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
    this.#hold?.end();
    this.#broker.judge.stopped(this.id, this.harmed);
    this.#broker.world.note(`${this.id} stopped`);
  }

  /** From now on nothing that it does is seen by anyone. */
  die(): void {
    this.#dead = true;
    this.closed = true;
    this.#broker.world.forget(this.id);
    this.#broker.judge.requests.died(this.id);
    this.#listeners.clear();
    this.#hold?.end();
    void this.#way.close();
  }

  /** It does not reach its storage for a while. */
  cutOff(until: number): void {
    this.cutOffUntil = until;
    this.#way.hangUp?.();
  }

  /** Its session ends, which the others see at once, and this node after `unheard` milliseconds. `back` later it begins another one. */
  loseSession(back: number, unheard: number): void {
    this.harmed = true;
    this.#hold?.lose(back, unheard);
  }

  async #takeOver(session: Session): Promise<void> {
    const { reclaimed } = await this.store.execute("takeOver", { ...session, now: this.#broker.world.now, limit: 1_000 });
    this.#broker.world.note(`${this.id} takes over ${reclaimed} of ${session.node}`);
  }

  /** What a client asks of this node. */
  ask<T>(request: (store: Store) => Promise<T>): Promise<T> {
    const answer = request(storeFor(this.store, this.#broker.judge.accounts.audit.newActor()));
    this.#asked.add(answer);
    const forget = (): void => void this.#asked.delete(answer);
    answer.then(forget, forget);
    return answer;
  }

  hearOf(at: number): void {
    for (const listener of this.#listeners) listener(at);
  }

  #wait(delay: number, what: string): Promise<void> {
    return this.#broker.world.wait(delay, { owner: this.id, what });
  }

  /** The way to the disk and back takes time, and may fail: before anything happened, in the middle of it, or after all of it did. */
  #unreliable(): RunBatch {
    const { world, faults } = this.#broker;
    return async (calls, hands) => {
      await this.#wait(world.chance.between(1, 5), "commit");
      const names = calls.map(({ name }) => name).join(" ");
      if (world.now < this.cutOffUntil || world.chance.happens(faults.refusedBatch)) {
        this.harmed = true;
        world.note(`${this.id} refused: ${names}`);
        throw new Error("storage: refused");
      }
      const result = await this.#commit(calls, hands);
      if (result.dueAt !== null) this.#broker.tell(this.id, result.dueAt);
      await this.#wait(world.chance.between(0, 5), "answer");
      if (!world.chance.happens(faults.lostAnswer)) return result;
      this.harmed = true;
      world.note(`${this.id} answer lost: ${names}`);
      const Kind = world.chance.of([Error, Unavailable]);
      throw new Kind("storage: the answer was lost");
    };
  }

  /** Never answers when the node dies of it. */
  async #commit(...[calls, hands]: Parameters<RunBatch>): Promise<BatchResult> {
    const { world, judge, faults, meetings } = this.#broker;
    const names = calls.map(({ name }) => name).join(" ");
    const loss = world.chance.happens(faults.lostConnection) ? lossBy(world.chance) : null;
    if (loss) {
      this.harmed = true;
      world.note(`${this.id} loses its connection ${JSON.stringify(loss)}: ${names}`);
    }
    const run = async (): Promise<BatchResult | null> => {
      const result = await this.#way.runBatch(calls, hands, loss).catch((error: unknown) => {
        if (error instanceof Unheard) return error.result;
        if (loss?.dies) return null;
        throw error;
      });
      if (!result) return null;
      const leased = result.deliveries.map(({ message }) => message.id).join(" ");
      world.note(`${this.id} commit: ${names} | free ${hands.free} | leased ${leased}`);
      await judge.committed({ node: this.id, calls, result, hands });
      return result;
    };
    const errand = { node: this.id, isAlive: () => !this.#dead, run };
    const stored = await (loss ? meetings.inTurn(run) : meetings.meet(errand));
    if (stored && loss?.at !== "stored") return stored;
    if (stored) this.#tellNobody(stored);
    if (!loss?.dies) throw new Unavailable("storage: the connection was lost");
    this.#broker.kill(this, "in the middle of a batch");
    return new Promise(() => undefined);
  }

  /** What became due is found when the nodes look for themselves, this one as well. */
  #tellNobody({ dueAt }: BatchResult): void {
    if (dueAt === null) return;
    this.#broker.world.after(ownLook, { owner: "world", what: "look" }, () => this.#broker.tell("nobody", dueAt));
  }

  async #read<T>(run: () => Promise<T>): Promise<T> {
    await this.#wait(this.#broker.world.chance.between(1, 2), "read");
    if (this.#broker.world.now < this.cutOffUntil) throw new Error("storage: not reached");
    return this.#broker.meetings.inTurn(run);
  }

  /** Reports may be lost, doubled or late, and renewals late. */
  #executeUnreliably(): Store["execute"] {
    const { execute } = this.store;
    const settle = async (outcome: InputOf<"settle">): Promise<Settled> => {
      const { world, faults } = this.#broker;
      if (world.chance.happens(faults.lostReport)) {
        this.harmed = true;
        world.note(`${this.id} report lost: ${outcome.messageId} #${outcome.attempt}`);
        return new Promise(() => undefined);
      }
      if (world.chance.happens(faults.lateReport)) {
        this.harmed = true;
        await this.#wait(world.chance.between(1_000, 70_000), "late report");
      }
      if (world.chance.happens(faults.doubledReport)) {
        const again = world.chance.of([0, 1, 10, 20_000, 50_000]);
        void this.#wait(again, "doubled report").then(() => execute("settle", outcome).catch(() => undefined));
      }
      return execute("settle", outcome);
    };
    const renew = async (held: InputOf<"renew">): Promise<unknown> => {
      const { world, faults } = this.#broker;
      if (world.chance.happens(3 * faults.lateReport)) {
        this.harmed = true;
        await this.#wait(world.chance.between(1_000, 70_000), "late renewal");
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
    const { world, destinations, judge } = this.#broker;
    // The hand of a dead process does not move.
    if (this.#dead) return new Promise(() => undefined);
    const lane = `${delivery.message.account} ${hostOf(delivery.message.url)}`;
    judge.called({ node: this.id, delivery, lane, running: this.dispatcher.running + 1 });
    if (isWorkflow(delivery.message.url)) return this.#callWorkflow(delivery, signal);
    const reaction = destinations.react(delivery, world.now);
    if (reaction.kills) world.after(1, { owner: "world", what: "death" }, () => this.#broker.kill(this, `by ${delivery.message.id}`));
    const { after, outcome } = outcomeOf(delivery, reaction);
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver) return;
        isOver = true;
        judge.answered(this.id, delivery);
        resolve(outcome);
      };
      const callOff = world.after(after, { owner: this.id, what: "answer of a destination" }, () => end(outcome));
      signal.addEventListener("abort", () => {
        callOff();
        end(outcomeOf(delivery, "aborted").outcome);
      });
    });
  }

  /** The endpoint does what it does, whether anybody still listens or not. */
  #callWorkflow(delivery: Delivery, signal: AbortSignal): Promise<Outcome> {
    const { world, endpoints, judge } = this.#broker;
    const begun = world.now;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (outcome: Outcome): void => {
        if (isOver || this.#dead) return;
        isOver = true;
        judge.answered(this.id, delivery);
        resolve(outcome);
      };
      const late = outcomeOf(delivery, { after: Infinity, status: null, headers: [], body: "", error: null, kills: false });
      world.after(late.after, { owner: this.id, what: "answer of a destination" }, () => end(late.outcome));
      signal.addEventListener("abort", () => end(outcomeOf(delivery, "aborted").outcome));
      void endpoints.called(delivery).then((answer) => {
        const error = answer.status === null ? "connection reset by peer" : null;
        end(outcomeOf(delivery, { after: world.now - begun, ...answer, error, kills: false }).outcome);
      });
    });
  }
}

const lossBy = (chance: Chance): Loss => ({
  at: chance.of([chance.between(0, 4), chance.between(0, 20), "unstored", "stored"]),
  dies: chance.happens(0.3),
});
