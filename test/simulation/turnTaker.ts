import type { DatabaseConnection } from "../../src/store/sql/database.ts";
import type { RandomSource } from "./randomSource.ts";

/**
 * Two who are at work at the same time, of whom only the one who has the baton goes on; so it depends on chance alone who comes first. It goes from
 * one to the other between two statements. Who has lost a race waits until the other one has come to its end.
 */
export class TurnTaker {
  readonly #random: RandomSource;
  readonly #probability: number;
  /** Goes on with the one who has not got it. */
  #resumeOther: (() => void) | null = null;
  /** How often one of them had to begin again because the other was first. */
  lostRaces = 0;

  constructor(random: RandomSource) {
    this.#random = random;
    this.#probability = random.of([0.05, 0.2, 0.5]);
  }

  /** Ends when both have come to their end. */
  async runInTurns(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<void> {
    const started = new Promise<void>((resolve) => (this.#resumeOther = resolve));
    const end = (): void => {
      const other = this.#resumeOther;
      this.#resumeOther = null;
      other?.();
    };
    await Promise.all([first().finally(end), started.then(second).finally(end)]);
  }

  /** The other one goes on to its end. */
  async loseRace(): Promise<void> {
    this.lostRaces++;
    await this.#passTurn();
  }

  /** A moment at which the other one may come in between. */
  async offerTurn(): Promise<void> {
    if (this.lostRaces === 0 && this.#random.isHit(this.#probability)) await this.#passTurn();
  }

  /**
   * The same connection, with such a moment before each statement. Behind one that has failed no other is put, as whoever put them goes on to
   * the end of the transaction at once: they would come behind that, and pass the baton when he does not have it any more.
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
