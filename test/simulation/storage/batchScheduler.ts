import type { Storage } from "./storage.ts";
import type { VirtualTime } from "../virtualTime.ts";

/** A task of a node on the storage, run in one turn. */
export type BatchTask<T = unknown> = { node: string; isAlive(): boolean; run: () => Promise<T> };

/** How long a batch waits for one of another node, in milliseconds. */
const maxWait = 300;

/**
 * Runs batches of all nodes one after another. Some wait for a batch of another node, so that two overlap.
 */
export class BatchScheduler {
  /** The probability that a batch waits, from 0 to 1. */
  often = 0;
  readonly #virtualTime: VirtualTime;
  readonly #storage: Storage;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: { errand: BatchTask; begin(other: BatchTask | null): Promise<unknown> } | null = null;

  constructor(of: { virtualTime: VirtualTime; storage: Storage }) {
    this.#virtualTime = of.virtualTime;
    this.#storage = of.storage;
  }

  /** Runs a task alone, after all earlier ones. */
  inTurn<T>(run: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(run);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Runs a task alone, or together with one that waits. */
  async meet<T>(task: BatchTask<T>): Promise<T> {
    let answer: Promise<T> | null = null;
    const noting: BatchTask = { ...task, run: () => (answer = task.run()).catch(() => undefined) };
    const first = this.#waiting;
    if (this.often === 0 || (first && first.errand.node === task.node)) return this.inTurn(task.run);
    if (first) this.#waiting = null;
    if (first?.errand.isAlive()) await first.begin(noting);
    else if (this.#virtualTime.random.isHit(this.often)) await this.#waitFor(noting);
    else return this.inTurn(task.run);
    if (answer === null) throw new Error("the task was not run");
    return answer;
  }

  #waitFor(task: BatchTask): Promise<unknown> {
    return new Promise((resolve) => {
      const waiting = {
        errand: task,
        begin: (other: BatchTask | null): Promise<unknown> => {
          const both = this.inTurn(() => this.#runBoth(task, other));
          both.then(resolve, resolve);
          return both;
        },
      };
      this.#waiting = waiting;
      this.#virtualTime.after(maxWait, { owner: task.node, what: "meeting" }, () => {
        if (this.#waiting !== waiting) return;
        this.#waiting = null;
        void waiting.begin(null);
      });
    });
  }

  async #runBoth(first: BatchTask, second: BatchTask | null): Promise<void> {
    if (!second) return void (await first.run());
    if (!this.#storage.together) return void (await first.run().then(second.run));
    const lost = await this.#storage.together(first.run, second.run);
    this.#virtualTime.note(`${first.node} and ${second.node} have met: ${lost} races lost`);
  }
}
