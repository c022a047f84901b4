// @module-tag long
import { expect, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import { scanLimit } from "../../../../src/engine/store/layout/storageReads.ts";
import { failRuns, makeStartInput } from "../contract/failedRuns.ts";
import {
  closeAfterTest,
  makeOldestFirstQuery,
  makeLogQuery,
  createSource,
  StoreFixture,
} from "../storeFixture.ts";

const many = 10_000;

test("each of 10,000 failed runs is found at once by every filter and in a paged list", async () => {
  const world = await StoreFixture.open(async (clock, node) =>
    closeAfterTest(await sqliteStore(":memory:", createSource(clock, node))),
  );
  world.capacity = { total: 1_000, perHost: 1_000 };
  await world.account();
  for (let n = 0; n < many; n += 500) {
    world.clock.now += 1_000;
    await failRuns(
      world,
      Array.from({ length: 500 }, (_, at) =>
        makeStartInput(`run-${n + at}.`, { labels: n + at === 7_777 ? ["rare"] : [] }),
      ),
    );
  }
  expect(many).toBeGreaterThan(scanLimit);
  const page = (filter: Filter) =>
    world.store.read.deadLetters({
      ...makeOldestFirstQuery({ filter: { belongsToRun: true, ...filter } }),
      bodies: false,
    });
  for (const filter of [
    { runIdStarts: ["run-9999."] },
    { runIdStarts: ["run-7777", "run-77770"] },
    { labels: ["rare"] },
  ]) {
    const { entries, cursor } = await page(filter);
    expect([entries.length, cursor]).toEqual([1, null]);
  }
  const { entries } = await page({ runIdStarts: ["run-999"] });
  expect(entries.map(({ deadLetter }) => deadLetter.run?.runId)).toEqual([
    "run-999.",
    ...Array.from({ length: 10 }, (_, n) => `run-999${n}.`),
  ]);
  // These are more runs than are looked up one by one, so they are found by reading all.
  const wide = await page({ runIdStarts: ["run-"] });
  expect([wide.entries.length, wide.cursor === null]).toEqual([100, false]);
  // A request visits a limited number of runs, also if no group is found.
  const none = await world.store.read.groupDeadLetters(
    makeLogQuery({ filter: { belongsToRun: true, callbackStates: ["CALLBACK_FAIL"] }, count: 1_000 }),
  );
  expect([none.groups, none.entries, none.cursor === null]).toEqual([[], 0, false]);
  let seen = 0;
  let cursor: string | null = null;
  do {
    const next = await world.store.read.deadLetters({
      ...makeLogQuery({ filter: { belongsToRun: true }, cursor, count: 1_000 }),
      bodies: false,
    });
    seen += next.entries.length;
    ({ cursor } = next);
  } while (cursor !== null);
  expect(seen).toBe(many);
  expect(
    (await world.store.read.deadLetters(makeOldestFirstQuery({ filter: { belongsToRun: false } }))).entries,
  ).toEqual([]);
});
