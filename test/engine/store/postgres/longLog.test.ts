import { expect, test } from "vitest";
import type { Filter } from "../../../../src/engine/core/search/filter.ts";
import { scanLimit } from "../../../../src/engine/store/layout/storageReads.ts";
import { sqliteStore } from "../../../../src/engine/store/sqlite/sqliteStore.ts";
import {
  closeAfterTest,
  makeOldestFirstQuery,
  makeInput,
  createSource,
  listStates,
  TestClock,
  StoreFixture,
} from "../storeFixture.ts";

test("a match beyond the scan limit is found with the cursor, and an indexed one at once", async () => {
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(":memory:", createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  // All rows have the same millisecond, so a page begins among rows that were scanned before.
  const others = Array.from({ length: scanLimit + 20 }, () =>
    makeInput({ delay: 1, body: new Uint8Array(0) }),
  );
  await world.publish([...others, makeInput({ delay: 1, labels: ["wanted"], callerIp: "192.0.2.9" })]);
  const query = makeOldestFirstQuery({ filter: { callerIps: ["192.0.2.9"] }, count: 10 });
  const first = await world.store.read.log(query);
  expect(first.events).toEqual([]);
  expect(first.cursor).not.toBeNull();
  const second = await world.store.read.log({ ...query, cursor: first.cursor });
  expect(listStates(second)).toEqual(["CREATED"]);
  expect(second.cursor).toBeNull();
  const marked = await world.store.read.log(
    makeOldestFirstQuery({ filter: { labels: ["wanted"], callerIps: ["192.0.2.9"] }, count: 10 }),
  );
  expect({ states: listStates(marked), cursor: marked.cursor }).toEqual({
    states: ["CREATED"],
    cursor: null,
  });
});

test("a search follows its most selective filter, and returns no row twice", async () => {
  const clock = new TestClock();
  const world = new StoreFixture(
    closeAfterTest(await sqliteStore(":memory:", createSource(clock, "nod_a"))),
    clock,
    "nod_a",
  );
  await world.account();
  const labels = ["common", "frequent", "usual"];
  const common = makeInput({ delay: 1, labels, body: new Uint8Array(0) });
  const results = await world.publish([
    ...Array.from({ length: scanLimit + 20 }, () => common),
    { ...common, scheduleId: "scd_1" },
  ]);
  const ids = results.flatMap((result) => ("messageId" in result ? [result.messageId] : []));
  const unfinished = (filter: Filter) =>
    world.store.read.unfinished({ account: "acc", filter, count: scanLimit - 1, cursor: null });
  expect(await unfinished({ labels: ["common"], scheduleIds: ["scd_1"] })).toEqual({
    messageIds: ids.slice(-1),
    cursor: null,
  });
  expect((await unfinished({ labels })).messageIds).toEqual(ids.slice(0, scanLimit - 1));
});
