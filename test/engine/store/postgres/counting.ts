import { Client } from "pg";
import { onTestFinished, vi } from "vitest";

/** The statements of a piece of work, and the round trips that they took. */
export type Cost = { statements: number; trips: number };
type Putting = Client & { connectionParameters?: { application_name?: string } };

const original = Client.prototype.query;

/**
 * Counts the statements of writing connections, and their round trips. A statement sent after the answers of
 * n round trips belongs to round trip n + 1.
 */
export function counting(): { during(work: () => Promise<unknown>): Promise<Cost> } {
  let cost: Cost = { statements: 0, trips: 0 };
  let answered = 0;
  const counted = function (this: Putting, ...given: unknown[]) {
    const answer: unknown = Reflect.apply(original, this, given);
    if (this.connectionParameters?.application_name !== "waypost writer") return answer;
    const mine = cost;
    const trip = answered + 1;
    mine.statements++;
    mine.trips = Math.max(mine.trips, trip);
    return Promise.resolve(answer).finally(
      () => (answered = mine === cost ? Math.max(answered, trip) : answered),
    );
  } as typeof original;
  const spy = vi.spyOn(Client.prototype, "query").mockImplementation(counted);
  onTestFinished(() => spy.mockRestore());
  return {
    during: async (work) => {
      cost = { statements: 0, trips: 0 };
      answered = 0;
      await work();
      return { ...cost };
    },
  };
}
