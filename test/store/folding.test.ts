import { expect, test } from "vitest";
import { Folding } from "../../src/store/folding.ts";

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
  return { log, folds, folding: new Folding({ pages: () => ({ ...log }), fold }) };
}

const mebi = 1024 * 1024;

const settleDown = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("below 4,000 pages nothing is folded, from then on once", () => {
  const { log, folds, folding } = openLog();
  for (const [pages, count] of [
    [3_999, 0],
    [4_000, 1],
    [9_000, 1],
  ] as const) {
    log.all = pages;
    folding.wrote(mebi);
    expect(folds).toHaveLength(count);
  }
});

test("what was added while it was folded is folded before the next batch, which waits for that, and the one after it does not", async () => {
  const { log, folds, folding } = openLog();
  log.all = 4_000;
  folding.wrote(mebi);
  log.all = 4_300;
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
  expect([log, folds.length]).toEqual([{ all: 4_300, folded: 4_300 }, 2]);
});

test("nothing is left when nobody wrote meanwhile", async () => {
  const { log, folds, folding } = openLog();
  log.all = 4_000;
  folding.wrote(mebi);
  folds[0]?.();
  await settleDown();
  await folding.rest();
  expect(folds).toHaveLength(1);
});

test("while somebody reads an old state, so that nothing can be folded, it is tried once for every 4,000 pages", async () => {
  let tries = 0;
  const log = { all: 0, folded: 0 };
  const folding = new Folding({ pages: () => ({ ...log }), fold: async () => ({ isWhole: ++tries < 0 }) });
  for (; log.all < 12_500; log.all += 100) {
    await folding.rest();
    folding.wrote(mebi);
    await settleDown();
  }
  // Each try is one ahead, and one before the next batch.
  expect(tries).toBe(6);
  // The log begins anew.
  log.all = 0;
  folding.wrote(mebi);
  log.all = 4_000;
  folding.wrote(mebi);
  expect(tries).toBe(7);
});

test("a folding that fails holds up nobody", async () => {
  const folding = new Folding({ pages: () => ({ all: 4_000, folded: 0 }), fold: async () => Promise.reject(new Error("odd")) });
  folding.wrote(mebi);
  await settleDown();
  expect(await folding.rest()).toBe(undefined);
});

test("a log that cannot be looked at is no fault of the batch that is stored already", () => {
  const pages = (): never => {
    throw new Error("disk I/O error");
  };
  const folding = new Folding({ pages, fold: async () => ({ isWhole: true }) });
  expect(() => folding.wrote(mebi)).not.toThrow();
});

test("the log is looked at once for every mebibyte, however many batches that is, and at first at once", () => {
  let looks = 0;
  const pages = () => ({ all: ++looks, folded: 0 });
  const folding = new Folding({ pages, fold: async () => ({ isWhole: true }) });
  for (let batch = 0; batch < 40; batch++) folding.wrote(mebi / 10);
  expect(looks).toBe(4);
  folding.wrote(5 * mebi);
  expect(looks).toBe(5);
});
