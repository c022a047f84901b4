import type { Millis } from "../model/message.ts";

/** How long one turn of the event loop may be busy with long work. */
const perTurn: Millis = 1;

type Slice = { run(): void; expected: Millis };

export type LongWorkParts = {
  /** Runs something in the next turn of the event loop, after the sockets were read. */
  soon(run: () => void): void;
  /** A stopwatch, in milliseconds with fractions. */
  elapsed(): Millis;
};

/**
 * Shares the event loop between long work and everything else. Work that would hold up all other requests is cut into slices of less than a
 * millisecond. Each turn of the event loop runs one slice, and more as long as they take a millisecond together. Owners take turns.
 */
export class LongWork {
  readonly #parts: LongWorkParts;
  readonly #waiting = new Map<string, Slice[]>();
  #isDue = false;

  constructor(parts: LongWorkParts) {
    this.#parts = parts;
  }

  /** `expected`: how long the slice takes after it has returned, such as the read that it allows. `run` must not throw. */
  next(owner: string, run: () => void, expected: Millis = 0): void {
    const slices = this.#waiting.get(owner);
    if (slices) slices.push({ run, expected });
    else this.#waiting.set(owner, [{ run, expected }]);
    this.#runSoon();
  }

  /** Runs something and returns how long it took. */
  timed(run: () => void): Millis {
    const startedAt = this.#parts.elapsed();
    run();
    return this.#parts.elapsed() - startedAt;
  }

  #runSoon(): void {
    if (this.#isDue || this.#waiting.size === 0) return;
    this.#isDue = true;
    this.#parts.soon(() => {
      this.#isDue = false;
      this.#runTurn();
      this.#runSoon();
    });
  }

  #runTurn(): void {
    for (let spent = 0; spent < perTurn;) {
      const slice = this.#take();
      if (slice === null) return;
      spent += this.timed(slice.run) + slice.expected;
    }
  }

  #take(): Slice | null {
    const [first] = this.#waiting;
    if (first === undefined) return null;
    const [owner, slices] = first;
    const slice = slices.shift() ?? null;
    this.#waiting.delete(owner);
    if (slices.length > 0) this.#waiting.set(owner, slices);
    return slice;
  }
}
