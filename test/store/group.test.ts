import { expect, test } from "vitest";
import type { Outcome } from "../../src/core/message.ts";
import { noBytes } from "../../src/core/message.ts";
import { groupCommit } from "../../src/store/group.ts";
import type { Call } from "../../src/store/store.ts";
import { letterTo } from "./world.ts";

const outcome: Outcome = {
  ...{ account: "a", messageId: "msg_1", host: "h.example", attempt: 0, status: 200 },
  ...{ headers: [], body: noBytes, error: null, took: 1 },
};

/** A store that only notes its batches, and whose pause ends when the test says so. */
function openNotingStore() {
  const batches: string[][] = [];
  let endPause: () => void = () => undefined;
  const read = new Proxy({}, { get: () => async () => null });
  const store = groupCommit({
    runBatch: async (calls: readonly Call[]) => {
      batches.push(calls.map(({ name }) => name));
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], calledOff: [], dueAt: null, faults: [] };
    },
    read: read as never,
    nextDueAt: async () => null,
    linger: () => new Promise((resolve) => (endPause = resolve)),
    close: async () => undefined,
  });
  return { store, batches, endPause: () => endPause() };
}

test("an outcome that can wait shares the batch of the next publish", async () => {
  const { store, batches } = openNotingStore();
  const settled = store.execute("settle", outcome, { canWait: true });
  await Promise.resolve();
  expect(batches).toEqual([]);
  await Promise.all([settled, store.execute("publish", { account: "a", letters: [] })]);
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

test("no batch is sent ahead of one that publishes to a URL group: what hands that leaves is known afterwards", async () => {
  const free: number[] = [];
  const ends: (() => void)[] = [];
  const store = groupCommit({
    runBatch: async (calls: readonly Call[], hands) => {
      free.push(hands.free);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { replies: calls.map(() => ({ answer: [] })), deliveries: [], calledOff: [], dueAt: null, faults: [] };
    },
    read: new Proxy({}, { get: () => async () => null }) as never,
    nextDueAt: async () => null,
    runsInTurn: true,
    close: async () => undefined,
  });
  const bytes = { free: 2 ** 30, perBatch: 2 ** 25, busy: {} };
  const hands = () => ({ free: 1_000, perHost: 1_000, behind: false, busy: new Map(), bytes });
  store.attach({ hands, deliver: () => undefined, callOff: () => undefined, fault: () => undefined });
  const publish = (group: string | null) => store.execute("publish", { account: "a", letters: [letterTo({ group })] });
  const first = [publish("shops"), publish(null)];
  await Promise.resolve();
  const others = Array.from({ length: 64 }, () => publish(null));
  await Promise.resolve();
  expect(free).toEqual([1_000]);
  ends[0]?.();
  await Promise.all(first);
  await Promise.resolve();
  expect(free).toEqual([1_000, 1_000]);
  ends[1]?.();
  await Promise.all(others);
});
