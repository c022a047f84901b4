import { beforeEach, expect, test } from "vitest";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import { RandomSource } from "./randomSource.ts";
import { acme, createTimedDeliver, type TimedCall } from "./timedDeliver.ts";
import { NodeClock, settled, VirtualTime } from "./virtualTime.ts";

// One host whose attempts all fail, beside another: one dispatcher with a capacity of 32, in virtual time.
// Each attempt takes a second.

const second = 1000;
const failing = "fails.example";
const working = "works.example";

let world: VirtualTime;
let start: number;
let store: Store;
let calls: TimedCall[];
/** The status of the failing host. Null: it hangs. */
let response: number | null;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  calls = [];
  response = null;
  const random = (): number => world.random.next();
  const newId = createIdGenerator(random);
  store = createGroupCommitStore(
    memoryParts({ node: "node", now: () => world.now, random, newId }, new Memory()),
  );
  await store.execute("createAccount", acme);
  const deliver = createTimedDeliver({
    ...{ world, start, calls },
    answersAfter: () => second,
    respondsWith: (host) => (host === failing ? response : 200),
  });
  const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
  const clock = new NodeClock(world, "node");
  new Dispatcher({ store, deliver, clock, log, capacity: { total: 32, perHost: 32 } }).start();
});

const publish = (host: string, count: number): void =>
  void store.execute("publish", {
    account: "acme",
    inputs: Array.from({ length: count }, () => makeInput({ url: `https://${host}/`, retries: 0 })),
  });

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

/** Returns how many calls to a host began in each second of this time, on average. */
const rate = (host: string, from: number, to: number): number =>
  calls.filter((call) => call.host === host && call.at >= from && call.at < to).length /
  ((to - from) / second);

/** Returns what `GET /v2/hosts` shows. */
async function readHosts() {
  const hosts = await store.read.hosts("acme");
  return Object.fromEntries(hosts.map(({ host, ...figures }) => [host, figures]));
}

test.each([
  ["hangs", null],
  ["responds with 500", 500],
])(
  "while others wait, a host that %s gets less, and its share again with its first success",
  async (_, status) => {
    response = status;
    publish(failing, 400);
    publish(working, 1_500);
    await runUntil(0.5 * second);
    // At first both get a third of the capacity.
    const before = await readHosts();
    expect(before[failing]?.inFlight).toBeGreaterThanOrEqual(10);
    await runUntil(30 * second);
    const during = await readHosts();
    expect(during[failing]?.inFlight).toBeLessThanOrEqual(2);
    expect(during[working]?.inFlight).toBeGreaterThanOrEqual(14);
    expect(during[failing]?.waiting).toBeGreaterThan(300);
    expect(during[failing]?.attempts?.failures).toBe(during[failing]?.attempts?.attempts);
    expect(during[failing]?.attempts?.failures).toBeGreaterThan(10);
    // It is still tried all the time.
    expect(rate(failing, 5 * second, 30 * second)).toBeGreaterThanOrEqual(0.95);
    expect(rate(failing, 5 * second, 30 * second)).toBeLessThanOrEqual(2);
    expect(rate(working, 5 * second, 30 * second)).toBeGreaterThanOrEqual(14);
    response = 200;
    await runUntil(45 * second);
    expect(rate(failing, 35 * second, 45 * second)).toBeGreaterThanOrEqual(9);
    const after = await readHosts();
    expect(after[failing]?.inFlight).toBeGreaterThanOrEqual(9);
  },
);

test("a host that fails keeps its share while no other host waits", async () => {
  publish(failing, 1_000);
  // This one always has what it needs.
  for (let at = 0; at < 30 * second; at += second)
    world.after(at, { owner: "client", what: "publish" }, () => publish(working, 2));
  await runUntil(30 * second);
  expect(rate(failing, 5 * second, 30 * second)).toBeGreaterThanOrEqual(14);
  expect(rate(working, 5 * second, 30 * second)).toBe(2);
});

test("a host gets its share back when the others no longer wait", async () => {
  publish(failing, 1_000);
  publish(working, 150);
  await runUntil(8 * second);
  expect((await readHosts())[failing]?.inFlight).toBeLessThanOrEqual(2);
  await runUntil(20 * second);
  expect(rate(working, 15 * second, 20 * second)).toBe(0);
  expect((await readHosts())[failing]?.inFlight).toBeGreaterThanOrEqual(15);
});
