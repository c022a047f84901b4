import { expect, test } from "vitest";
import { createStorageTask } from "../../../src/engine/upkeep/weighStorage.ts";
import { memoryStore } from "../../model/memoryStore.ts";
import type { Queries } from "../../../src/engine/store/catalog/queries.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { closeAfterTest, makeInput, createSource, TestClock, StoreFixture } from "../store/storeFixture.ts";
import { makeDeletion } from "../../makeDeletion.ts";

/** The recorded reads of `accounts` and `storedBytes`. */
type Asked = { accounts: number; stored: (readonly string[])[]; sinceEver: (readonly string[])[] };

async function open(): Promise<{
  world: StoreFixture;
  asked: Asked;
  duty: ReturnType<typeof createStorageTask>;
}> {
  const clock = new TestClock();
  const store = closeAfterTest(memoryStore(createSource(clock, "nod_a")));
  const asked: Asked = { accounts: 0, stored: [], sinceEver: [] };
  const read: Queries = {
    ...store.read,
    accounts: () => {
      asked.accounts++;
      return store.read.accounts();
    },
    storedBytes: (accounts, since) => {
      asked.stored.push(accounts);
      if (since === null) asked.sinceEver.push(accounts);
      return store.read.storedBytes(accounts, since);
    },
  };
  const world = new StoreFixture(store, clock, "nod_a");
  await world.account();
  await world.account("free");
  const watched: Store = { ...store, read };
  const duty = createStorageTask({
    store: watched,
    clock: { now: () => clock.now, sleep: async () => undefined },
  });
  duty.onWork(() => undefined);
  return { world, asked, duty };
}

const quota = (world: StoreFixture, storageBytes: number | null) =>
  world.store.execute("changeAccount", { account: "acc", change: { limits: { storageBytes } } });
const noted = async (world: StoreFixture) => (await world.store.read.account("acc"))?.storedBytes;
const later = (duty: ReturnType<typeof createStorageTask>, world: StoreFixture) => {
  world.clock.now += 10_000;
  return duty.run();
};

test("an account over its quota is recorded at the next check, and cleared after deletions", async () => {
  const { world, duty } = await open();
  await quota(world, 5_000);
  await duty.run();
  const { dlqId } = await world.publishFailing({ body: new Uint8Array(5_000) });
  expect(await noted(world)).toBeUndefined();
  await later(duty, world);
  expect(await noted(world)).toBeGreaterThan(5_000);
  expect((await world.publish([makeInput()]))[0]).toMatchObject({ refused: "storage-quota-exceeded" });
  await world.store.execute("bulk", makeDeletion({ account: "acc", dlqIds: [dlqId], logRetention: 1 }));
  await world.store.execute("expire", {
    account: "acc",
    retention: { log: 1, deadLetters: 1 },
    now: world.clock.now,
    limit: 100,
  });
  expect(await duty.nextAt()).toBeLessThan(Infinity);
  await later(duty, world);
  expect(await noted(world)).toBeUndefined();
  expect((await world.publish([makeInput()]))[0]).toHaveProperty("messageId");
});

test("a new quota is checked on an account that has been idle for days", async () => {
  const { world, duty } = await open();
  await world.publish([makeInput({ delay: 9e6, body: new Uint8Array(5_000) })]);
  world.clock.now += 5 * 86_400_000;
  await world.store.execute("expire", {
    account: "acc",
    retention: { log: 1e12, deadLetters: 1e12 },
    now: world.clock.now,
    limit: 100,
  });
  await duty.run();
  await quota(world, 100);
  expect(await duty.nextAt()).toBeLessThan(Infinity);
  await later(duty, world);
  expect(await noted(world)).toBeGreaterThan(5_000);
});

test("a single change long after the last check is noticed", async () => {
  const { world, duty } = await open();
  await quota(world, 5_000);
  await duty.run();
  await later(duty, world);
  expect(await duty.nextAt()).toBe(Infinity);
  world.clock.now += 3_600_000;
  await world.publish([makeInput({ delay: 9e6, body: new Uint8Array(5_000) })]);
  world.clock.now += 300_000;
  expect(await duty.nextAt()).toBeLessThan(Infinity);
  await duty.run();
  expect(await noted(world)).toBeGreaterThan(5_000);
});

test("accounts without a quota are not read, and the task sleeps if nothing is stored", async () => {
  const { world, asked, duty } = await open();
  await duty.run();
  await world.publish([makeInput()]);
  for (let look = 0; look < 5; look++) await later(duty, world);
  expect(asked).toMatchObject({ accounts: 1, stored: [] });
  expect(await duty.nextAt()).toBe(Infinity);
  await quota(world, 1_000_000);
  for (let look = 0; look < 20; look++) await later(duty, world);
  expect(new Set(asked.stored.flat())).toEqual(new Set(["acc"]));
  expect(await duty.nextAt()).toBe(Infinity);
});

test("a failed check is repeated", async () => {
  const { world, duty, asked } = await open();
  await quota(world, 100);
  const { accounts } = world.store.read;
  world.store.read.accounts = () => Promise.reject(new Error("away"));
  await expect(duty.run()).rejects.toThrow("away");
  expect(await duty.nextAt()).toBeLessThan(Infinity);
  world.store.read.accounts = accounts;
  await world.publish([makeInput({ delay: 9e6 })]);
  await later(duty, world);
  expect(await noted(world)).toBeGreaterThan(100);
  expect(asked.accounts).toBe(2);
});

test("the bytes of an account are added up again only if its quota has changed", async () => {
  const { world, asked, duty } = await open();
  await quota(world, 5_000);
  await duty.run();
  expect(asked.sinceEver).toEqual([["acc"]]);
  for (let time = 0; time < 3; time++) {
    await world.store.execute("changeAccount", { account: "free", change: { limits: { retries: time } } });
    await later(duty, world);
  }
  expect(asked.sinceEver).toEqual([["acc"]]);
  await quota(world, 4_000);
  await later(duty, world);
  expect(asked.sinceEver).toEqual([["acc"], ["acc"]]);
});
