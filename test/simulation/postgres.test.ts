import { describe, expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { chooseSeed } from "../seeds.ts";
import { postgresStorage } from "./storage/postgresStorage.ts";
import type { Report } from "./simulation.ts";
import { simulate } from "./simulation.ts";
import { memoryStorage } from "./storage/storage.ts";

// The simulation on a real database. `npm run simulate -- --seed N --actions 15 --store postgres` repeats a
// seed.

const actions = 15;
const fresh = chooseSeed();

describe("PostgreSQL behaves step by step like the memory store", () => {
  const expectSame = async (seed: number): Promise<void> => {
    // Both load missing rows in rounds, because the time that a batch takes decides which commands meet.
    const inMemory = await simulate({
      seed,
      actions,
      storage: memoryStorage(undefined, { readsAtOnce: false }),
    });
    const onPostgres = await simulate({
      seed,
      actions,
      storage: await postgresStorage(await freshDatabase()),
    });
    expect(onPostgres.failure).toBeNull();
    expect(onPostgres.trace).toEqual(inMemory.trace);
  };

  test("with seed 23", () => expectSame(23));
  test.each([8, fresh])("with seed %d", { tags: "long" }, (seed) => expectSame(seed));
});

// Overlapping batches lose races and skip locked rows, so they behave differently than one after another.
// Repeat with `--meet`.
describe("all invariants hold if batches of several nodes overlap", { tags: "long" }, () => {
  const meeting = async (seed: number): Promise<Report> =>
    simulate({ seed, actions, meet: true, storage: await postgresStorage(await freshDatabase()) });

  test("with seed 2, in which races are lost", async () => {
    const { failure, trace } = await meeting(2);
    expect(failure).toBeNull();
    expect(trace.some((line) => / have met: [1-9]\d* races lost/.test(line))).toBe(true);
  });

  test(`with the fresh seed ${fresh}, and it runs the same way twice`, async () => {
    const first = await meeting(fresh);
    const second = await meeting(fresh);
    expect(first.failure).toBeNull();
    expect(second.trace).toEqual(first.trace);
  });
});
