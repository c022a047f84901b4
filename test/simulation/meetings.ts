import type { Storage } from "./storage.ts";
import type { World } from "./world.ts";

/** What a node does with the storage, all in one turn. */
export type Errand<T = unknown> = { node: string; isAlive(): boolean; run: () => Promise<T> };

/** So long a batch waits for one of another node. */
const patience = 300;

/** Batches come one after another, whichever node they are from. Some wait for one of another node, so that two are at work at the same time. */
export class Meetings {
  /** How often one waits, from 0 to 1. */
  often = 0;
  readonly #world: World;
  readonly #storage: Storage;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: { errand: Errand; begin(other: Errand | null): Promise<unknown> } | null = null;

  constructor(of: { world: World; storage: Storage }) {
    this.#world = of.world;
    this.#storage = of.storage;
  }

  /** Alone, after all who came before. */
  inTurn<T>(run: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(run);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Alone, or together with one that waits. */
  async meet<T>(errand: Errand<T>): Promise<T> {
    let answer: Promise<T> | null = null;
    const noting: Errand = { ...errand, run: () => (answer = errand.run()).catch(() => undefined) };
    const first = this.#waiting;
    if (this.often === 0 || (first && first.errand.node === errand.node)) return this.inTurn(errand.run);
    if (first) this.#waiting = null;
    if (first?.errand.isAlive()) await first.begin(noting);
    else if (this.#world.chance.happens(this.often)) await this.#waitFor(noting);
    else return this.inTurn(errand.run);
    if (answer === null) throw new Error("nobody has run it");
    return answer;
  }

  #waitFor(errand: Errand): Promise<unknown> {
    return new Promise((resolve) => {
      const waiting = {
        errand,
        begin: (other: Errand | null): Promise<unknown> => {
          const both = this.inTurn(() => this.#runBoth(errand, other));
          both.then(resolve, resolve);
          return both;
        },
      };
      this.#waiting = waiting;
      this.#world.after(patience, { owner: errand.node, what: "meeting" }, () => {
        if (this.#waiting !== waiting) return;
        this.#waiting = null;
        void waiting.begin(null);
      });
    });
  }

  async #runBoth(first: Errand, second: Errand | null): Promise<void> {
    if (!second) return void (await first.run());
    if (!this.#storage.together) return void (await first.run().then(second.run));
    const lost = await this.#storage.together(first.run, second.run);
    this.#world.note(`${first.node} and ${second.node} have met: ${lost} races lost`);
  }
}
