import { describe, expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { postgresStorage } from "./postgresStorage.ts";
import type { Report } from "./simulation.ts";
import { simulate } from "./simulation.ts";

// The simulation on a real database. `npm run simulate -- --seed N --actions 15 --store postgres` runs a seed again.

const actions = 15;
/** Seconds, unless others are at work as well. */
const timeout = 600_000;
const fresh = Math.floor(Math.random() * 1e9);

describe("PostgreSQL does step for step what the memory store does", { timeout }, () => {
  const expectSame = async (seed: number): Promise<void> => {
    const inMemory = await simulate({ seed, actions });
    const onPostgres = await simulate({ seed, actions, storage: await postgresStorage(await freshDatabase()) });
    expect(onPostgres.failure).toBeNull();
    expect(onPostgres.trace).toEqual(inMemory.trace);
  };

  test("with seed 23", () => expectSame(23));
  test.each([8, fresh])("with seed %d", { tags: "long" }, (seed) => expectSame(seed));
});

// Batches that are at work at the same time lose races and skip what others have locked, so they do other things than one after another. The same
// with `--meet`.
describe("all promises are kept where batches of several nodes are at work at the same time", { tags: "long", timeout }, () => {
  const meeting = async (seed: number): Promise<Report> =>
    simulate({ seed, actions, meet: true, storage: await postgresStorage(await freshDatabase()) });

  test("with seed 13, in which races are lost", async () => {
    const { failure, trace } = await meeting(13);
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
