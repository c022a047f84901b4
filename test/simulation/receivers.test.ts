import { describe, expect, test } from "vitest";
import { simulate } from "./simulation.ts";
import { memoryStorage, sqliteStorage } from "./storage/storage.ts";

const receivers = { receivers: true, byHand: true, runs: 0.05 } as const;

/** The events that the fixed seeds must contain. */
const wanted = [
  "held by a receiver",
  "held by a receiver in a queue",
  "hold extended",
  "hold expired",
  "reported delivered",
  "reported retry",
  "reported failed",
  "reported early",
  "report repeated",
];

test("every invariant holds while receivers report later", async () => {
  const { failure, happened } = await simulate({ seed: 1, actions: 80, ...receivers });
  expect(failure).toBeNull();
  expect([...happened]).toEqual(expect.arrayContaining(["held by a receiver", "reported delivered"]));
});

describe("in the long run", { tags: "long" }, () => {
  test("every event of a receiver happens, and breaks no invariant", async () => {
    const happened = new Set<string>();
    for (const seed of [1, 2, 3, 4]) {
      const report = await simulate({ seed, ...receivers });
      expect(report.failure, `seed ${seed}`).toBeNull();
      for (const what of report.happened) happened.add(what);
    }
    for (const what of wanted) expect([...happened], what).toContain(what);
  });

  test.each([5, 6, 7, 8, 9, 10])(
    "every invariant holds while receivers report later, with seed %d",
    async (seed) => {
      expect((await simulate({ seed, ...receivers, meet: seed % 2 === 0 })).failure).toBeNull();
    },
  );

  test("SQLite behaves step by step like the memory store", async () => {
    const inMemory = await simulate({ seed: 7, actions: 60, ...receivers, storage: memoryStorage() });
    const onSqlite = await simulate({ seed: 7, actions: 60, ...receivers, storage: await sqliteStorage() });
    expect(onSqlite.failure).toBeNull();
    expect(onSqlite.trace).toEqual(inMemory.trace);
  });
});
