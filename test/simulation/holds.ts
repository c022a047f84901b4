import assert from "node:assert/strict";
import type { Look, Session, Watch } from "../../src/core/nodes/takeover.ts";
import { hasOthers, taken, watch } from "../../src/core/nodes/takeover.ts";
import type { Hold } from "../../src/store/store.ts";
import type { Storage } from "./storage.ts";
import type { World } from "./world.ts";

const second = 1000;

/** The locks that a database shows to all nodes. Those that look are told when there is something to see, as a broker that is idle has to sleep. */
export class Holds {
  readonly #storage: Storage;
  readonly #sessions = new Map<string, Session & { isHeld: boolean }>();
  readonly #looking = new Set<() => void>();
  #restarts = 0;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /**
   * Nodes that start together do not wait for the storage here: which of them a real database answers first is no matter of chance that a seed
   * decides. The world stands still until the session is stored.
   */
  async take(node: string): Promise<number> {
    const session = (this.#sessions.get(node)?.session ?? 0) + 1;
    void this.#storage.beginSession(node).then((begun) => assert.equal(begun, session, `session of ${node}`));
    await Promise.resolve();
    this.#change({ node, session, isHeld: true });
    return session;
  }

  /** A session that is not the latest one of its node has ended before. */
  release(node: string, session: number): void {
    if (this.#sessions.get(node)?.session === session) this.#change({ node, session, isHeld: false });
  }

  /** What the others saw before does not count any more. */
  restart(): void {
    this.#restarts++;
  }

  look(from: string, at: number): Look {
    const others = [...this.#sessions.values()].filter(({ node }) => node !== from);
    return { server: `run ${this.#restarts}`, sessions: others, at };
  }

  onChange(listener: () => void): () => void {
    this.#looking.add(listener);
    return () => this.#looking.delete(listener);
  }

  #change(row: Session & { isHeld: boolean }): void {
    this.#sessions.set(row.node, row);
    for (const listener of this.#looking) listener();
  }
}

type Parts = { node: string; world: World; holds: Holds; takeOver(session: Session): Promise<void> };

/** The hold of one node, which looks at the others once a second while there is something to see. */
export class SimulatedHold implements Hold {
  readonly #parts: Parts;
  readonly #listeners = new Set<() => void>();
  #session: number | null = null;
  #isHeld = true;
  #lostFor = 0;
  #seen: Watch | null = null;
  #looks = 0;
  #isLooking = false;
  #forget: () => void = () => undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  isHeld(): boolean {
    return this.#isHeld;
  }

  lostFor(): number {
    return this.#lostFor;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async take(): Promise<void> {
    const { node, holds } = this.#parts;
    this.#session = await holds.take(node);
    this.#seen = null;
    this.#forget();
    this.#forget = holds.onChange(() => this.#watch());
    this.#watch();
    this.#set(true);
  }

  /** The connection breaks, of which the node hears after `unheard` milliseconds, and there is another one after `back` more. */
  lose(back: number, unheard: number): void {
    const { node, world } = this.#parts;
    if (this.#session === null) return;
    const others = hasOthers(this.#seen);
    world.note(
      `${node} loses its session, hears of it in ${unheard} ms, and is back ${back} ms later${others ? "" : "; it has seen no other node"}`,
    );
    this.end();
    const hear = (): void => {
      this.#lostFor = unheard;
      if (others) this.#set(false);
      world.after(back, { owner: node, what: "session" }, () => void this.take());
    };
    if (unheard === 0) hear();
    else world.after(unheard, { owner: node, what: "loss" }, hear);
  }

  /** There is no session any more. */
  end(): void {
    const { node, holds } = this.#parts;
    if (this.#session !== null) holds.release(node, this.#session);
    this.#session = null;
    this.#forget();
  }

  /** A few looks, a second apart, after whatever there was to see. */
  #watch(): void {
    this.#looks = 5;
    if (this.#isLooking) return;
    this.#isLooking = true;
    const { node, world } = this.#parts;
    world.after(world.chance.between(1, second), { owner: node, what: "look at nodes" }, () => this.#look());
  }

  #look(): void {
    const { node, world, holds, takeOver } = this.#parts;
    this.#isLooking = false;
    if (this.#session === null) return;
    const looked = watch(this.#seen, holds.look(node, world.now));
    this.#seen = looked.watch;
    const note = (session: Session): void => void (this.#seen &&= taken(this.#seen, session, world.now));
    for (const session of looked.gone)
      void takeOver(session).then(
        () => note(session),
        () => undefined,
      );
    if (--this.#looks <= 0) return;
    this.#isLooking = true;
    world.after(second, { owner: node, what: "look at nodes" }, () => this.#look());
  }

  #set(isHeld: boolean): void {
    if (this.#isHeld === isHeld) return;
    this.#isHeld = isHeld;
    for (const listener of this.#listeners) listener();
  }
}
