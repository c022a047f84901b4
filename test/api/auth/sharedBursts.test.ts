import { beforeEach, describe, expect, test } from "vitest";
import { createAccessCounters } from "../../../src/api/auth/accessCounters.ts";
import { SharedBursts } from "../../../src/api/auth/sharedBursts.ts";
import type { Burst } from "../../../src/engine/core/limits/requestRate.ts";
import type { CommandName } from "../../../src/engine/store/catalog/commands.ts";
import type { Account } from "../../../src/engine/core/model/account.ts";
import type { Millis } from "../../../src/engine/core/values/basics.ts";
import { Memory, memoryStore } from "../../model/memoryStore.ts";
import type { Store } from "../../../src/engine/store/store.ts";
import { makeAccount, createSource, TestClock } from "../../engine/store/storeFixture.ts";
import { testTime, createTestServer } from "../testServer.ts";

// A node among several that share the requests of a second through their store.

const clock = new TestClock();
const second = 1000;
let memory: Memory;
let account: Account;
/** The commands that the nodes have executed. */
let asked: CommandName[];

const forever = new Promise<void>(() => undefined);

/** Returns a node that waits for the store as long as the test determines. */
function node(
  name: string,
  { ask, patience = forever }: { ask?: () => Promise<never> | null; patience?: Promise<void> } = {},
) {
  const store = memoryStore(createSource(clock, name), memory);
  const execute = ((command: CommandName, input: never) => {
    asked.push(command);
    return ask?.() ?? store.execute(command, input);
  }) as Store["execute"];
  const bursts = new SharedBursts({ store: { execute }, now: () => clock.now, sleep: () => patience });
  return (): Promise<Burst | null> => Promise.resolve(bursts.count(account, clock.now));
}

async function limit(requestsPerSecond: number | null): Promise<void> {
  const store = memoryStore(createSource(clock, "nod_z"), memory);
  account = await store.execute("changeAccount", {
    account: "acc",
    change: { limits: { requestsPerSecond } },
  });
}

beforeEach(async () => {
  memory = new Memory();
  asked = [];
  clock.now = Math.ceil((clock.now + 1) / second) * second;
  await memoryStore(createSource(clock, "nod_z"), memory).execute("createAccount", makeAccount("acc"));
  await limit(50);
});

const taken = (all: readonly (Burst | null)[]): number => all.filter((burst) => burst?.taken).length;

describe("requests per second at several nodes", () => {
  test("are admitted up to the limit by all nodes together", async () => {
    const nodes = [node("nod_a"), node("nod_b"), node("nod_c")];
    const all = await Promise.all(
      Array.from({ length: 90 }, (_, index) => (nodes[index % 3] ?? node("none"))()),
    );
    expect(taken(all)).toBe(50);
    expect(all.filter((burst) => !burst?.taken).every((burst) => burst?.remaining === 0)).toBe(true);
    expect(new Set(all.map((burst) => burst?.resetAt))).toEqual(new Set([clock.now / second + 1]));
    clock.now += second;
    expect(await nodes[0]?.()).toMatchObject({ taken: true, remaining: 49 });
  });

  test("in sequence at one node are admitted up to the limit, and the store is rarely asked", async () => {
    const ask = node("nod_a");
    const remaining: number[] = [];
    for (let count = 0; count < 50; count++) remaining.push((await ask())?.remaining ?? -1);
    expect(remaining).toEqual(Array.from({ length: 50 }, (_, index) => 49 - index));
    expect(asked).toHaveLength(22);
    for (let count = 0; count < 10; count++)
      expect(await ask()).toMatchObject({ taken: false, remaining: 0, limit: 50 });
    // A node that knows that nothing is left does not ask the store.
    expect(asked).toHaveLength(22);
  });

  test("in turn at each node use up the whole limit", async () => {
    await limit(10);
    const nodes = [node("nod_a"), node("nod_b"), node("nod_c")];
    const all = [];
    for (let count = 0; count < 12; count++) all.push(await nodes[count % 3]?.());
    expect(all.map((burst) => burst?.taken)).toEqual(Array.from({ length: 12 }, (_, index) => index < 10));
  });

  test("that wait for the store share its answer", async () => {
    const ask = node("nod_a");
    expect(taken(await Promise.all(Array.from({ length: 60 }, ask)))).toBe(50);
    expect(asked).toHaveLength(2);
  });

  test("granted in one second are not admitted in the next, regardless of the node's clock", async () => {
    const ask = node("nod_a");
    for (let count = 0; count < 28; count++) await ask();
    const before = asked.length;
    clock.now += 999;
    await ask();
    expect(asked.length).toBe(before);
    clock.now += 1;
    expect(await ask()).toMatchObject({ remaining: 49, resetAt: clock.now / second + 1 });
    expect(memory.tables.secondCounts.get("acc")).toMatchObject({ requests: 1 });
    clock.now -= 5_000;
    await ask();
    expect(asked).toHaveLength(before + 2);
  });

  test("do not ask the store without a limit, and follow a limit that was removed", async () => {
    const ask = node("nod_a");
    await limit(null);
    expect(await ask()).toBeNull();
    expect(asked).toEqual([]);
    const before = account;
    await limit(5);
    await ask();
    await limit(null);
    account = { ...before, limits: { requestsPerSecond: 5 } };
    // This node has not received the change yet. The row of the account shows it.
    clock.now += second;
    expect(await ask()).toBeNull();
  });
});

describe("a store that fails, or takes too long", () => {
  test("makes each node count alone, so that no request is refused because of it", async () => {
    await limit(2);
    let fails = true;
    const ask = node("nod_a", { ask: () => (fails ? Promise.reject(new Error("away")) : null) });
    expect([await ask(), await ask(), await ask()]).toMatchObject([
      { taken: true, remaining: 1 },
      { taken: true },
      { taken: false },
    ]);
    fails = false;
    expect(await ask()).toMatchObject({ taken: true, remaining: 1 });
    expect(memory.tables.secondCounts.size).toBe(1);
  });

  test("is waited for at most 2 s, and not asked again before it has answered", async () => {
    await limit(3);
    let answer: () => void = () => undefined;
    let isSlow = true;
    const slow = () =>
      isSlow ? new Promise<never>((_, reject) => (answer = () => reject(new Error("at last")))) : null;
    const until: Millis[] = [];
    const bursts = new SharedBursts({
      store: {
        execute: ((name: CommandName, input: never) => (
          asked.push(name),
          slow() ?? store.execute(name, input)
        )) as Store["execute"],
      },
      now: () => clock.now,
      sleep: async (at) => void (isSlow ? until.push(at) : await forever),
    });
    const store = memoryStore(createSource(clock, "nod_a"), memory);
    const ask = async () => bursts.count(account, clock.now);
    expect(await ask()).toMatchObject({ taken: true, remaining: 2 });
    expect(until).toEqual([clock.now + 2_000]);
    expect([await ask(), await ask(), await ask()].map((burst) => burst?.taken)).toEqual([true, true, false]);
    expect(asked).toHaveLength(1);
    isSlow = false;
    answer();
    await new Promise(setImmediate);
    expect(await ask()).toMatchObject({ taken: true, remaining: 2 });
    expect(asked).toHaveLength(2);
  });
});

test("two nodes refuse with the same headers and error as one, and do not count publishes", async () => {
  const names: CommandName[] = [];
  const counting = (store: Store): Store => ({
    ...store,
    execute: (name, input, how) => (names.push(name), store.execute(name, input, how)),
  });
  const own: { store?: Store } = {};
  const take = ((name: CommandName, input: never) =>
    counting(own.store as Store).execute(name, input)) as Store["execute"];
  const sharing = { store: { execute: take }, now: () => testTime, sleep: () => forever };
  const one = await createTestServer({
    counted: createAccessCounters(() => testTime, sharing),
    wrap: counting,
  });
  own.store = one.store;
  const two = await createTestServer({
    counted: createAccessCounters(() => testTime, sharing),
    wrap: () => one.store,
  });
  await one.store.execute("changeAccount", {
    account: "acc_1",
    change: { limits: { requestsPerSecond: 3 } },
  });
  const list = (server: typeof one) => server.ask("GET", "/v2/queues");
  const told = (left: number) => ({
    "burst-ratelimit-limit": "3",
    "burst-ratelimit-remaining": String(left),
    "burst-ratelimit-reset": String(testTime / 1000 + 1),
  });
  expect(await list(one)).toMatchObject({ status: 200, headers: told(2) });
  expect(await list(two)).toMatchObject({ status: 200, headers: told(1) });
  expect(await list(one)).toMatchObject({ status: 200, headers: told(0) });
  const refused = await list(two);
  expect(refused).toMatchObject({ status: 429, headers: { ...told(0), "retry-after": "1" } });
  expect(refused.body.error).toMatch(/^requests: limit of 3 per second exceeded/);
  names.length = 0;
  const published = await one.ask("POST", "/v2/publish/https://e.example/", { body: "x" });
  expect(published.status).toBe(200);
  expect(published.headers).not.toHaveProperty("burst-ratelimit-limit");
  expect(names).toEqual(["publish"]);
});
