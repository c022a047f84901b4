import { expect, test } from "vitest";
import { WalCheckpoints } from "../../../../src/engine/store/sqlite/walCheckpoint.ts";

/** A log whose growth and checkpoints the test controls. */
function openLog() {
  const log = { written: 0, checkpointed: 0 };
  const runs: (() => void)[] = [];
  const checkpoint = async (): Promise<{ isWhole: boolean }> => {
    const upTo = log.written;
    await new Promise<void>((resolve) => runs.push(resolve));
    log.checkpointed = upTo;
    return { isWhole: log.checkpointed === log.written };
  };
  return {
    log,
    runs,
    checkpoints: new WalCheckpoints({ readFreeBytes, walLength: () => ({ ...log }), checkpoint }),
  };
}

const mebi = 1024 * 1024;

/** More space than any of these tests needs. */
const readFreeBytes = (): number => 1024 * mebi;

const settleDown = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a log is not checkpointed below 16 MiB, and then once", () => {
  const { log, runs, checkpoints } = openLog();
  for (const [length, count] of [
    [16 * mebi - 1, 0],
    [16 * mebi, 1],
    [36 * mebi, 1],
  ] as const) {
    log.written = length;
    checkpoints.recordWritten(mebi);
    expect(runs).toHaveLength(count);
  }
});

test("on a nearly full disk, a log of a quarter of the free space is checkpointed", () => {
  const left = { room: 8 * mebi };
  const log = { written: 2 * mebi - 1, checkpointed: 0 };
  let runs = 0;
  const checkpoint = async () => ({ isWhole: ++runs > 0 });
  const checkpoints = new WalCheckpoints({
    walLength: () => ({ ...log }),
    readFreeBytes: () => left.room,
    checkpoint,
  });
  checkpoints.recordWritten(mebi);
  expect(runs).toBe(0);
  left.room -= 4;
  checkpoints.recordWritten(mebi);
  expect(runs).toBe(1);
});

test("data added during a checkpoint is checkpointed before the next batch, which waits", async () => {
  const { log, runs, checkpoints } = openLog();
  log.written = 16 * mebi;
  checkpoints.recordWritten(mebi);
  log.written = 17 * mebi;
  await checkpoints.finish();
  runs[0]?.();
  await settleDown();
  let begun = false;
  const batch = checkpoints.finish().then(() => (begun = true));
  await settleDown();
  expect([begun, runs.length]).toEqual([false, 2]);
  runs[1]?.();
  await batch;
  await checkpoints.finish();
  expect([log, runs.length]).toEqual([{ written: 17 * mebi, checkpointed: 17 * mebi }, 2]);
});

test("a batch waits for a checkpoint during which 32 MiB were written", async () => {
  const { log, runs, checkpoints } = openLog();
  log.written = 16 * mebi;
  checkpoints.recordWritten(mebi);
  for (let written = 0; written < 31; written++) checkpoints.recordWritten(mebi);
  await checkpoints.finish();
  checkpoints.recordWritten(mebi);
  let begun = false;
  const batch = checkpoints.finish().then(() => (begun = true));
  await settleDown();
  expect([begun, runs.length]).toEqual([false, 1]);
  runs[0]?.();
  await batch;
  await checkpoints.finish();
  expect(runs).toHaveLength(1);
});

test("a checkpoint without concurrent writes leaves nothing to do", async () => {
  const { log, runs, checkpoints } = openLog();
  log.written = 16 * mebi;
  checkpoints.recordWritten(mebi);
  runs[0]?.();
  await settleDown();
  await checkpoints.finish();
  expect(runs).toHaveLength(1);
});

test("while a reader blocks checkpoints, one is tried for every 16 MiB", async () => {
  let tries = 0;
  const log = { written: 0, checkpointed: 0 };
  const checkpoints = new WalCheckpoints({
    readFreeBytes,
    walLength: () => ({ ...log }),
    checkpoint: async () => ({ isWhole: ++tries < 0 }),
  });
  for (; log.written < 50 * mebi; log.written += 0.4 * mebi) {
    await checkpoints.finish();
    checkpoints.recordWritten(mebi);
    await settleDown();
  }
  // Each try runs once during batches and once before the next batch.
  expect(tries).toBe(6);
  // The log restarts.
  log.written = 0;
  checkpoints.recordWritten(mebi);
  log.written = 16 * mebi;
  checkpoints.recordWritten(mebi);
  expect(tries).toBe(7);
});

test("a failed checkpoint delays nothing", async () => {
  const checkpoints = new WalCheckpoints({
    readFreeBytes,
    walLength: () => ({ written: 16 * mebi, checkpointed: 0 }),
    checkpoint: async () => Promise.reject(new Error("odd")),
  });
  checkpoints.recordWritten(mebi);
  await settleDown();
  expect(await checkpoints.finish()).toBe(undefined);
});

test("an unreadable log does not fail a batch that is already stored", () => {
  const walLength = (): never => {
    throw new Error("disk I/O error");
  };
  const checkpoints = new WalCheckpoints({
    readFreeBytes,
    walLength,
    checkpoint: async () => ({ isWhole: true }),
  });
  expect(() => checkpoints.recordWritten(mebi)).not.toThrow();
});

test("the log is checked once per mebibyte written, and at the first batch", () => {
  let looks = 0;
  const walLength = () => ({ written: ++looks, checkpointed: 0 });
  const checkpoints = new WalCheckpoints({
    readFreeBytes,
    walLength,
    checkpoint: async () => ({ isWhole: true }),
  });
  for (let batch = 0; batch < 40; batch++) checkpoints.recordWritten(mebi / 10);
  expect(looks).toBe(4);
  checkpoints.recordWritten(5 * mebi);
  expect(looks).toBe(5);
});
