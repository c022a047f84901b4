import { expect, test } from "vitest";
import { isDiskLow, leastFreeBytes, nextPeak } from "../../../src/core/fairness/diskGuard.ts";

const mebi = 1024 * 1024;
const large = { size: 1e6 * mebi, log: 0, writtenPerSecond: 0 };

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
