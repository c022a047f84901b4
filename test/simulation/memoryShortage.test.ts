import { beforeEach, expect, test } from "vitest";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { MessageInput } from "../../src/engine/core/model/message.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { makeInput } from "../engine/core/commandRunner.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import { RandomSource } from "./randomSource.ts";
import { acme, createTimedDeliver, type TimedCall } from "./timedDeliver.ts";
import { NodeClock, settled, VirtualTime } from "./virtualTime.ts";

// Bodies use up the memory for bodies of a node for ten minutes, because their hosts hang: one dispatcher in
// virtual time.

const second = 1000;
const minute = 60 * second;
const large = { url: "https://hang.example/", body: new Uint8Array(1_500), timeout: 20 * minute };

let world: VirtualTime;
let start: number;
let rows: Memory;
let store: Store;
let calls: TimedCall[];
let claims: number;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  rows = new Memory();
  calls = [];
  claims = 0;
  const random = (): number => world.random.next();
  const source = { node: "node", now: () => world.now, random, newId: createIdGenerator(random) };
  const memory = createGroupCommitStore(memoryParts(source, rows));
  store = {
    ...memory,
    execute: (name, input, options) => {
      if (name === "claim") claims++;
      return memory.execute(name, input, options);
    },
  };
  const other = { ...acme, id: "other", token: "other", tokenHash: "other" };
  for (const account of [acme, other]) await store.execute("createAccount", account);
});

function startDispatcher(total: number): Dispatcher {
  const takes: Record<string, number> = { "slow.example": 5 * second };
  const deliver = createTimedDeliver({
    world,
    start,
    calls,
    answersAfter: (host) => (host.startsWith("hang") ? 10 * minute : (takes[host] ?? 10)),
  });
  const log = { attempt: () => undefined, failure: (what: string) => expect.unreachable(what) };
  const capacity = { total, perHost: total, bytes: { total: 1_000, perBatch: 1_000 } };
  const dispatcher = new Dispatcher({ store, deliver, clock: new NodeClock(world, "node"), log, capacity });
  dispatcher.start();
  return dispatcher;
}

const publish = (account: string, ...inputs: Partial<MessageInput>[]): void =>
  void store.execute("publish", { account, inputs: inputs.map((input) => makeInput(input)) });

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

test("messages that wait for memory are not looked for, and are sent when it is released", async () => {
  const dispatcher = startDispatcher(100);
  publish("acme", large);
  await runUntil(second);
  const urls = Array.from({ length: 20 }, (_, n) => ({ url: `https://h${n}.example/` }));
  for (const account of ["acme", "other"]) publish(account, ...urls);
  await runUntil(10 * second);
  const waitlists = [...rows.tables.hostWaitlists.values()];
  expect(waitlists).toHaveLength(40);
  expect(dispatcher.couldSend()).toBe(false);

  claims = 0;
  await runUntil(9 * minute);
  expect([...rows.tables.hostWaitlists.values()]).toEqual(waitlists);
  // The only claims are those at the ends of leases that were renewed, every 7.5 s.
  expect(claims).toBeLessThanOrEqual((9 * minute) / (7.5 * second));
  expect(calls).toHaveLength(1);

  await runUntil(10 * minute + second);
  expect(calls).toHaveLength(41);
  expect(rows.tables.hostWaitlists.size).toBe(0);
  expect(dispatcher.couldSend()).toBe(true);
});

test("a node without memory claims again when it has deliveries to give", async () => {
  startDispatcher(2);
  publish("acme", { url: "https://slow.example/" });
  await runUntil(100);
  publish("acme", large);
  await runUntil(second);
  publish("acme", { url: "https://shop.example/" });
  await runUntil(4 * second);
  const readStates = () => [...rows.tables.messages.values()].map(({ host, state }) => `${host} ${state}`);
  expect(readStates().toSorted()).toEqual([
    "hang.example active",
    "shop.example pending",
    "slow.example active",
  ]);
  await runUntil(6 * second);
  expect(readStates().toSorted()).toEqual(["hang.example active", "shop.example held"]);
});

/** Starts a run whose history takes up a third of the memory, at an endpoint that cannot fetch it. */
function startLargeRun(host: string): void {
  const url = `https://${host}/`;
  const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
  const post = { kind: "start", runId: `wfr_${host}`, url, features, origin: "sdk", invoker: null } as const;
  publish("acme", { url, post, body: new Uint8Array(200), timeout: 20 * minute });
}

test("large histories to hosts that hang leave memory to others, and go when it is released", async () => {
  const dispatcher = startDispatcher(100);
  for (const host of ["hang1.example", "hang2.example", "hang3.example"]) startLargeRun(host);
  await runUntil(10 * second);
  expect(calls.map(({ host }) => host)).toEqual(["hang1.example", "hang2.example"]);
  expect(dispatcher.readCapacity().bytes.free).toBeGreaterThan(1_000 / 8);

  publish("other", { url: "https://shop.example/", body: new Uint8Array(10) });
  await runUntil(11 * second);
  expect(calls.at(-1)?.host).toBe("shop.example");

  claims = 0;
  await runUntil(9 * minute);
  expect(calls).toHaveLength(3);
  // The waitlist is checked every 5 s, and leases that were renewed are looked at every 7.5 s.
  expect(claims).toBeLessThanOrEqual((9 * minute) / (2.5 * second));

  await runUntil(10 * minute + second);
  // The delivery that releases memory wakes the waitlist at once.
  expect(calls.at(-1)).toMatchObject({ host: "hang3.example", at: (calls[0]?.at ?? 0) + 10 * minute });
});
