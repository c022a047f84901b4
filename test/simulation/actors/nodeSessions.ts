import assert from "node:assert/strict";
import type {
  SessionSnapshot,
  NodeSession,
  SessionHistory,
} from "../../../src/engine/core/cluster/takeover.ts";
import { hasOtherNodes, recordTakeover, observeSessions } from "../../../src/engine/core/cluster/takeover.ts";
import type { SessionLease } from "../../../src/engine/store/store.ts";
import type { Storage } from "../storage/storage.ts";
import type { VirtualTime } from "../virtualTime.ts";

const second = 1000;

/**
 * The session leases that a database shows to all nodes. Nodes that look are woken when there is something to
 * see, because an idle cluster must sleep.
 */
export class SharedSessions {
  readonly #storage: Storage;
  readonly #sessions = new Map<string, NodeSession & { isAlive: boolean }>();
  readonly #watchers = new Set<() => void>();
  #restarts = 0;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /**
   * Starts a session. Nodes that start together do not wait for the storage: which one a real database
   * answers first does not depend on the seed. Virtual time stands still until the session is stored.
   */
  async take(node: string): Promise<number> {
    const session = (this.#sessions.get(node)?.session ?? 0) + 1;
    void this.#storage
      .beginSession(node)
      .then((started) => assert.equal(started, session, `session of ${node}`));
    await Promise.resolve();
    this.#change({ node, session, isAlive: true });
    return session;
  }

  /** Ends a session, unless it is not the latest one of its node. */
  release(node: string, session: number): void {
    if (this.#sessions.get(node)?.session === session) this.#change({ node, session, isAlive: false });
  }

  /** Restarts the database, after which earlier observations do not count. */
  restart(): void {
    this.#restarts++;
  }

  look(from: string, at: number): SessionSnapshot {
    const others = [...this.#sessions.values()].filter(({ node }) => node !== from);
    return { server: `run ${this.#restarts}`, sessions: others, at };
  }

  onChange(listener: () => void): () => void {
    this.#watchers.add(listener);
    return () => this.#watchers.delete(listener);
  }

  #change(row: NodeSession & { isAlive: boolean }): void {
    this.#sessions.set(row.node, row);
    for (const listener of this.#watchers) listener();
  }
}

type SessionOptions = {
  node: string;
  virtualTime: VirtualTime;
  holds: SharedSessions;
  takeOver(session: NodeSession): Promise<void>;
};

/** The session lease of one node, which looks at the others once a second while there is something to see. */
export class SimulatedNodeSession implements SessionLease {
  readonly #options: SessionOptions;
  readonly #listeners = new Set<() => void>();
  #session: number | null = null;
  #isAlive = true;
  #lostFor = 0;
  #seen: SessionHistory | null = null;
  #lookCount = 0;
  #isLooking = false;
  #forget: () => void = () => undefined;

  constructor(parts: SessionOptions) {
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
    this.#session = await holds.take(node);
    this.#seen = null;
    this.#forget();
    this.#forget = holds.onChange(() => this.#watch());
    this.#watch();
    this.#set(true);
  }

  /**
   * Breaks the connection. The node notices after `unheard` milliseconds, and has a new session `back`
   * milliseconds later.
   */
  lose(back: number, unheard: number): void {
    const { node, virtualTime } = this.#options;
    if (this.#session === null) return;
    const others = hasOtherNodes(this.#seen);
    virtualTime.note(
      `${node} loses its session, hears of it in ${unheard} ms, and is back ${back} ms later` +
        (others ? "" : "; it has seen no other node"),
    );
    this.end();
    const hear = (): void => {
      this.#lostFor = unheard;
      if (others) this.#set(false);
      virtualTime.after(back, { owner: node, what: "session" }, () => void this.take());
    };
    if (unheard === 0) hear();
    else virtualTime.after(unheard, { owner: node, what: "loss" }, hear);
  }

  /** Ends the session. */
  end(): void {
    const { node, holds } = this.#options;
    if (this.#session !== null) holds.release(node, this.#session);
    this.#session = null;
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
    if (this.#session === null) return;
    const looked = observeSessions(this.#seen, holds.look(node, virtualTime.now));
    this.#seen = looked.watch;
    const note = (session: NodeSession): void =>
      void (this.#seen &&= recordTakeover(this.#seen, session, virtualTime.now));
    for (const session of looked.gone)
      void takeOver(session).then(
        () => note(session),
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
