import type { Millis } from "../model/message.ts";

/** How long one turn of the event loop may spend on long work. */
const perTurn: Millis = 1;

type Slice = { run(): void; expected: Millis };

/** The parts of the runtime that `LongWork` uses. */
export type LongWorkParts = {
  /** Runs a function in the next turn of the event loop, after sockets were read. */
  soon(run: () => void): void;
  /** Returns the time of a stopwatch, in milliseconds with fractions. */
  elapsed(): Millis;
};

/**
 * Shares the event loop between long work and all other work. Work that would block all other requests is cut
 * into slices of less than a millisecond. Each turn of the event loop runs slices until they have taken a
 * millisecond together, but at least one. Owners take turns.
 */
export class LongWork {
  readonly #parts: LongWorkParts;
  readonly #waiting = new Map<string, Slice[]>();
  #isDue = false;

  constructor(parts: LongWorkParts) {
    this.#parts = parts;
  }

  /**
   * Adds a slice of an owner's work. `expected` is the time of the work that the slice causes after it has
   * returned, for example of a read that it starts. `run` must not throw.
   */
  next(owner: string, run: () => void, expected: Millis = 0): void {
    const slices = this.#waiting.get(owner);
    if (slices) slices.push({ run, expected });
    else this.#waiting.set(owner, [{ run, expected }]);
    this.#runSoon();
  }

  /** Runs a function and returns how long it took. */
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
