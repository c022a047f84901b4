import { beforeEach, expect, test } from "vitest";
import type { CommandName } from "../../src/engine/store/catalog/commands.ts";
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

// A dispatcher in virtual time whose deliveries are settled by steps before their requests end.

const second = 1000;
/** How long the endpoint takes to respond. */
const takes = 10 * second;
const url = "https://flow.example/f";

let world: VirtualTime;
let start: number;
let store: Store;
let rows: Memory;
let calls: TimedCall[];
let asked: Partial<Record<CommandName, number>>;
/** The results of attempts in the log of the server. */
let ended: string[];

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  calls = [];
  asked = {};
  ended = [];
  rows = new Memory();
  const random = (): number => world.random.next();
  const memory = createGroupCommitStore(
    memoryParts({ node: "node", now: () => world.now, random, newId: createIdGenerator(random) }, rows),
  );
  store = {
    ...memory,
    execute: (name, input, options) => {
      asked[name] = (asked[name] ?? 0) + 1;
      return memory.execute(name, input, options);
    },
  };
  await memory.execute("createAccount", acme);
});

function startDispatcher(total: number): Dispatcher {
  const deliver = createTimedDeliver({ world, start, calls, answersAfter: () => takes });
  const log = {
    attempt: (...[, , became]: [unknown, unknown, string]) => void ended.push(became),
    failure: (what: string, error: unknown) => expect.unreachable(`${what}: ${String(error)}`),
  };
  const dispatcher = new Dispatcher({
    store,
    deliver,
    clock: new NodeClock(world, "node"),
    log,
    capacity: { total, perHost: total },
  });
  dispatcher.start();
  return dispatcher;
}

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

const publish = (input: Partial<MessageInput>): void =>
  void store.execute("publish", { account: "acme", inputs: [makeInput({ url, ...input })] });

const features = { lazyFetch: true, initialBody: true, detect: true, captured: true };
const startRun = (): void =>
  publish({ post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null } });
const postStep = (): void =>
  publish({
    post: {
      kind: "step",
      runId: "wfr_1",
      head: { stepId: 1, stepName: "s", stepType: "Run", concurrent: 1 },
    },
  });
const callTimes = (): number[] => calls.map(({ at }) => at);

test("a settled outcome is not stored, and its capacity is used until the request ends", async () => {
  const dispatcher = startDispatcher(10);
  startRun();
  await runUntil(second);
  postStep();
  await runUntil(2 * second);
  // The step waits a moment for the response, which takes longer.
  expect(callTimes()).toEqual([0, second + 50]);
  expect(dispatcher.deliveries.count).toBe(2);
  await runUntil(takes + 500);
  expect(dispatcher.deliveries.count).toBe(1);
  expect([asked.settle, ended]).toEqual([undefined, ["delivered"]]);
  await runUntil(2 * takes);
  expect([asked.settle, ended]).toEqual([1, ["delivered", "delivered"]]);
  expect([...rows.tables.messages.values()]).toEqual([]);
});

test("a message that waits for the capacity is sent as soon as a settled request ends", async () => {
  // With two deliveries in all, one host may have one.
  startDispatcher(2);
  startRun();
  await runUntil(250);
  postStep();
  await runUntil(takes - 1);
  expect(callTimes()).toEqual([0]);
  await runUntil(takes + second);
  expect(callTimes()).toEqual([0, takes]);
});

test("the lease of a settled delivery is neither renewed nor given back", async () => {
  const dispatcher = startDispatcher(10);
  startRun();
  await runUntil(second);
  await store.execute("finishRun", { account: "acme", runId: "wfr_1", body: new Uint8Array(0) });
  await runUntil(9 * second);
  const stopped = dispatcher.stop(0);
  await runUntil(takes + second);
  await stopped;
  expect([asked.renew, asked.returnLeases, ended]).toEqual([undefined, undefined, []]);
  expect([...rows.tables.log.values()].flatMap(({ states }) => states)).toEqual(["DELIVERED"]);
});
