import assert from "node:assert/strict";
import type {
  MembershipSnapshot,
  NodeMembership,
  MembershipHistory,
} from "../../../src/engine/core/cluster/takeover.ts";
import {
  hasOtherNodes,
  recordTakeover,
  observeMemberships,
} from "../../../src/engine/core/cluster/takeover.ts";
import type { Membership } from "../../../src/engine/store/store.ts";
import type { Storage } from "../storage/storage.ts";
import type { VirtualTime } from "../virtualTime.ts";

const second = 1000;

/**
 * The memberships that a database shows to all nodes. Nodes that look are woken when there is something to
 * see, because an idle cluster must sleep.
 */
export class SharedMemberships {
  readonly #storage: Storage;
  readonly #memberships = new Map<string, NodeMembership & { isAlive: boolean }>();
  readonly #watchers = new Set<() => void>();
  #restarts = 0;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /**
   * Starts a membership. Nodes that start together do not wait for the storage: which one a real database
   * answers first does not depend on the seed. Virtual time stands still until the membership is stored.
   */
  async take(node: string): Promise<number> {
    const membership = (this.#memberships.get(node)?.membership ?? 0) + 1;
    void this.#storage
      .beginMembership(node)
      .then((started) => assert.equal(started, membership, `membership of ${node}`));
    await Promise.resolve();
    this.#change({ node, membership, isAlive: true });
    return membership;
  }

  /** Ends a membership, unless it is not the latest one of its node. */
  release(node: string, membership: number): void {
    if (this.#memberships.get(node)?.membership === membership)
      this.#change({ node, membership, isAlive: false });
  }

  /** Restarts the database, after which earlier observations do not count. */
  restart(): void {
    this.#restarts++;
  }

  look(from: string, at: number): MembershipSnapshot {
    const others = [...this.#memberships.values()].filter(({ node }) => node !== from);
    return { server: `run ${this.#restarts}`, memberships: others, at };
  }

  onChange(listener: () => void): () => void {
    this.#watchers.add(listener);
    return () => this.#watchers.delete(listener);
  }

  #change(row: NodeMembership & { isAlive: boolean }): void {
    this.#memberships.set(row.node, row);
    for (const listener of this.#watchers) listener();
  }
}

type MembershipOptions = {
  node: string;
  virtualTime: VirtualTime;
  holds: SharedMemberships;
  takeOver(membership: NodeMembership): Promise<void>;
};

/** The membership of one node, which looks at the others once a second while there is something to see. */
export class SimulatedMembership implements Membership {
  readonly #options: MembershipOptions;
  readonly #listeners = new Set<() => void>();
  #membership: number | null = null;
  #isAlive = true;
  #lostFor = 0;
  #seen: MembershipHistory | null = null;
  #lookCount = 0;
  #isLooking = false;
  #forget: () => void = () => undefined;

  constructor(parts: MembershipOptions) {
    this.#options = parts;
  }

  isAlive(): boolean {
    return this.#isAlive;
  }

  lostFor(): number {
    return this.#lostFor;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async take(): Promise<void> {
    const { node, holds } = this.#options;
    this.#membership = await holds.take(node);
    this.#seen = null;
    this.#forget();
    this.#forget = holds.onChange(() => this.#watch());
    this.#watch();
    this.#set(true);
  }

  /**
   * Breaks the connection. The node notices after `unheard` milliseconds, and has a new membership `back`
   * milliseconds later.
   */
  lose(back: number, unheard: number): void {
    const { node, virtualTime } = this.#options;
    if (this.#membership === null) return;
    const others = hasOtherNodes(this.#seen);
    virtualTime.note(
      `${node} loses its membership, hears of it in ${unheard} ms, and is back ${back} ms later` +
        (others ? "" : "; it has seen no other node"),
    );
    this.end();
    const hear = (): void => {
      this.#lostFor = unheard;
      if (others) this.#set(false);
      virtualTime.after(back, { owner: node, what: "membership" }, () => void this.take());
    };
    if (unheard === 0) hear();
    else virtualTime.after(unheard, { owner: node, what: "loss" }, hear);
  }

  /** Ends the membership. */
  end(): void {
    const { node, holds } = this.#options;
    if (this.#membership !== null) holds.release(node, this.#membership);
    this.#membership = null;
    this.#forget();
  }

  /** Looks a few times, once a second, after something has changed. */
  #watch(): void {
    this.#lookCount = 5;
    if (this.#isLooking) return;
    this.#isLooking = true;
    const { node, virtualTime } = this.#options;
    virtualTime.after(
      virtualTime.random.integerBetween(1, second),
      { owner: node, what: "look at nodes" },
      () => this.#look(),
    );
  }

  #look(): void {
    const { node, virtualTime, holds, takeOver } = this.#options;
    this.#isLooking = false;
    if (this.#membership === null) return;
    const looked = observeMemberships(this.#seen, holds.look(node, virtualTime.now));
    this.#seen = looked.watch;
    const note = (membership: NodeMembership): void =>
      void (this.#seen &&= recordTakeover(this.#seen, membership, virtualTime.now));
    for (const membership of looked.gone)
      void takeOver(membership).then(
        () => note(membership),
        () => undefined,
      );
    if (--this.#lookCount <= 0) return;
    this.#isLooking = true;
    virtualTime.after(second, { owner: node, what: "look at nodes" }, () => this.#look());
  }

  #set(isAlive: boolean): void {
    if (this.#isAlive === isAlive) return;
    this.#isAlive = isAlive;
    for (const listener of this.#listeners) listener();
  }
}
