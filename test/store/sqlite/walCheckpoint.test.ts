import { expect, test } from "vitest";
import { Folding } from "../../../src/store/sqlite/walCheckpoint.ts";

/** A log that grows when the test says so, and is folded when it says so. */
function openLog() {
  const log = { all: 0, folded: 0 };
  const folds: (() => void)[] = [];
  const fold = async (): Promise<{ isWhole: boolean }> => {
    const upTo = log.all;
    await new Promise<void>((resolve) => folds.push(resolve));
    log.folded = upTo;
    return { isWhole: log.folded === log.all };
  };
  return { log, folds, folding: new Folding({ room, log: () => ({ ...log }), fold }) };
}

const mebi = 1024 * 1024;

/** More than any of these needs. */
const room = (): number => 1024 * mebi;

const settleDown = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("below 16 MiB nothing is folded, from then on once", () => {
  const { log, folds, folding } = openLog();
  for (const [length, count] of [
    [16 * mebi - 1, 0],
    [16 * mebi, 1],
    [36 * mebi, 1],
  ] as const) {
    log.all = length;
    folding.wrote(mebi);
    expect(folds).toHaveLength(count);
  }
});

test("where little room is left, a log of a quarter of it is folded", () => {
  const left = { room: 8 * mebi };
  const log = { all: 2 * mebi - 1, folded: 0 };
  let folds = 0;
  const fold = async () => ({ isWhole: ++folds > 0 });
  const folding = new Folding({ log: () => ({ ...log }), room: () => left.room, fold });
  folding.wrote(mebi);
  expect(folds).toBe(0);
  left.room -= 4;
  folding.wrote(mebi);
  expect(folds).toBe(1);
});

test("what was added while it was folded is folded before the next batch, which waits for that, and the one after it does not", async () => {
  const { log, folds, folding } = openLog();
  log.all = 16 * mebi;
  folding.wrote(mebi);
  log.all = 17 * mebi;
  await folding.rest();
  folds[0]?.();
  await settleDown();
  let begun = false;
  const batch = folding.rest().then(() => (begun = true));
  await settleDown();
  expect([begun, folds.length]).toEqual([false, 2]);
  folds[1]?.();
  await batch;
  await folding.rest();
  expect([log, folds.length]).toEqual([{ all: 17 * mebi, folded: 17 * mebi }, 2]);
});

test("a batch waits for a fold during which 32 MiB were written", async () => {
  const { log, folds, folding } = openLog();
  log.all = 16 * mebi;
  folding.wrote(mebi);
  for (let written = 0; written < 31; written++) folding.wrote(mebi);
  await folding.rest();
  folding.wrote(mebi);
  let begun = false;
  const batch = folding.rest().then(() => (begun = true));
  await settleDown();
  expect([begun, folds.length]).toEqual([false, 1]);
  folds[0]?.();
  await batch;
  await folding.rest();
  expect(folds).toHaveLength(1);
});

test("nothing is left when nobody wrote meanwhile", async () => {
  const { log, folds, folding } = openLog();
  log.all = 16 * mebi;
  folding.wrote(mebi);
  folds[0]?.();
  await settleDown();
  await folding.rest();
  expect(folds).toHaveLength(1);
});

test("while somebody reads an old state, so that nothing can be folded, it is tried once for every 16 MiB", async () => {
  let tries = 0;
  const log = { all: 0, folded: 0 };
  const folding = new Folding({ room, log: () => ({ ...log }), fold: async () => ({ isWhole: ++tries < 0 }) });
  for (; log.all < 50 * mebi; log.all += 0.4 * mebi) {
    await folding.rest();
    folding.wrote(mebi);
    await settleDown();
  }
  // Each try is one ahead, and one before the next batch.
  expect(tries).toBe(6);
  // The log begins anew.
  log.all = 0;
  folding.wrote(mebi);
  log.all = 16 * mebi;
  folding.wrote(mebi);
  expect(tries).toBe(7);
});

test("a folding that fails holds up nobody", async () => {
  const folding = new Folding({ room, log: () => ({ all: 16 * mebi, folded: 0 }), fold: async () => Promise.reject(new Error("odd")) });
  folding.wrote(mebi);
  await settleDown();
  expect(await folding.rest()).toBe(undefined);
});

test("a log that cannot be looked at is no fault of the batch that is stored already", () => {
  const log = (): never => {
    throw new Error("disk I/O error");
  };
  const folding = new Folding({ room, log, fold: async () => ({ isWhole: true }) });
  expect(() => folding.wrote(mebi)).not.toThrow();
});

test("the log is looked at once for every mebibyte, however many batches that is, and at first at once", () => {
  let looks = 0;
  const log = () => ({ all: ++looks, folded: 0 });
  const folding = new Folding({ room, log, fold: async () => ({ isWhole: true }) });
  for (let batch = 0; batch < 40; batch++) folding.wrote(mebi / 10);
  expect(looks).toBe(4);
  folding.wrote(5 * mebi);
  expect(looks).toBe(5);
});
