import { beforeEach, expect, test } from "vitest";
import { spans } from "../../../src/engine/core/values/limits.ts";
import type { LeaseRef } from "../../../src/engine/core/model/messageState.ts";
import { MembershipGuard } from "../../../src/engine/delivery/membershipGuard.ts";
import { memoryStore } from "../../model/memoryStore.ts";
import type { Membership, Store } from "../../../src/engine/store/store.ts";
import { RandomSource } from "../../simulation/randomSource.ts";
import { NodeClock, settled, VirtualTime } from "../../simulation/virtualTime.ts";

// A node that loses its membership, in virtual time. Whole nodes are tested in the simulation.

const second = 1000;
const held = (messageId: string): LeaseRef => ({ account: "acme", messageId, attempt: 0 });

let world: VirtualTime;
let start: number;
let guard: MembershipGuard;
let happened: string[];
let isAlive: boolean;
let isAway: boolean;
let lostFor: number;
let change: (held: boolean) => Promise<void>;

beforeEach(() => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  happened = [];
  isAlive = true;
  isAway = false;
  lostFor = 0;
  let listener = (): void => undefined;
  const membership: Membership = {
    isAlive: () => isAlive,
    lostFor: () => lostFor,
    onChange: (listen) => ((listener = listen), () => (listener = () => undefined)),
  };
  const note = (what: string): void => void happened.push(`${world.now - start} ${what}`);
  const memory = memoryStore({ node: "node", now: () => world.now, random: () => 0, newId: (kind) => kind });
  const execute = async (_: string, input: unknown): Promise<void> => {
    if (isAway) throw new Error("no storage");
    note(
      `gives back ${(input as { leases: LeaseRef[] }).leases.map(({ messageId }) => messageId).join(" ")}`,
    );
  };
  const upkeep = { ...memory.upkeep, membership };
  const store = { ...memory, upkeep, execute: execute as unknown as Store["execute"] };
  const abortAll = (): LeaseRef[] => (note("aborts all"), [held("a"), held("b")]);
  guard = new MembershipGuard({
    store,
    clock: new NodeClock(world, "node"),
    abortAll,
    resume: () => note("resumes"),
  });
  change = async (now) => {
    isAlive = now;
    listener();
    await settled();
  };
});

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
  await settled();
}

test("deliveries continue if the membership is regained within 1.5 s", async () => {
  await change(false);
  await runUntil(1_499);
  await change(true);
  await runUntil(10 * second);
  expect(happened).toEqual(["1499 resumes"]);
});

test("after 1.5 s all deliveries are aborted and given back", async () => {
  await change(false);
  await runUntil(10 * second);
  expect(happened).toEqual(["1500 aborts all", "1500 gives back a b"]);
});

test("the 1.5 s start again with each loss", async () => {
  await change(false);
  await runUntil(second);
  await change(true);
  await change(false);
  await runUntil(2_499);
  expect(happened).toEqual(["1000 resumes"]);
  await runUntil(2_500);
  expect(happened.slice(1)).toEqual(["2500 aborts all", "2500 gives back a b"]);
});

test("during an outage leases are given back once the storage is available, unless expired", async () => {
  isAway = true;
  await change(false);
  await runUntil(5 * second);
  isAway = false;
  await runUntil(10 * second);
  expect(happened).toEqual(["1500 aborts all", "5500 gives back a b"]);
  isAway = true;
  guard.returnLeases([held("c")]);
  await runUntil(10 * second + spans.lease);
  isAway = false;
  await runUntil(200 * second);
  expect(happened).toHaveLength(2);
  expect(world.pending()).toEqual([]);
});

test("when the guard ends, it makes one last attempt to give leases back", async () => {
  isAway = true;
  guard.returnLeases([held("c")]);
  await runUntil(second / 2);
  isAway = false;
  await change(false);
  await guard.end();
  await change(true);
  await runUntil(200 * second);
  expect(happened).toEqual(["500 gives back c"]);
});

test("nothing is sent while leases are being given back", async () => {
  isAway = true;
  await change(false);
  expect(guard.maySend).toBe(false);
  await runUntil(2 * second);
  await change(true);
  expect(guard.maySend).toBe(false);
  isAway = false;
  await runUntil(5 * second);
  expect(guard.maySend).toBe(true);
  expect(happened).toEqual(["1500 aborts all", "2500 gives back a b", "2500 resumes"]);
});

test("the time before the loss was noticed counts towards the 1.5 s", async () => {
  lostFor = 900;
  await change(false);
  await runUntil(10 * second);
  expect(happened).toEqual(["600 aborts all", "600 gives back a b"]);
});
