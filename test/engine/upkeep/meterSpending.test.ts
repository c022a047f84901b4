import { expect, test } from "vitest";
import { createSpendingDuty } from "../../../src/engine/upkeep/meterSpending.ts";
import { memoryStore } from "../../model/memoryStore.ts";
import { closeAfterTest, makeInput, createSource, TestClock, StoreFixture } from "../store/storeFixture.ts";

const prices = { messages: 100_000, workflowMessages: 0, gigabyte: 0 };

async function open(): Promise<StoreFixture> {
  const clock = new TestClock();
  const world = new StoreFixture(closeAfterTest(memoryStore(createSource(clock, "nod_a"))), clock, "nod_a");
  await world.account();
  await world.store.execute("changeAccount", { account: "acc", change: { budget: 20 } });
  return world;
}

const clockOf = ({ clock }: StoreFixture) => ({ now: () => clock.now, sleep: async () => undefined });
const spending = async (world: StoreFixture) => (await world.store.read.account("acc"))?.spending;

test("an account's usage in the month is added up by the prices and stored", async () => {
  const world = await open();
  await world.publish([makeInput(), makeInput(), makeInput()]);
  await createSpendingDuty({ store: world.store, clock: clockOf(world), prices }).run();
  const month = Date.UTC(new Date(world.clock.now).getUTCFullYear(), new Date(world.clock.now).getUTCMonth());
  expect(await spending(world)).toEqual({ month, dollars: 3 });
  await world.publish(Array.from({ length: 17 }, () => makeInput()));
  await createSpendingDuty({ store: world.store, clock: clockOf(world), prices }).run();
  expect((await world.publish([makeInput()]))[0]).toMatchObject({
    refused: "limit-exceeded",
    message: expect.stringContaining("20.00 dollars"),
  });
});

test("the task never runs if all prices are 0", async () => {
  const world = await open();
  const free = { messages: 0, workflowMessages: 0, gigabyte: 0 };
  const duty = createSpendingDuty({ store: world.store, clock: clockOf(world), prices: free });
  expect(await duty.nextAt()).toBe(Infinity);
});

test("spending is added up again after a failure, even if nothing more is stored", async () => {
  const world = await open();
  let isAway = true;
  const execute = ((...call: Parameters<typeof world.store.execute>) =>
    isAway ? Promise.reject(new Error("away")) : world.store.execute(...call)) as typeof world.store.execute;
  const duty = createSpendingDuty({ store: { ...world.store, execute }, clock: clockOf(world), prices });
  await world.publish([makeInput()]);
  await expect(duty.run()).rejects.toThrow("away");
  expect(await duty.nextAt()).toBeLessThan(Infinity);
  isAway = false;
  await duty.run();
  expect(await spending(world)).toMatchObject({ dollars: 1 });
  expect(await duty.nextAt()).toBe(Infinity);
});
