import { expect, test } from "vitest";
import type { Outcome } from "../../../../src/engine/core/model/attempt.ts";
import type { Delivery } from "../../../../src/engine/core/model/delivery.ts";
import { noBytes } from "../../../../src/engine/core/values/basics.ts";
import { createGroupCommitStore } from "../../../../src/engine/store/batch/groupCommit.ts";
import { Unavailable } from "../../../../src/engine/store/layout/storageErrors.ts";
import { type CommandCall } from "../../../../src/engine/store/store.ts";
import { NoRoom } from "../../../../src/engine/store/layout/storageErrors.ts";
import { Interrupted } from "../../../../src/engine/store/layout/storageErrors.ts";
import { makeInput } from "../storeFixture.ts";

const outcome: Outcome = {
  account: "a",
  messageId: "msg_1",
  host: "h.example",
  attempt: 0,
  status: 200,
  headers: [],
  body: noBytes,
  error: null,
  took: 1,
};

/** Returns a store that only records its batches. The test ends its delays. */
function openNotingStore() {
  const batches: string[][] = [];
  let delayed: (() => void) | null = null;
  const read = new Proxy({}, { get: () => async () => null });
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.map(({ name }) => name));
      return {
        replies: calls.map(() => ({ answer: null })),
        deliveries: [],
        abortedLeases: [],
        settledLeases: [],
        dueAt: null,
        faults: [],
        activities: [],
        changedRows: 0,
      };
    },
    read: read as never,
    nextDueAt: async () => null,
    coalesceDelay: (run) => {
      delayed = run;
      return () => (delayed = null);
    },
    close: async () => undefined,
  });
  return { store, batches, endPause: () => delayed?.(), isDelaying: () => delayed !== null };
}

test("an outcome that can wait shares the batch of the next publish", async () => {
  const { store, batches } = openNotingStore();
  const settled = store.execute("settle", outcome, { canWait: true });
  await Promise.resolve();
  expect(batches).toEqual([]);
  await Promise.all([settled, store.execute("publish", { account: "a", inputs: [] })]);
  expect(batches).toEqual([["settle", "publish"]]);
});

test("an outcome that arrives after a batch is delayed for the whole time", async () => {
  const { store, batches, endPause, isDelaying } = openNotingStore();
  const first = store.execute("settle", outcome, { canWait: true });
  expect(isDelaying()).toBe(true);
  await Promise.all([first, store.execute("publish", { account: "a", inputs: [] })]);
  expect(isDelaying()).toBe(false);
  const second = store.execute("settle", outcome, { canWait: true });
  expect(isDelaying()).toBe(true);
  endPause();
  await second;
  expect(batches).toEqual([["settle", "publish"], ["settle"]]);
});

test("an outcome that can wait is stored alone after the pause if no other call arrives", async () => {
  const { store, batches, endPause } = openNotingStore();
  const settled = [
    store.execute("settle", outcome, { canWait: true }),
    store.execute("settle", outcome, { canWait: true }),
  ];
  await Promise.resolve();
  expect(batches).toEqual([]);
  endPause();
  await Promise.all(settled);
  expect(batches).toEqual([["settle", "settle"]]);
});

test("an outcome that cannot wait is stored at once, and waiting outcomes are stored on close", async () => {
  const { store, batches } = openNotingStore();
  await store.execute("settle", outcome);
  expect(batches).toEqual([["settle"]]);
  const settled = store.execute("settle", outcome, { canWait: true });
  await store.close();
  await settled;
  expect(batches).toEqual([["settle"], ["settle"]]);
});

test("batches run one at a time, and each is given the capacity that the previous one left", async () => {
  const free: number[] = [];
  const ends: (() => void)[] = [];
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[], capacity) => {
      free.push(capacity.free);
      await new Promise<void>((resolve) => ends.push(resolve));
      const deliveries = calls.map(() => ({}) as Delivery);
      return {
        replies: calls.map(() => ({ answer: [] })),
        deliveries,
        abortedLeases: [],
        settledLeases: [],
        dueAt: null,
        faults: [],
        activities: [],
        changedRows: 0,
      };
    },
    read: new Proxy({}, { get: () => async () => null }) as never,
    nextDueAt: async () => null,
    close: async () => undefined,
  });
  let left = 10;
  const bytes = { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} };
  const readCapacity = () => ({
    free: left,
    perHost: 1_000,
    backlog: false,
    runningByLane: new Map(),
    bytes,
  });
  store.attach({
    readCapacity,
    deliver: () => left--,
    abort: () => undefined,
    renewLeases: () => undefined,
    settled: () => undefined,
    fault: () => undefined,
  });
  const publish = () => store.execute("publish", { account: "a", inputs: [makeInput()] });
  const first = [publish(), publish()];
  await Promise.resolve();
  const others = [publish(), publish(), publish()];
  await Promise.resolve();
  expect(free).toEqual([10]);
  ends[0]?.();
  await Promise.all(first);
  await Promise.resolve();
  expect(free).toEqual([10, 8]);
  ends[1]?.();
  await Promise.all(others);
  expect(left).toBe(5);
});

/**
 * Returns a store that records the sizes of its batches and polls when the test decides. Each batch waits for
 * `run`.
 */
function openPollingStore(run: () => Promise<void>) {
  const batches: number[] = [];
  const polls: (() => void)[] = [];
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.length);
      await run();
      return {
        replies: calls.map(() => ({ answer: null })),
        deliveries: [],
        abortedLeases: [],
        settledLeases: [],
        dueAt: null,
        faults: [],
        activities: [],
        changedRows: 0,
      };
    },
    read: new Proxy({}, { get: () => async () => null }) as never,
    nextDueAt: async () => null,
    afterNextPoll: (run) => void polls.push(run),
    close: async () => undefined,
  });
  return { ask: () => store.execute("claim", { limit: 1 }), poll: () => polls.shift()?.(), polls, batches };
}

test("a batch begins after two consecutive polls without a new call", async () => {
  const { ask, poll, polls, batches } = openPollingStore(async () => undefined);
  const all = [ask()];
  poll();
  // The first poll brings nothing and the next one a call, so two more polls follow.
  all.push(ask(), ask());
  poll();
  poll();
  expect([batches, polls.length]).toEqual([[], 1]);
  poll();
  expect([batches, polls.length]).toEqual([[3], 0]);
  await Promise.all(all);
});

test("a store does not poll while a batch runs, and calls that arrive share the next batch", async () => {
  const ends: (() => void)[] = [];
  const { ask, poll, polls, batches } = openPollingStore(() => new Promise((resolve) => ends.push(resolve)));
  const pollTwice = () => [1, 2].forEach(poll);
  const first = ask();
  pollTwice();
  const others = [ask(), ask()];
  expect([batches, polls.length]).toEqual([[1], 0]);
  ends[0]?.();
  await first;
  await expect.poll(() => polls.length).toBe(1);
  pollTwice();
  expect(batches).toEqual([1, 2]);
  ends[1]?.();
  await Promise.all(others);
});

test("an unavailable storage takes no changes until a probe is stored, even if batches succeed", async () => {
  let fails = false;
  let trials = 0;
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      if (fails) throw new Unavailable("full");
      return {
        replies: calls.map(() => ({ answer: null })),
        deliveries: [],
        abortedLeases: [],
        settledLeases: [],
        dueAt: null,
        faults: [],
        activities: [],
        changedRows: 0,
      };
    },
    read: {} as never,
    nextDueAt: async () => null,
    probe: async () => {
      trials++;
      if (fails) throw new Unavailable("full");
    },
    close: async () => undefined,
  });
  expect(await store.takesChanges()).toBe(true);
  fails = true;
  expect(await store.takesChanges()).toBe(true);
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "outcome-unknown" });
  expect(await Promise.all([store.takesChanges(), store.takesChanges()])).toEqual([false, false]);
  expect(trials).toBe(1);
  fails = false;
  await store.execute("settle", outcome);
  expect(await store.takesChanges()).toBe(true);
  expect(await store.takesChanges()).toBe(true);
  expect(trials).toBe(2);
});

test("a storage that lacked room takes no changes for 10 s, and then only if a full batch fits", async () => {
  const time = { now: 5_000 };
  const storage = { hasRoom: false, probed: [] as number[] };
  const store = createGroupCommitStore({
    runBatch: async () => {
      throw new Interrupted("not stored", { cause: new NoRoom("full") });
    },
    read: {} as never,
    nextDueAt: async () => null,
    elapsed: () => time.now,
    probe: async (bytes) => {
      storage.probed.push(bytes);
      if (!storage.hasRoom) throw new NoRoom("full");
    },
    close: async () => undefined,
  });
  const looks = async (after: number) => {
    time.now += after;
    return [await store.takesChanges(), store.isInDoubt()];
  };
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "unavailable" });
  expect([await looks(0), await looks(9_999), storage.probed]).toEqual([[false, true], [false, true], []]);
  expect([await looks(1), storage.probed]).toEqual([[false, true], [4 * 1024 * 1024]]);
  storage.hasRoom = true;
  expect([await looks(9_999), await looks(1)]).toEqual([
    [false, true],
    [true, false],
  ]);
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "unavailable" });
  expect([await looks(9_999), storage.probed.length]).toEqual([[false, true], 2]);
});

test("closing a store twice resolves both calls", async () => {
  const { store, batches } = openNotingStore();
  const settled = store.execute("settle", outcome, { canWait: true });
  await Promise.all([store.close(), store.close(), settled]);
  expect(batches).toEqual([["settle"]]);
});

/** Returns a store whose batches end, and whose time passes, when the test decides. */
function openSlowStore() {
  const batches: string[][] = [];
  const ends: (() => void)[] = [];
  let probes = 0;
  let passTime: () => void = () => undefined;
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.map(({ name }) => name));
      await new Promise<void>((resolve) => ends.push(resolve));
      return {
        replies: calls.map(() => ({ answer: null })),
        deliveries: [],
        abortedLeases: [],
        settledLeases: [],
        dueAt: null,
        faults: [],
        activities: [],
        changedRows: 0,
      };
    },
    read: {} as never,
    nextDueAt: async () => null,
    probe: async () => void probes++,
    pause: () => new Promise((resolve) => (passTime = resolve)),
    close: async () => undefined,
  });
  const passHalfSeconds = async (count: number): Promise<void> => {
    for (let passed = 0; passed < count; passed++) {
      await new Promise((resolve) => setImmediate(resolve));
      passTime();
    }
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { store, batches, passHalfSeconds, endBatch: () => ends.shift()?.(), probes: () => probes };
}

const publishNothing = { account: "a", inputs: [] };

test("a store takes no changes and is not probed while a batch has run for more than 2 s", async () => {
  const { store, passHalfSeconds, endBatch, probes } = openSlowStore();
  const published = store.execute("publish", publishNothing);
  await passHalfSeconds(4);
  expect([await store.takesChanges(), store.isInDoubt()]).toEqual([true, false]);
  await passHalfSeconds(1);
  expect([await store.takesChanges(), store.isInDoubt()]).toEqual([false, true]);
  endBatch();
  await published;
  await new Promise((resolve) => setImmediate(resolve));
  expect([await store.takesChanges(), store.isInDoubt(), probes()]).toEqual([true, false, 0]);
});

test("a call without a batch after 5 s is refused and never stored; outcomes and claims wait", async () => {
  const { store, batches, passHalfSeconds, endBatch } = openSlowStore();
  const first = store.execute("publish", publishNothing);
  await passHalfSeconds(1);
  const late = store.execute("publish", publishNothing);
  const refusal = late.catch((error: unknown) => error);
  const settled = store.execute("settle", outcome);
  const claimed = store.execute("claim", { limit: 1 });
  await passHalfSeconds(10);
  const young = store.execute("publish", publishNothing);
  await passHalfSeconds(1);
  expect(await refusal).toMatchObject({
    code: "unavailable",
    message: "storage unavailable: nothing was stored; retry later",
  });
  endBatch();
  await first;
  await expect.poll(() => batches.length).toBe(2);
  endBatch();
  await Promise.all([settled, claimed, young]);
  expect(batches).toEqual([["publish"], ["settle", "claim", "publish"]]);
});

test("a store in doubt is probed at most once per second", async () => {
  const passes: (() => void)[] = [];
  let probes = 0;
  const store = createGroupCommitStore({
    runBatch: async () => {
      throw new Unavailable("away");
    },
    read: {} as never,
    nextDueAt: async () => null,
    probe: async () => {
      probes++;
      throw new Unavailable("away");
    },
    pause: () => new Promise((resolve) => passes.push(resolve)),
    close: async () => undefined,
  });
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "outcome-unknown" });
  for (let asked = 0; asked < 5; asked++) expect(await store.takesChanges()).toBe(false);
  expect(probes).toBe(1);
  for (const pass of passes.splice(0)) pass();
  await new Promise((resolve) => setImmediate(resolve));
  expect(await store.takesChanges()).toBe(false);
  expect(probes).toBe(2);
});
