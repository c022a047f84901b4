import { expect, test } from "vitest";
import { freshDatabase } from "../postgres.ts";
import { postgresStorage } from "./postgresStorage.ts";
import { simulate } from "./simulation.ts";

// The simulation on a real database. `npm run simulate -- --seed N --actions 25 --store postgres` runs a seed again.

const actions = 25;
const fresh = Math.floor(Math.random() * 1e9);

test.each([1, 2, 5, fresh])("PostgreSQL does step for step what the memory store does, with seed %d", async (seed) => {
  const inMemory = await simulate({ seed, actions });
  const onPostgres = await simulate({ seed, actions, storage: await postgresStorage(await freshDatabase()) });
  expect(onPostgres.failure).toBeNull();
  expect(onPostgres.trace).toEqual(inMemory.trace);
});
