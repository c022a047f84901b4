import { describe, expect, test } from "vitest";
import {
  calculateCost,
  sumDeadLetters,
  sumStoredBytes,
  toMonthRange,
  periods,
  sumPoints,
  toPeriodRange,
} from "../../../../src/engine/core/accounts/statistics.ts";
import type { Usage } from "../../../../src/engine/core/model/counts.ts";
import { noCounts } from "../../../../src/engine/core/model/counts.ts";
import { bucketSizes } from "../../../../src/engine/core/accounts/usage.ts";

const minute = 60_000;
const day = 24 * 60 * minute;

const bucket = (size: string, at: number, more: Partial<Usage>): Usage => ({
  ...noCounts,
  account: "acme",
  id: `${size}/${at}/nod_a`,
  ...more,
});

describe("a period", () => {
  const lengths = { "1h": 60, "3h": 180, "12h": 720, "1d": 1440, "3d": 4320, "7d": 10_080, "30d": 43_200 };

  test.each(periods)(
    "%s is divided into points of equal length, the last of which is the current one",
    (period) => {
      const now = Date.UTC(2026, 0, 31, 23, 59, 59, 999);
      const { from, step, points, size } = toPeriodRange(period, now);
      expect([points, points * step]).toEqual([period === "30d" ? 240 : 60, lengths[period] * minute]);
      expect(from + points * step).toBeGreaterThan(now);
      expect(from + (points - 1) * step).toBeLessThanOrEqual(now);
      // The period consists of whole buckets, and they are still kept.
      expect([from % bucketSizes[size].span, step % bucketSizes[size].span]).toEqual([0, 0]);
      expect(now - from).toBeLessThan(bucketSizes[size].kept);
    },
  );

  test("is summed up by point, over all nodes, without buckets outside of it", () => {
    const stretch = { from: 120 * minute, step: 3 * minute, points: 2 };
    const buckets = [
      bucket("1m", 119 * minute, { messages: 100 }),
      bucket("1m", 120 * minute, { messages: 1, bytesIn: 5 }),
      { ...bucket("1m", 122 * minute, { messages: 2 }), id: `1m/${122 * minute}/nod_b` },
      bucket("1m", 123 * minute, { messages: 4, failed: 1 }),
      bucket("1m", 126 * minute, { messages: 100 }),
    ];
    expect(sumPoints(buckets, stretch)).toEqual([
      { at: 120 * minute, counts: { ...noCounts, messages: 3, bytesIn: 5 } },
      { at: 123 * minute, counts: { ...noCounts, messages: 4, failed: 1 } },
    ]);
  });
});

describe("a month", () => {
  test.for([
    ["January", Date.UTC(2026, 0, 1), Date.UTC(2026, 0, 1), 31],
    ["its last moment", Date.UTC(2026, 1, 1) - 1, Date.UTC(2026, 0, 1), 31],
    ["February", Date.UTC(2026, 1, 1), Date.UTC(2026, 1, 1), 28],
    ["February of a leap year", Date.UTC(2028, 1, 29, 12), Date.UTC(2028, 1, 1), 29],
    ["December", Date.UTC(2026, 11, 31, 23), Date.UTC(2026, 11, 1), 31],
  ] as const)("includes all of its days: %s", ([, now, from, points]) => {
    expect(toMonthRange(now)).toEqual({ from, points, step: day });
  });

  test("is kept completely until its end", () => {
    const now = Date.UTC(2026, 1, 1) - 1;
    expect(now - toMonthRange(now).from).toBeLessThan(bucketSizes["3h"].kept);
  });
});

test("the number of dead letters is the number added minus the number removed", () => {
  expect(sumDeadLetters([bucket("3h", 0, { deadLetters: 5 }), bucket("3h", 1, { deadLetters: -3 })])).toBe(2);
});

test("the number of stored bytes is the number added minus the number removed", () => {
  expect(sumStoredBytes([bucket("3h", 0, { storedBytes: 5 }), bucket("3h", 1, { storedBytes: -3 })])).toBe(2);
});

test("messages and bytes cost what the prices say", () => {
  const prices = { messages: 1, workflowMessages: 2, gigabyte: 10 };
  const used = { ...noCounts, messages: 150_000, workflowMessages: 50_000, bytesIn: 4e8, bytesOut: 1e8 };
  expect(calculateCost(used, prices)).toBe(1.5 + 1 + 5);
});
