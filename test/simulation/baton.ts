import type { Connection } from "../../src/store/sql/database.ts";
import type { Chance } from "./chance.ts";

/**
 * Two who are at work at the same time, of whom only the one who has the baton goes on; so it depends on chance alone who comes first. It goes from
 * one to the other between two statements. Who has lost a race waits until the other one has come to its end.
 */
export class Baton {
  readonly #chance: Chance;
  readonly #often: number;
  /** Goes on with the one who has not got it. */
  #other: (() => void) | null = null;
  /** How often one of them had to begin again because the other was first. */
  lostRaces = 0;

  constructor(chance: Chance) {
    this.#chance = chance;
    this.#often = chance.of([0.05, 0.2, 0.5]);
  }

  /** Ends when both have come to their end. */
  async carry(first: () => Promise<unknown>, second: () => Promise<unknown>): Promise<void> {
    const begun = new Promise<void>((resolve) => (this.#other = resolve));
    const end = (): void => {
      const other = this.#other;
      this.#other = null;
      other?.();
    };
    await Promise.all([first().finally(end), begun.then(second).finally(end)]);
  }

  /** The other one goes on to its end. */
  async loseRace(): Promise<void> {
    this.lostRaces++;
    await this.#pass();
  }

  /** A moment at which the other one may come in between. */
  async moment(): Promise<void> {
    if (this.lostRaces === 0 && this.#chance.happens(this.#often)) await this.#pass();
  }

  /**
   * The same connection, with such a moment before each statement. Behind one that has failed no other is put, as whoever put them goes on to
   * the end of the transaction at once: they would come behind that, and pass the baton when he does not have it any more.
   */
  between(connection: Connection): Connection {
    let last: Promise<unknown> = Promise.resolve();
    const next = <T>(put: () => Promise<T>): Promise<T> => {
      const done = last.then(async () => {
        await this.moment();
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

  async #pass(): Promise<void> {
    const other = this.#other;
    if (!other) return;
    await new Promise<void>((resolve) => {
      this.#other = resolve;
      other();
    });
  }
}
