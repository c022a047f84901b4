import type { Millis } from "../../src/engine/core/values/basics.ts";
import type { AlarmClock } from "../../src/engine/clock/clock.ts";
import type { RandomSource } from "./randomSource.ts";

/** A scheduled event. It does not happen if its owner has died. */
type ScheduledEvent = { at: Millis; order: number; owner: string; what: string; run: (() => void) | null };

/** Real work that is pending, such as a query of a database, or null. */
export type PendingWork = () => Promise<unknown> | null;

/**
 * Virtual time: a queue of scheduled events. It stands still while real work is pending, so that nothing
 * depends on real time.
 */
export class VirtualTime {
  now: Millis = Date.UTC(2026, 0, 1);
  readonly random: RandomSource;
  readonly trace: string[] = [];
  #heap: ScheduledEvent[] = [];
  #order = 0;
  readonly #ended = new Set<string>();
  readonly #pendingWork: PendingWork;

  constructor(chance: RandomSource, atWork: PendingWork = () => null) {
    this.random = chance;
    this.#pendingWork = atWork;
  }

  note(text: string): void {
    this.trace.push(`${(this.now - Date.UTC(2026, 0, 1)).toString().padStart(9)} ${text}`);
  }

  /** Schedules an event. Returns a function that cancels it. */
  after(delay: Millis, of: { owner: string; what: string }, run: () => void): () => void {
    const happening: ScheduledEvent = { at: this.now + Math.max(0, delay), order: ++this.#order, ...of, run };
    push(this.#heap, happening);
    return () => {
      happening.run = null;
    };
  }

  /** Waits. The promise never resolves if the owner dies. */
  wait(delay: Millis, of: { owner: string; what: string }): Promise<void> {
    return new Promise((resolve) => this.after(delay, of, resolve));
  }

  /** Cancels all events of an owner. */
  forget(owner: string): void {
    this.#ended.add(owner);
  }

  /** Returns the names of scheduled events. */
  pending(): string[] {
    return this.#heap.filter((one) => one.run && !this.#ended.has(one.owner)).map(({ what }) => what);
  }

  /**
   * Runs the next event with everything that follows from it at once. Returns false if there is none before
   * `until`.
   */
  async step(until: Millis): Promise<boolean> {
    for (;;) {
      const [first] = this.#heap;
      if (!first || first.at > until) return false;
      pop(this.#heap);
      if (!first.run || this.#ended.has(first.owner)) continue;
      this.now = first.at;
      first.run();
      await this.settled();
      return true;
    }
  }

  /** Waits for everything that follows at once from past events. */
  async settled(): Promise<void> {
    await settled();
    for (let work = this.#pendingWork(); work; work = this.#pendingWork()) {
      await work;
      await settled();
    }
  }
}

/**
 * Waits one turn of the event loop. If only promises are pending, everything that follows from a step has
 * then happened.
 */
export const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The clock of one node. It may be wrong and jump, but sleeps for the right time. */
export class NodeClock implements AlarmClock {
  clockOffset: Millis = 0;
  readonly #virtualTime: VirtualTime;
  readonly #owner: string;

  constructor(virtualTime: VirtualTime, owner: string) {
    this.#virtualTime = virtualTime;
    this.#owner = owner;
  }

  now(): Millis {
    return this.#virtualTime.now + this.clockOffset;
  }

  alarm(delay: Millis, callback: () => void): () => void {
    return this.#virtualTime.after(delay, { owner: this.#owner, what: "alarm" }, callback);
  }

  sleep(until: Millis, wake: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const left = until - this.now();
      if (wake.aborted || left <= 0) return resolve();
      const callOff = Number.isFinite(left)
        ? this.#virtualTime.after(left, { owner: this.#owner, what: "sleep" }, end)
        : () => undefined;
      function end(): void {
        wake.removeEventListener("abort", end);
        callOff();
        resolve();
      }
      wake.addEventListener("abort", end);
    });
  }
}

const isEarlier = (a: ScheduledEvent, b: ScheduledEvent): boolean =>
  a.at < b.at || (a.at === b.at && a.order < b.order);

function push(heap: ScheduledEvent[], one: ScheduledEvent): void {
  let at = heap.push(one) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    const above = heap[parent];
    if (!above || isEarlier(above, one)) break;
    heap[at] = above;
    heap[parent] = one;
    at = parent;
  }
}

function pop(heap: ScheduledEvent[]): void {
  const last = heap.pop();
  if (!last || heap.length === 0) return;
  let at = 0;
  for (;;) {
    const left = heap[2 * at + 1];
    const right = heap[2 * at + 2];
    const child = left && right ? (isEarlier(right, left) ? right : left) : left;
    if (!child || isEarlier(last, child)) break;
    heap[at] = child;
    at = child === right ? 2 * at + 2 : 2 * at + 1;
  }
  heap[at] = last;
}
