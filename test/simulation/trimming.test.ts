import { beforeEach, expect, test } from "vitest";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import { MaintenanceScheduler } from "../../src/engine/upkeep/scheduler.ts";
import { createTrimmingTask } from "../../src/engine/upkeep/trimHistory.ts";
import { Memory, memoryStore } from "../model/memoryStore.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { RandomSource } from "./randomSource.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

// When rows beyond a limit are removed, in virtual time.

const second = 1000;
const hour = 3600 * second;

let world: VirtualTime;
let memory: Memory;
let store: Store;
let timers: MaintenanceScheduler;
/** How often the task counted rows. */
let looks: number;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  memory = new Memory();
  looks = 0;
  const random = (): number => world.random.next();
  store = memoryStore(
    { node: "node", now: () => world.now, random, newId: createIdGenerator(random) },
    memory,
  );
  for (const id of ["acme", "other"]) {
    const secrets = {
      name: "",
      password: "",
      token: id,
      tokenHash: id,
      signingKeys: { current: "", next: "" },
    };
    await store.execute("createAccount", { id, ...secrets });
  }
  const counted: Store = {
    ...store,
    read: { ...store.read, findOverLimit: (...of) => (looks++, store.read.findOverLimit(...of)) },
  };
  const clock = new NodeClock(world, "node");
  timers = new MaintenanceScheduler({
    tasks: [createTrimmingTask({ store: counted, clock })],
    clock,
    logFailure: (what) => expect.fail(what),
  });
  timers.start();
  await run(60 * second);
});

async function run(time: number): Promise<void> {
  const until = world.now + time;
  await settled();
  while (await world.step(until));
  world.now = until;
}

/** Publishes and cancels messages, each of which makes one log line. */
async function cancelled(account: string, count: number): Promise<void> {
  for (let at = 0; at < count; at++) {
    const [result] = await store.execute("publish", { account, inputs: [makeInput({ delay: 60 * second })] });
    if (result && "messageId" in result)
      await store.execute("cancel", { account, messageIds: [result.messageId] });
  }
}

const lines = (account: string): number =>
  [...memory.tables.log.values()].filter((row) => row.account === account).length;

test("log lines beyond the limit of an account are removed within seconds, others stay", async () => {
  await store.execute("changeAccount", { account: "acme", change: { limits: { logEntries: 3 } } });
  await cancelled("acme", 10);
  await cancelled("other", 10);
  await run(25 * second);
  expect([lines("acme"), lines("other")]).toEqual([3, 10]);
  expect(memory.tables.accounts.get("acme")?.dropped).toEqual({ log: 7, deadLetters: 0 });
  expect(memory.tables.accounts.get("other")?.dropped).toBeUndefined();
});

test("a lower limit removes existing rows at the next change", async () => {
  await cancelled("acme", 5);
  await store.execute("changeAccount", { account: "acme", change: { limits: { logEntries: 2 } } });
  await cancelled("acme", 1);
  await run(25 * second);
  expect(lines("acme")).toBe(2);
});

test("accounts without such limits are not checked, and lists with much room rarely", async () => {
  await cancelled("acme", 5);
  await run(60 * second);
  expect(looks).toBe(0);
  await store.execute("changeAccount", { account: "acme", change: { limits: { deadLetters: 1_000_000 } } });
  for (let at = 0; at < 60; at++) {
    await cancelled("acme", 1);
    await run(20 * second);
  }
  expect(looks).toBeLessThanOrEqual(4);
});

test("without changes the task checks one last time and sleeps", async () => {
  await cancelled("acme", 1);
  await run(2 * hour);
  expect(world.pending()).toEqual([]);
  await timers.stop();
});
