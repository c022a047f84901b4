import { expect, test } from "vitest";
import type { Delivery, Outcome } from "../../../src/core/model/message.ts";
import { noBytes } from "../../../src/core/model/message.ts";
import { createGroupCommitStore } from "../../../src/store/batch/groupCommit.ts";
import type { CommandCall } from "../../../src/store/store.ts";
import { Unavailable } from "../../../src/store/store.ts";
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

/** A store that only notes its batches, and whose pause ends when the test says so. */
function openNotingStore() {
  const batches: string[][] = [];
  let endPause: () => void = () => undefined;
  const read = new Proxy({}, { get: () => async () => null });
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.map(({ name }) => name));
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], abortedLeases: [], dueAt: null, faults: [] };
    },
    read: read as never,
    nextDueAt: async () => null,
    coalesceDelay: () => new Promise((resolve) => (endPause = resolve)),
    close: async () => undefined,
  });
  return { store, batches, endPause: () => endPause() };
}

test("an outcome that can wait shares the batch of the next publish", async () => {
  const { store, batches } = openNotingStore();
  const settled = store.execute("settle", outcome, { canWait: true });
  await Promise.resolve();
  expect(batches).toEqual([]);
  await Promise.all([settled, store.execute("publish", { account: "a", inputs: [] })]);
  expect(batches).toEqual([["settle", "publish"]]);
});

test("nobody comes: it is stored alone when the pause is over", async () => {
  const { store, batches, endPause } = openNotingStore();
  const settled = [store.execute("settle", outcome, { canWait: true }), store.execute("settle", outcome, { canWait: true })];
  await Promise.resolve();
  expect(batches).toEqual([]);
  endPause();
  await Promise.all(settled);
  expect(batches).toEqual([["settle", "settle"]]);
});

test("an outcome that cannot wait goes at once, and so does all that waits when the store is closed", async () => {
  const { store, batches } = openNotingStore();
  await store.execute("settle", outcome);
  expect(batches).toEqual([["settle"]]);
  const settled = store.execute("settle", outcome, { canWait: true });
  await store.close();
  await settled;
  expect(batches).toEqual([["settle"], ["settle"]]);
});

test("one batch at a time: the next is offered the hands that are free when the last one has handed out its deliveries", async () => {
  const free: number[] = [];
  const ends: (() => void)[] = [];
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[], hands) => {
      free.push(hands.free);
      await new Promise<void>((resolve) => ends.push(resolve));
      const deliveries = calls.map(() => ({}) as Delivery);
      return { replies: calls.map(() => ({ answer: [] })), deliveries, abortedLeases: [], dueAt: null, faults: [] };
    },
    read: new Proxy({}, { get: () => async () => null }) as never,
    nextDueAt: async () => null,
    close: async () => undefined,
  });
  let left = 10;
  const bytes = { free: 2 ** 30, perBatch: 2 ** 25, byLane: {} };
  const readCapacity = () => ({ free: left, perHost: 1_000, backlog: false, runningByLane: new Map(), bytes });
  store.attach({ readCapacity, deliver: () => left--, abort: () => undefined, fault: () => undefined });
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

/** A store that notes how large its batches are, and looks when the test says so. `run`: what a batch waits for. */
function openLookingStore(run: () => Promise<void>) {
  const batches: number[] = [];
  const looks: (() => void)[] = [];
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.length);
      await run();
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], abortedLeases: [], dueAt: null, faults: [] };
    },
    read: new Proxy({}, { get: () => async () => null }) as never,
    nextDueAt: async () => null,
    afterNextPoll: (run) => void looks.push(run),
    close: async () => undefined,
  });
  return { ask: () => store.execute("claim", { limit: 1 }), look: () => looks.shift()?.(), looks, batches };
}

test("a batch begins when two looks in a row have brought nothing more", async () => {
  const { ask, look, looks, batches } = openLookingStore(async () => undefined);
  const all = [ask()];
  look();
  // One look has brought nothing, the next one does, so that two more are taken.
  all.push(ask(), ask());
  look();
  look();
  expect([batches, looks.length]).toEqual([[], 1]);
  look();
  expect([batches, looks.length]).toEqual([[3], 0]);
  await Promise.all(all);
});

test("nobody looks while a batch runs, and those who ask meanwhile are in the next one", async () => {
  const ends: (() => void)[] = [];
  const { ask, look, looks, batches } = openLookingStore(() => new Promise((resolve) => ends.push(resolve)));
  const lookTwice = () => [1, 2].forEach(look);
  const first = ask();
  lookTwice();
  const others = [ask(), ask()];
  expect([batches, looks.length]).toEqual([[1], 0]);
  ends[0]?.();
  await first;
  await expect.poll(() => looks.length).toBe(1);
  lookTwice();
  expect(batches).toEqual([1, 2]);
  ends[1]?.();
  await Promise.all(others);
});

test("a storage that was away takes no changes until one that means nothing was stored, whatever came through meanwhile", async () => {
  let fails = false;
  let trials = 0;
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      if (fails) throw new Unavailable("full");
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], abortedLeases: [], dueAt: null, faults: [] };
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
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "unavailable" });
  expect(await Promise.all([store.takesChanges(), store.takesChanges()])).toEqual([false, false]);
  expect(trials).toBe(1);
  fails = false;
  await store.execute("settle", outcome);
  expect(await store.takesChanges()).toBe(true);
  expect(await store.takesChanges()).toBe(true);
  expect(trials).toBe(2);
});

test("a store that is closed twice is closed for both who asked", async () => {
  const { store, batches } = openNotingStore();
  const settled = store.execute("settle", outcome, { canWait: true });
  await Promise.all([store.close(), store.close(), settled]);
  expect(batches).toEqual([["settle"]]);
});

/** A store whose batches end, and whose time passes, when the test says so. */
function openSlowStore() {
  const batches: string[][] = [];
  const ends: (() => void)[] = [];
  let probes = 0;
  let passTime: () => void = () => undefined;
  const store = createGroupCommitStore({
    runBatch: async (calls: readonly CommandCall[]) => {
      batches.push(calls.map(({ name }) => name));
      await new Promise<void>((resolve) => ends.push(resolve));
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], abortedLeases: [], dueAt: null, faults: [] };
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

test("a store is not ready while a batch has run for more than two seconds, and is not probed meanwhile", async () => {
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

test("a caller who has not joined a batch after ten seconds is refused and never stored; outcomes and claims wait", async () => {
  const { store, batches, passHalfSeconds, endBatch } = openSlowStore();
  const first = store.execute("publish", publishNothing);
  await passHalfSeconds(1);
  const late = store.execute("publish", publishNothing);
  const refusal = late.catch((error: unknown) => error);
  const settled = store.execute("settle", outcome);
  const claimed = store.execute("claim", { limit: 1 });
  await passHalfSeconds(20);
  const young = store.execute("publish", publishNothing);
  await passHalfSeconds(1);
  expect(await refusal).toMatchObject({ code: "unavailable", message: "storage unavailable: nothing was stored; retry later" });
  endBatch();
  await first;
  await expect.poll(() => batches.length).toBe(2);
  endBatch();
  await Promise.all([settled, claimed, young]);
  expect(batches).toEqual([["publish"], ["settle", "claim", "publish"]]);
});

test("a store in doubt is probed at most once a second", async () => {
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
  await expect(store.execute("settle", outcome)).rejects.toMatchObject({ code: "unavailable" });
  for (let asked = 0; asked < 5; asked++) expect(await store.takesChanges()).toBe(false);
  expect(probes).toBe(1);
  for (const pass of passes.splice(0)) pass();
  await new Promise((resolve) => setImmediate(resolve));
  expect(await store.takesChanges()).toBe(false);
  expect(probes).toBe(2);
});
