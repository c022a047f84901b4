import { expect, test } from "vitest";
import { WalCheckpoints } from "../../../src/store/sqlite/walCheckpoint.ts";

/** A log that grows when the test says so, and is folded when it says so. */
function openLog() {
  const log = { written: 0, checkpointed: 0 };
  const folds: (() => void)[] = [];
  const checkpoint = async (): Promise<{ isWhole: boolean }> => {
    const upTo = log.written;
    await new Promise<void>((resolve) => folds.push(resolve));
    log.checkpointed = upTo;
    return { isWhole: log.checkpointed === log.written };
  };
  return { log, folds, folding: new WalCheckpoints({ readFreeBytes, walLength: () => ({ ...log }), checkpoint }) };
}

const mebi = 1024 * 1024;

/** More than any of these needs. */
const readFreeBytes = (): number => 1024 * mebi;

const settleDown = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("below 16 MiB nothing is folded, from then on once", () => {
  const { log, folds, folding } = openLog();
  for (const [length, count] of [
    [16 * mebi - 1, 0],
    [16 * mebi, 1],
    [36 * mebi, 1],
  ] as const) {
    log.written = length;
    folding.recordWritten(mebi);
    expect(folds).toHaveLength(count);
  }
});

test("where little room is left, a log of a quarter of it is folded", () => {
  const left = { room: 8 * mebi };
  const log = { written: 2 * mebi - 1, checkpointed: 0 };
  let folds = 0;
  const checkpoint = async () => ({ isWhole: ++folds > 0 });
  const folding = new WalCheckpoints({ walLength: () => ({ ...log }), readFreeBytes: () => left.room, checkpoint });
  folding.recordWritten(mebi);
  expect(folds).toBe(0);
  left.room -= 4;
  folding.recordWritten(mebi);
  expect(folds).toBe(1);
});

test("what was added while it was folded is folded before the next batch, which waits for that, and the one after it does not", async () => {
  const { log, folds, folding } = openLog();
  log.written = 16 * mebi;
  folding.recordWritten(mebi);
  log.written = 17 * mebi;
  await folding.finish();
  folds[0]?.();
  await settleDown();
  let begun = false;
  const batch = folding.finish().then(() => (begun = true));
  await settleDown();
  expect([begun, folds.length]).toEqual([false, 2]);
  folds[1]?.();
  await batch;
  await folding.finish();
  expect([log, folds.length]).toEqual([{ written: 17 * mebi, checkpointed: 17 * mebi }, 2]);
});

test("a batch waits for a fold during which 32 MiB were written", async () => {
  const { log, folds, folding } = openLog();
  log.written = 16 * mebi;
  folding.recordWritten(mebi);
  for (let written = 0; written < 31; written++) folding.recordWritten(mebi);
  await folding.finish();
  folding.recordWritten(mebi);
  let begun = false;
  const batch = folding.finish().then(() => (begun = true));
  await settleDown();
  expect([begun, folds.length]).toEqual([false, 1]);
  folds[0]?.();
  await batch;
  await folding.finish();
  expect(folds).toHaveLength(1);
});

test("nothing is left when nobody wrote meanwhile", async () => {
  const { log, folds, folding } = openLog();
  log.written = 16 * mebi;
  folding.recordWritten(mebi);
  folds[0]?.();
  await settleDown();
  await folding.finish();
  expect(folds).toHaveLength(1);
});

test("while somebody reads an old state, so that nothing can be folded, it is tried once for every 16 MiB", async () => {
  let tries = 0;
  const log = { written: 0, checkpointed: 0 };
  const folding = new WalCheckpoints({ readFreeBytes, walLength: () => ({ ...log }), checkpoint: async () => ({ isWhole: ++tries < 0 }) });
  for (; log.written < 50 * mebi; log.written += 0.4 * mebi) {
    await folding.finish();
    folding.recordWritten(mebi);
    await settleDown();
  }
  // Each try is one ahead, and one before the next batch.
  expect(tries).toBe(6);
  // The log begins anew.
  log.written = 0;
  folding.recordWritten(mebi);
  log.written = 16 * mebi;
  folding.recordWritten(mebi);
  expect(tries).toBe(7);
});

test("a folding that fails holds up nobody", async () => {
  const folding = new WalCheckpoints({
    readFreeBytes,
    walLength: () => ({ written: 16 * mebi, checkpointed: 0 }),
    checkpoint: async () => Promise.reject(new Error("odd")),
  });
  folding.recordWritten(mebi);
  await settleDown();
  expect(await folding.finish()).toBe(undefined);
});

test("a log that cannot be looked at is no fault of the batch that is stored already", () => {
  const walLength = (): never => {
    throw new Error("disk I/O error");
  };
  const folding = new WalCheckpoints({ readFreeBytes, walLength, checkpoint: async () => ({ isWhole: true }) });
  expect(() => folding.recordWritten(mebi)).not.toThrow();
});

test("the log is looked at once for every mebibyte, however many batches that is, and at first at once", () => {
  let looks = 0;
  const walLength = () => ({ written: ++looks, checkpointed: 0 });
  const folding = new WalCheckpoints({ readFreeBytes, walLength, checkpoint: async () => ({ isWhole: true }) });
  for (let batch = 0; batch < 40; batch++) folding.recordWritten(mebi / 10);
  expect(looks).toBe(4);
  folding.recordWritten(5 * mebi);
  expect(looks).toBe(5);
});
