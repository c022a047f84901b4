import type { DatabaseConnection } from "../../../src/engine/store/sql/database.ts";
import type { RandomSource } from "../randomSource.ts";

/**
 * Lets two overlapping tasks continue in turns, so that their order depends only on the seed. The turn may
 * change between two statements. A task that has lost a race waits until the other has ended.
 */
export class TurnTaker {
  readonly #random: RandomSource;
  readonly #probability: number;
  /** Lets the waiting task continue. */
  #resumeOther: (() => void) | null = null;
  /** How often a task had to start again because the other was first. */
  lostRaces = 0;

  constructor(random: RandomSource) {
    this.#random = random;
    this.#probability = random.of([0.05, 0.2, 0.5]);
  }

  /** Resolves when both tasks have ended. */
  async runInTurns(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<void> {
    const started = new Promise<void>((resolve) => (this.#resumeOther = resolve));
    const end = (): void => {
      const other = this.#resumeOther;
      this.#resumeOther = null;
      other?.();
    };
    await Promise.all([first().finally(end), started.then(second).finally(end)]);
  }

  /** Lets the other task run to its end. */
  async loseRace(): Promise<void> {
    this.lostRaces++;
    await this.#passTurn();
  }

  /** A moment at which the other task may continue. */
  async offerTurn(): Promise<void> {
    if (this.lostRaces === 0 && this.#random.isHit(this.#probability)) await this.#passTurn();
  }

  /**
   * Returns the same connection, with such a moment before each statement. After a failed statement there is
   * none: its caller ends the transaction at once, and a later statement would pass on a turn that the task
   * no longer has.
   */
  wrapConnection(connection: DatabaseConnection): DatabaseConnection {
    let last: Promise<unknown> = Promise.resolve();
    const next = <T>(put: () => Promise<T>): Promise<T> => {
      const done = last.then(async () => {
        await this.offerTurn();
        return put();
      });
      last = done;
      return done;
    };
    return {
      ...connection,
      query: (sql, values) => next(() => connection.query(sql, values)),
      each: (sql, types, rows) => next(() => connection.each(sql, types, rows)),
    };
  }

  async #passTurn(): Promise<void> {
    const other = this.#resumeOther;
    if (!other) return;
    await new Promise<void>((resolve) => {
      this.#resumeOther = resolve;
      other();
    });
  }
}
