import { expect, test } from "vitest";
import { storageDuty } from "../../src/engine/storage.ts";
import { memoryStore } from "../../src/store/memory.ts";
import { bytes, closedAfterwards, letterTo, sourceOf, TestClock, World } from "../store/world.ts";

async function open() {
  const clock = new TestClock();
  const world = new World(closedAfterwards(memoryStore(sourceOf(clock, "nod_a"))), clock, "nod_a");
  for (const id of ["acc", "other"]) await world.account(id);
  const asked: string[] = [];
  const counting = (name: "storedBytes" | "measuredBytes") => (account: string) => {
    asked.push(`${name} ${account}`);
    return world.store.read[name](account);
  };
  const read = {
    ...world.store.read,
    storedBytes: counting("storedBytes"),
    measuredBytes: counting("measuredBytes"),
  } as typeof world.store.read;
  const duty = storageDuty({ store: { ...world.store, read }, clock: { now: () => clock.now, sleep: async () => undefined } });
  const limit = (storageBytes: number | null) =>
    world.store.execute("changeAccount", { account: "acc", change: { limits: { storageBytes } } });
  return { world, duty, asked, limit };
}

const large = (count: number) => Array.from({ length: count }, () => letterTo({ body: bytes("x".repeat(10_000)), delay: 1e9 }));

test("an account is measured once when it gets a quota, and then added up; others are never looked at", async () => {
  const { world, duty, asked, limit } = await open();
  await world.publish(large(2));
  await duty.run();
  expect([asked, await duty.nextAt()]).toEqual([[], Infinity]);
  await limit(50_000);
  expect(await duty.nextAt()).toBe(0);
  await duty.run();
  await duty.run();
  expect(asked).toEqual(["measuredBytes acc", "storedBytes acc"]);
  await world.publish(large(10), "other");
  expect(await world.publish(large(3))).toMatchObject([{ messageId: expect.any(String) }, {}, {}]);
  await duty.run();
  expect(await world.publish(large(1))).toMatchObject([{ refused: "storage-quota-exceeded" }]);
  expect(await world.publish(large(1), "other")).toMatchObject([{ messageId: expect.any(String) }]);
});

test("an account comes below its quota again as what it has goes", async () => {
  const { world, duty, limit } = await open();
  await limit(15_000);
  await world.settle(await world.sent({ body: bytes("x".repeat(20_000)) }));
  await duty.run();
  expect(await world.publish([letterTo()])).toMatchObject([{ refused: "storage-quota-exceeded" }]);
  world.clock.now += 1_000;
  await world.store.execute("expire", { account: "acc", retention: { log: 1, deadLetters: 1 }, now: world.clock.now, limit: 100 });
  await duty.run();
  expect(await world.publish([letterTo()])).toMatchObject([{ messageId: expect.any(String) }]);
});

test("without a quota any more, nothing is refused and nothing is added up", async () => {
  const { world, duty, asked, limit } = await open();
  await limit(1);
  await world.publish(large(1));
  await duty.run();
  expect(await world.publish(large(1))).toMatchObject([{ refused: "storage-quota-exceeded" }]);
  await limit(null);
  await duty.run();
  await duty.run();
  expect((await world.store.read.account("acc"))?.storage).toBeUndefined();
  asked.length = 0;
  await duty.run();
  expect([asked, await duty.nextAt()]).toEqual([[], Infinity]);
  expect(await world.publish(large(1))).toMatchObject([{ messageId: expect.any(String) }]);
});
