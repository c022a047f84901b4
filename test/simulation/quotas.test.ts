import { expect, test } from "vitest";
import { chooseSeed } from "../seeds.ts";
import { simulate } from "./simulation.ts";
import { memoryStorage, sqliteStorage } from "./storage/storage.ts";

// Accounts that exceed their storage quota, with all other faults. Everything that has started must end, and
// the counted bytes must be correct.

const fresh = chooseSeed();
const quotaOf = (seed: number): number => [20_000, 50_000, 90_000][seed % 3] ?? 0;
const happened = new Set<string>();

const expectKept = async (seed: number): Promise<void> => {
  const report = await simulate({ seed, quota: quotaOf(seed), runs: 0.4 });
  expect(report.failure).toBeNull();
  for (const what of report.happened) happened.add(what);
};

// With 783050226, the clocks of all remaining nodes are ahead when accounts have room again.
test.each([7, 783050226, fresh])("all invariants hold with a quota and seed %d", (seed) => expectKept(seed));
test.each([1, 2, 3, 4, 5, 6, 8])("all invariants hold with a quota and seed %d", { tags: "long" }, (seed) =>
  expectKept(seed),
);

test(
  "accounts were full and had room again, and publishes and runs were refused for the quota",
  { tags: "long" },
  () => {
    for (const what of [
      "full",
      "has room again",
      "refused for the quota",
      "run refused for the quota",
      "schedule passed over",
      "RUN_SUCCESS",
    ])
      expect([...happened], what).toContain(what);
  },
);

test("SQLite behaves step by step like the memory store", async () => {
  const options = { seed: fresh, actions: 40, quota: quotaOf(fresh) };
  const inMemory = await simulate({ ...options, storage: memoryStorage() });
  const onSqlite = await simulate({ ...options, storage: await sqliteStorage() });
  expect(onSqlite.failure).toBeNull();
  expect(onSqlite.trace).toEqual(inMemory.trace);
});
