import { expect, test } from "vitest";
import { scanLimit } from "../../src/store/shelf.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { closedAfterwards, earliest, letterTo, sourceOf, statesOf, TestClock, World } from "./world.ts";

test("a match behind more rows than one page looks at is found by following the cursor", async () => {
  const clock = new TestClock();
  const world = new World(closedAfterwards(await sqliteStore(":memory:", sourceOf(clock, "nod_a"))), clock, "nod_a");
  await world.account();
  // All in one millisecond, so that a page begins among rows that were looked at before.
  const others = Array.from({ length: scanLimit + 20 }, () => letterTo({ delay: 1, body: new Uint8Array(0) }));
  await world.publish([...others, letterTo({ delay: 1, labels: ["wanted"] })]);
  const query = earliest({ filter: { labels: ["wanted"] }, count: 10 });
  const first = await world.store.read.log(query);
  expect(first.events).toEqual([]);
  expect(first.cursor).not.toBeNull();
  const second = await world.store.read.log({ ...query, cursor: first.cursor });
  expect(statesOf(second)).toEqual(["CREATED"]);
  expect(second.cursor).toBeNull();
});
