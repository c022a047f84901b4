import { beforeEach, describe, expect, test } from "vitest";
import type { DueRow } from "../../src/engine/core/model/dueRow.ts";
import type { CommandResult, CommandName, CommandInput } from "../../src/engine/store/catalog/commands.ts";
import { Refusal } from "../../src/engine/core/values/errors.ts";
import { createIdGenerator } from "../../src/engine/core/values/ids.ts";
import type { MessageInput } from "../../src/engine/core/model/message.ts";
import { Dispatcher } from "../../src/engine/delivery/dispatcher.ts";
import { createGroupCommitStore } from "../../src/engine/store/batch/groupCommit.ts";
import { Memory, memoryParts } from "../model/memoryStore.ts";
import type { Store } from "../../src/engine/store/store.ts";
import { callbackTo, makeInput } from "../engine/core/commandRunner.ts";
import { RandomSource } from "./randomSource.ts";
import { acme, createTimedDeliver, type TimedCall } from "./timedDeliver.ts";
import { NodeClock, VirtualTime, settled } from "./virtualTime.ts";

// Cases that the simulation has found, or must not meet again, with exact figures: one dispatcher in virtual
// time.

const second = 1000;
const minute = 60 * second;
const claimFails = "could not claim due messages; retrying every second";

let world: VirtualTime;
let start: number;
let clock: NodeClock;
let store: Store;
let rows: Memory;
/** Returns the store as another node sees it. */
let storeOf: (node: string) => Store;
let calls: TimedCall[];
let asked: Partial<Record<CommandName, number>>;
let troubles: string[];
/** Commands that fail. */
let broken: Set<CommandName>;
/** How far the clock of the store is ahead, in milliseconds. */
let storeAhead: number;
/** Whether the storage is unavailable. */
let isAway: boolean;
/** How long a commit takes, in milliseconds. */
let commit: number;
/** How long destinations take to respond: all the same time, or by host. */
let takes: number;
let answersAfter: (host: string) => number;

beforeEach(async () => {
  world = new VirtualTime(new RandomSource(1));
  start = world.now;
  clock = new NodeClock(world, "node");
  calls = [];
  asked = {};
  troubles = [];
  broken = new Set();
  takes = 10;
  isAway = false;
  answersAfter = () => takes;
  commit = 1;
  storeAhead = 0;
  rows = new Memory();
  const random = (): number => world.random.next();
  storeOf = (node) =>
    createGroupCommitStore(
      memoryParts(
        { node, now: () => world.now + storeAhead, random, newId: createIdGenerator(random) },
        rows,
      ),
    );
  const memory = storeOf("node");
  store = {
    ...memory,
    // A commit takes time.
    execute: async <N extends CommandName>(name: N, input: CommandInput<N>): Promise<CommandResult<N>> => {
      asked[name] = (asked[name] ?? 0) + 1;
      await world.wait(commit, { owner: "store", what: "disk" });
      if (broken.has(name)) throw new Error("no disk");
      if (isAway) throw new Refusal("unavailable", "no storage");
      return memory.execute(name, input);
    },
  };
  await memory.execute("createAccount", acme);
});

function dispatcher(total = 10): Dispatcher {
  const deliver = createTimedDeliver({ world, start, calls, answersAfter: (host) => answersAfter(host) });
  const log = { attempt: () => undefined, failure: (what: string) => troubles.push(what) };
  const made = new Dispatcher({ store, deliver, clock, log, capacity: { total, perHost: total } });
  made.start();
  return made;
}

const publish = (input: Partial<MessageInput>): void =>
  void store.execute("publish", { account: "acme", inputs: [makeInput(input)] });

async function runUntil(at: number): Promise<void> {
  await settled();
  while (await world.step(start + at));
  world.now = start + at;
}

test("a message of a run without its history is not sent and fails without retries", async () => {
  dispatcher();
  const features = { lazyFetch: false, initialBody: true, detect: false, captured: true };
  const url = "https://flow.example/f";
  publish({
    url,
    post: { kind: "start", runId: "wfr_1", url, features, origin: "sdk", invoker: null },
    retries: 5,
  });
  const head = { stepId: 1, stepName: "s", stepType: "SleepFor", concurrent: 1 };
  await runUntil(100);
  publish({ url, delay: second, post: { kind: "step", runId: "wfr_1", head } });
  await runUntil(500);
  rows.tables.steps.clear();
  await runUntil(2 * second);
  expect(calls).toHaveLength(1);
  expect(troubles).toEqual(["the stored data is inconsistent"]);
  expect([...rows.tables.messages.values()]).toEqual([]);
  expect([...rows.tables.deadLetters.values()]).toMatchObject([
    { error: "the history of the run is missing or damaged", retried: 0 },
  ]);
});

describe.each([
  ["correct", 0],
  ["an hour ahead", 60 * minute],
  ["five seconds behind", -5 * second],
  ["an hour behind", -60 * minute],
])("a node whose clock is %s", (_, ahead) => {
  test("sends at the store's time, with no unnecessary claims", async () => {
    clock.clockOffset = ahead;
    dispatcher();
    publish({ delay: 5 * minute });
    await runUntil(10 * minute);
    expect(calls).toHaveLength(1);
    expect(calls[0]?.at).toBeGreaterThanOrEqual(5 * minute);
    expect(calls[0]?.at).toBeLessThan(5 * minute + 20);
    // Claims at the start, when the message is published, when it is due, and when its lease would expire;
    // and a few to be safe.
    expect(asked.claim).toBeLessThanOrEqual(8);
  });
});

test("an error that repeats every second is logged once a minute, and at once after a success", async () => {
  dispatcher();
  publish({ delay: second });
  publish({ delay: 2.7 * minute });
  await runUntil(100);
  isAway = true;
  await runUntil(2.5 * minute);
  expect(troubles).toEqual([claimFails, claimFails, claimFails]);
  expect(asked.claim).toBeGreaterThan(140);
  isAway = false;
  await runUntil(2.6 * minute);
  expect(calls).toHaveLength(1);
  isAway = true;
  await runUntil(2.8 * minute);
  expect(troubles).toHaveLength(4);
});

test("another error is logged at once", async () => {
  dispatcher();
  publish({ delay: second });
  await runUntil(100);
  isAway = true;
  await runUntil(10 * second);
  isAway = false;
  broken = new Set(["claim", "listDue"]);
  await runUntil(20 * second);
  expect(troubles).toEqual([claimFails, claimFails]);
});

test.each([60 * minute, -60 * minute])(
  "a clock change of %d ms makes a sleeping dispatcher neither late nor busy",
  async (by) => {
    dispatcher();
    publish({ delay: 5 * minute });
    await runUntil(minute);
    clock.clockOffset = by;
    await runUntil(10 * minute);
    expect(calls).toHaveLength(1);
    expect(calls[0]?.at).toBeLessThan(5 * minute + 20);
    expect(asked.claim).toBeLessThanOrEqual(8);
  },
);

test.each([0, 60 * minute, -60 * minute])(
  "a lease is kept during a delivery, even if the clock changes by %d ms",
  async (by) => {
    takes = 5 * minute;
    dispatcher();
    publish({});
    await runUntil(minute);
    clock.clockOffset = by;
    await runUntil(10 * minute);
    expect(calls).toHaveLength(1);
    expect(asked.renew).toBe(39);
  },
);

test("messages in flight are not sent again if both clocks jump ahead by a day", async () => {
  dispatcher();
  takes = 20 * second;
  publish({ url: "https://slow.example" });
  publish({ url: "https://other.example", delay: 3 * second });
  await runUntil(2 * second);
  clock.clockOffset = storeAhead = 24 * 60 * minute;
  await runUntil(60 * second);
  expect(calls.map(({ host }) => host)).toEqual(["slow.example", "other.example"]);
  expect(troubles).toEqual([]);
});

test("a lease survives two failed renewals in a row", async () => {
  takes = minute;
  dispatcher();
  publish({});
  await runUntil(10 * second);
  broken.add("renew");
  await runUntil(24 * second);
  broken.clear();
  await runUntil(2 * minute);
  expect(calls).toHaveLength(1);
  expect(troubles).toHaveLength(2);
});

test("a lease that can be neither renewed nor returned does not affect the others", async () => {
  takes = 5 * minute;
  const stopped = dispatcher();
  for (let count = 0; count < 5; count++) publish({});
  await runUntil(second);
  expect(calls).toHaveLength(5);
  const refused = calls[3]?.delivery.message.id;
  const kept = new Set<string>();
  const { execute } = store;
  store.execute = async (name, input, haste) => {
    const { leases = [] } = input as Partial<CommandInput<"renew">>;
    if (leases.some(({ messageId }) => messageId === refused)) throw new Error("row refused");
    for (const { messageId } of leases) kept.add(`${name} ${messageId}`);
    return execute(name, input, haste);
  };
  const others = new Set(calls.map(({ delivery }) => delivery.message.id).filter((id) => id !== refused));
  await runUntil(16 * second);
  expect(kept).toEqual(new Set([...others].map((id) => `renew ${id}`)));
  expect(troubles).toEqual(["could not renew leases; trying again"]);
  kept.clear();
  void stopped.stop(second);
  await runUntil(18 * second);
  expect(kept).toEqual(new Set([...others].map((id) => `returnLeases ${id}`)));
});

test.each([
  ["at once if this node cancelled it", "node", second + 10],
  ["at the next renewal if another node cancelled it", "other", 7.5 * second + 10],
])("a request whose message is cancelled is aborted %s, and the next one is sent", async (_, node, most) => {
  takes = 5 * minute;
  dispatcher();
  publish({ queue: "q" });
  publish({ queue: "q" });
  await runUntil(second);
  const [first] = calls;
  const canceller = node === "node" ? store : storeOf(node);
  void canceller.execute("cancel", { account: "acme", messageIds: [first?.delivery.message.id ?? ""] });
  await runUntil(minute);
  expect(calls).toHaveLength(2);
  expect(calls[1]?.at).toBeGreaterThanOrEqual(most - 10);
  expect(calls[1]?.at).toBeLessThanOrEqual(most);
  const page = { account: "acme", order: "latestFirst", cursor: null, count: 9 } as const;
  const { events } = await store.read.log({ ...page, filter: { states: ["CANCELLED"] } });
  expect(events).toMatchObject([{ row: { messageId: first?.delivery.message.id, error: "aborted" } }]);
});

test("hosts that together need more than the capacity get equal shares", async () => {
  takes = second;
  const hosts = ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"];
  dispatcher(4);
  for (let at = 0; at < 2 * minute; at += second / 2) {
    for (const host of hosts) {
      world.after(at + world.random.integerBetween(0, 400), { owner: "client", what: "publish" }, () =>
        publish({ url: `https://${host}/` }),
      );
    }
  }
  await runUntil(2 * minute);
  const counts = hosts.map((host) => calls.filter((call) => call.host === host).length);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(8);
  expect(counts.reduce((sum, count) => sum + count)).toBeGreaterThan(450);
});

test("a stop that cannot give back its messages still ends, and logs this", async () => {
  takes = 5 * minute;
  const stopped = dispatcher();
  publish({});
  await runUntil(second);
  broken.add("returnLeases");
  let ended = false;
  void stopped.stop(2 * second).then(() => (ended = true));
  await runUntil(4 * second);
  expect(ended).toBe(true);
  expect(troubles).toEqual([
    "could not give back unfinished messages; they are sent again when their leases expire",
  ]);
});

test("a row that can be neither claimed nor quarantined does not block a node or keep it busy", async () => {
  publish({});
  await runUntil(100);
  const due = store.execute("listDue", { limit: 10 });
  await runUntil(200);
  const [refused] = (await due).rows.map(({ id }) => id);
  const names = (rows: readonly DueRow[]): boolean => rows.some(({ id }) => id === refused);
  const { execute } = store;
  store.execute = async (name, input, haste) => {
    const { only, except = [] } = input as Partial<CommandInput<"claim">>;
    const looksAtIt = name === "claim" && (only ? names(only) : !names(except));
    if (looksAtIt || name === "quarantine") throw new Error("row refused");
    return execute(name, input, haste);
  };
  dispatcher();
  for (let at = second; at < 5 * minute; at += second) {
    world.after(at, { owner: "client", what: "publish" }, () =>
      publish({ url: "https://other.example/", delay: 100 }),
    );
  }
  await runUntil(5 * minute);
  expect(calls.length).toBeGreaterThan(290);
  expect(calls.every(({ host }) => host === "other.example")).toBe(true);
  expect(Math.max(...calls.map(({ at }) => at % second))).toBeLessThan(500);
  const pauses = troubles.map((what) => Number(/skipping it for (\d+) s$/.exec(what)?.[1]));
  expect(pauses).toEqual([1, 2, 4, 8, 60, 60, 60, 60, 60]);
  expect(asked.claim).toBeLessThan(1_500);
});

test("an idle node does nothing", async () => {
  dispatcher();
  publish({});
  await runUntil(5 * minute);
  expect(calls).toHaveLength(1);
  expect(world.pending()).toEqual([]);
});

test("a backlog of a host that hangs delays other messages by less than a second", async () => {
  answersAfter = (host) => (host === "dead.example" ? 15 * minute : 10);
  // The messages of a node that was down, all due when the next one starts.
  for (let count = 0; count < 40; count++) {
    const inputs = Array.from({ length: 500 }, () => makeInput({ url: "https://dead.example/" }));
    void store.execute("publish", { account: "acme", inputs });
  }
  await runUntil(100);
  commit = 20;
  dispatcher(60);
  const published: number[] = [];
  for (let at = 200; at < 10 * second; at += 75) {
    world.after(at - 100, { owner: "client", what: "publish" }, () => {
      published.push(world.now - start);
      publish({ url: "https://healthy.example/" });
    });
  }
  await runUntil(11 * second);
  const sent = calls.filter(({ host }) => host === "healthy.example").map(({ at }) => at);
  expect(sent).toHaveLength(published.length);
  expect(Math.max(...sent.map((at, index) => at - (published[index] ?? 0)))).toBeLessThan(second);
  expect(calls.filter(({ host }) => host === "dead.example")).toHaveLength(30);
  expect(asked.claim).toBeLessThan(1_000);
});

test("an outcome may wait for a batch, unless a message or a callback may wait for it", async () => {
  const hastes: unknown[] = [];
  const { execute } = store;
  store.execute = (name, input, haste) => {
    if (name === "settle") hastes.push(haste);
    return execute(name, input);
  };
  dispatcher();
  await runUntil(second);
  const flowControl = { key: "k", parallelism: 1, rate: null, period: null };
  const callback = callbackTo("https://told.example/");
  for (const [turn, input] of [{}, { queue: "q" }, { flowControl }, { callback }].entries()) {
    publish(input);
    await runUntil((turn + 2) * second);
  }
  const atOnce = { canWait: false };
  // The last two are the message with a callback, and its callback.
  expect(hastes).toEqual([{ canWait: true }, atOnce, atOnce, atOnce, atOnce]);
});

test("messages delivered during an outage are settled after it and not sent again", async () => {
  takes = 10 * second;
  dispatcher();
  for (const url of ["https://one.example/", "https://two.example/"]) publish({ url });
  await runUntil(5 * second);
  isAway = true;
  // The leases expire during the outage.
  await runUntil(10 * minute);
  expect(calls).toHaveLength(2);
  isAway = false;
  await runUntil(20 * minute);
  expect(calls).toHaveLength(2);
  const { messageIds } = await store.read.unfinished({ account: "acme", filter: {}, cursor: null, count: 9 });
  expect(messageIds).toEqual([]);
});
