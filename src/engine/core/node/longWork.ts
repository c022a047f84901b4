import type { Millis } from "../values/basics.ts";
import { OwnerTurns } from "./ownerTurns.ts";

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
  readonly #waiting = new OwnerTurns<Slice>();
  #isDue = false;

  constructor(parts: LongWorkParts) {
    this.#parts = parts;
  }

  /**
   * Adds a slice of an owner's work. `expected` is the time of the work that the slice causes after it has
   * returned, for example of a read that it starts. `run` must not throw.
   */
  next(owner: string, run: () => void, expected: Millis = 0): void {
    this.#waiting.add(owner, { run, expected });
    this.#runSoon();
  }

  /** Runs a function and returns how long it took. */
  timed(run: () => void): Millis {
    const startedAt = this.#parts.elapsed();
    run();
    return this.#parts.elapsed() - startedAt;
  }

  #runSoon(): void {
    if (this.#isDue || this.#waiting.isEmpty) return;
    this.#isDue = true;
    this.#parts.soon(() => {
      this.#isDue = false;
      this.#runTurn();
      this.#runSoon();
    });
  }

  #runTurn(): void {
    for (let spent = 0; spent < perTurn;) {
      const slice = this.#waiting.take();
      if (slice === null) return;
      spent += this.timed(slice.run) + slice.expected;
    }
  }
}
