import { expect, test } from "vitest";
import {
  historyFreeBytes,
  isDiskLow,
  isDiskShort,
  leastHistory,
  leastFreeBytes,
  nextPeak,
  shortenRetention,
} from "../../../../src/engine/core/node/diskGuard.ts";

const mebi = 1024 * 1024;
const large = { size: 1e6 * mebi, log: 0, store: 0, reusable: 0, writtenPerSecond: 0 };

test.each([
  ["256 MiB", large, 256 * mebi],
  ["60 seconds at the peak rate", { ...large, writtenPerSecond: 10 * mebi }, 600 * mebi],
  ["twice the log", { ...large, log: 300 * mebi }, 600 * mebi],
  ["a quarter of a small disk", { ...large, size: 400 * mebi, log: 300 * mebi }, 100 * mebi],
])("%s must be free", (_, use, least) => {
  expect(leastFreeBytes(use)).toBe(least);
  expect(isDiskLow({ ...use, free: least - 1 }, false)).toBe(true);
  expect(isDiskLow({ ...use, free: least }, false)).toBe(false);
});

test("a disk that was low needs a tenth more, so that it does not alternate", () => {
  const least = 256 * mebi;
  expect(isDiskLow({ ...large, free: least * 1.05 }, true)).toBe(true);
  expect(isDiskLow({ ...large, free: least * 1.1 }, true)).toBe(false);
});

test("a large disk that is almost full is not low while little is written", () => {
  expect(isDiskLow({ ...large, free: 0.001 * large.size }, false)).toBe(false);
});

test("a peak counts at once, and half after 5 minutes", () => {
  expect(nextPeak(0, { bytes: 500, seconds: 2 })).toBe(250);
  expect(nextPeak(1_000, { bytes: 500, seconds: 1 })).toBeGreaterThan(990);
  expect(nextPeak(1_000, { bytes: 0, seconds: 300 })).toBe(500);
});

test.each([
  ["a quarter of a small store", { ...large, store: 80 * mebi }, 20 * mebi],
  ["as much as is always kept", { ...large, store: 4_000 * mebi }, 256 * mebi],
  ["10 minutes at the peak rate", { ...large, store: 1e5 * mebi, writtenPerSecond: 10 * mebi }, 6_000 * mebi],
])("all history is kept while %s is free above the least", (_, use, margin) => {
  const least = leastFreeBytes(use);
  expect(historyFreeBytes(use)).toBe(least + margin);
  expect(isDiskShort({ ...use, free: least + margin }, { wasShort: false, isLow: false })).toBe(false);
  expect(isDiskShort({ ...use, free: least + margin - 1 }, { wasShort: false, isLow: false })).toBe(true);
  expect(isDiskShort({ ...use, free: least + margin * 1.09 }, { wasShort: true, isLow: false })).toBe(true);
  expect(isDiskShort({ ...use, free: least + margin * 1.1 + 1 }, { wasShort: true, isLow: false })).toBe(
    false,
  );
});

test("space that the file can use again counts as free for history, and not for new messages", () => {
  const use = { ...large, store: 80 * mebi, free: 250 * mebi, reusable: 30 * mebi };
  expect(isDiskShort(use, { wasShort: false, isLow: false })).toBe(false);
  expect(isDiskLow(use, false)).toBe(true);
});

test("a large disk that is almost full keeps all history while little is written", () => {
  expect(
    isDiskShort({ ...large, store: 5e5 * mebi, free: 0.001 * large.size }, { wasShort: false, isLow: false }),
  ).toBe(false);
});

test("while new messages are refused, history goes until they are accepted again", () => {
  const least = 256 * mebi;
  const use = { ...large, store: 40 * mebi, free: least };
  const isLow = { wasShort: false, isLow: true };
  // A quarter of this store is less than what must become free.
  expect(isDiskShort({ ...use, reusable: 11 * mebi }, { ...isLow, isLow: false })).toBe(false);
  expect(isDiskShort({ ...use, reusable: 11 * mebi }, isLow)).toBe(true);
  expect(isDiskShort({ ...use, reusable: 26 * mebi }, isLow)).toBe(false);
  expect(isDiskLow({ ...use, free: least + 26 * mebi }, true)).toBe(false);
});

test("each round keeps half of the history, and the last minute is never removed early", () => {
  const rounds = (retention: number, isLow = false) => {
    const kept: (number | null)[] = [];
    const least = leastHistory(isLow);
    for (let round = 0; kept.at(-1) !== null; round++) kept.push(shortenRetention(retention, round, least));
    return kept;
  };
  // While new messages are refused, only the last seconds are kept.
  expect(rounds(60_000, true)).toEqual([30_000, 15_000, 7_500, 5_000, null]);
  expect(rounds(480_000)).toEqual([240_000, 120_000, 60_000, null]);
  expect(rounds(150_000)).toEqual([75_000, 60_000, null]);
  expect(rounds(60_000)).toEqual([null]);
  expect(rounds(3 * 86_400_000)).toHaveLength(14);
});
