import { beforeEach, expect, test } from "vitest";
import { idMaker } from "../../src/core/ids.ts";
import type { Retention } from "../../src/core/retention.ts";
import { Timers, retentionDuty } from "../../src/engine/timers.ts";
import { Memory, memoryStore } from "../../src/store/memory.ts";
import type { Store } from "../../src/store/store.ts";
import { letterOf } from "../core/broker.ts";
import { Chance } from "./chance.ts";
import { NodeClock, World, settled } from "./world.ts";

// When history goes, in virtual time.

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;
const retention: Retention = { log: 3 * day, deadLetters: 7 * day };

let world: World;
let memory: Memory;
let store: Store;
let timers: Timers;
/** How often it was asked when the next row is past its time, and to remove some. */
let looks: number;

beforeEach(async () => {
  world = new World(new Chance(1));
  memory = new Memory();
  looks = 0;
  const random = (): number => world.chance.next();
  store = memoryStore({ node: "node", now: () => world.now, random, newId: idMaker(random) }, memory);
  await store.execute("createAccount", {
    ...{ id: "acme", name: "", password: "", token: "", tokenHash: "", signingKeys: { current: "", next: "" } },
  });
  const counted: Store = { ...store, read: { ...store.read, nextExpiryAt: (...of) => (looks++, store.read.nextExpiryAt(...of)) } };
  const clock = new NodeClock(world, "node");
  const trouble = (what: string): void => expect.fail(what);
  timers = new Timers({ duties: [retentionDuty({ store: counted, clock, retention })], clock, trouble });
  timers.start();
  await run(minute);
});

async function run(time: number): Promise<void> {
  const until = world.now + time;
  await settled();
  while (await world.step(until));
  world.now = until;
}

const publish = (deduplication: string) =>
  store.execute("publish", { account: "acme", letters: [letterOf({ deduplication, delay: day })] });

test("a deduplication key goes within an hour and a bit, though nothing else will be past its time for days", async () => {
  await run(5 * hour);
  await publish("one");
  await run(hour - 2 * minute);
  await publish("two");
  await run(2 * hour);
  expect(memory.tables.deduplications.size).toBe(0);
  const before = looks;
  await run(2 * day);
  // Once more than that, for what was used in these minutes.
  expect(looks).toBe(before + 1);
});

test("however many messages come in, it looks a few times an hour", async () => {
  for (let count = 0; count < 1_000; count++) {
    await publish(`key ${count}`);
    await run(36_000);
    expect(memory.tables.deduplications.size).toBeLessThanOrEqual(130);
  }
  expect(looks).toBeLessThanOrEqual(130);
});

test("in an empty store it sleeps, and it ends when it is stopped", async () => {
  const before = looks;
  await run(30 * day);
  expect(looks).toBe(before);
  expect(world.pending()).toEqual([]);
  await timers.stop();
  await publish("late");
  expect(world.pending()).toEqual([]);
});
