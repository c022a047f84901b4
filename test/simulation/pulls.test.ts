import { describe, expect, test } from "vitest";
import { simulate } from "./simulation.ts";
import { memoryStorage, sqliteStorage } from "./storage/storage.ts";

const pulls = { pulls: true, byHand: true, runs: 0.15 } as const;

/** The events that the fixed seeds must contain. */
const wanted = [
  ...["pulled", "pull lost", "held by a receiver", "held by a receiver in a queue", "hold expired"],
  ...["reported delivered", "reported retry", "report repeated", "given back", "hold extended"],
  "extension refused",
];

test("every invariant holds while clients pull", async () => {
  const { failure, happened } = await simulate({ seed: 1, actions: 40, ...pulls });
  expect(failure).toBeNull();
  expect([...happened]).toEqual(expect.arrayContaining(["pulled", "reported delivered"]));
});

describe("in the long run", { tags: "long" }, () => {
  test("every event of a puller happens, and breaks no invariant", async () => {
    const happened = new Set<string>();
    for (const seed of [1, 2, 3, 4]) {
      const report = await simulate({ seed, ...pulls });
      expect(report.failure, `seed ${seed}`).toBeNull();
      for (const what of report.happened) happened.add(what);
    }
    for (const what of wanted) expect([...happened], what).toContain(what);
  });

  test.each([5, 6, 7, 8, 9, 10])("every invariant holds while clients pull, with seed %d", async (seed) => {
    const more = { meet: seed % 2 === 0, receivers: seed % 3 === 0 };
    expect((await simulate({ seed, ...pulls, ...more })).failure).toBeNull();
  });

  test("SQLite behaves step by step like the memory store", async () => {
    const inMemory = await simulate({ seed: 7, actions: 60, ...pulls, storage: memoryStorage() });
    const onSqlite = await simulate({ seed: 7, actions: 60, ...pulls, storage: await sqliteStorage() });
    expect(onSqlite.failure).toBeNull();
    expect(onSqlite.trace).toEqual(inMemory.trace);
  });
});
