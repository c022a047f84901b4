import { expect, test } from "vitest";
import type { Outcome } from "../../src/core/message.ts";
import { noBytes } from "../../src/core/message.ts";
import { groupCommit } from "../../src/store/group.ts";
import type { Call } from "../../src/store/store.ts";

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
      return { replies: calls.map(() => ({ answer: null })), deliveries: [], dueAt: null, faults: [] };
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
