import type { Millis } from "../values/basics.ts";
import type { Counts, Usage } from "../model/counts.ts";
import type { BucketSize } from "./usage.ts";
import { countNames, noCounts } from "../model/counts.ts";
import { readBucketStart } from "./usage.ts";
import { day, hour, minute } from "../values/time.ts";

/** A period of time, divided into points of equal length. */
export type PointRange = { from: Millis; step: Millis; points: number };

/** The counts of one point, which begins at `at`. */
export type Point = { at: Millis; counts: Counts };

/**
 * The periods of statistics, and the buckets that they are made of. Each has 60 points, except that the
 * longest has 240 points of three hours.
 */
const periodRanges = {
  "1h": { size: "1m", step: minute, points: 60 },
  "3h": { size: "1m", step: 3 * minute, points: 60 },
  "12h": { size: "12m", step: 12 * minute, points: 60 },
  "1d": { size: "12m", step: 24 * minute, points: 60 },
  "3d": { size: "12m", step: 72 * minute, points: 60 },
  "7d": { size: "12m", step: 168 * minute, points: 60 },
  "30d": { size: "3h", step: 3 * hour, points: 240 },
} as const satisfies Record<string, { size: BucketSize; step: Millis; points: number }>;

/** The periods of statistics. */
export const periods = ["1h", "3h", "12h", "1d", "3d", "7d", "30d"] as const;
/** A period of statistics. */
export type Period = (typeof periods)[number];

/**
 * Returns the period that ends now. Points begin at whole multiples of their length, so a point is the same
 * in every response. The last point is the current one, which is incomplete.
 */
export function toPeriodRange(period: Period, now: Millis): PointRange & { size: BucketSize } {
  const { size, step, points } = periodRanges[period];
  return { size, step, points, from: Math.floor(now / step) * step - (points - 1) * step };
}

/** Returns all days of the current month in UTC, including future days. */
export function toMonthRange(now: Millis): PointRange {
  const date = new Date(now);
  const year = date.getUTCFullYear();
  const month = date.getUTCMonth();
  const from = Date.UTC(year, month);
  return { from, step: day, points: Math.round((Date.UTC(year, month + 1) - from) / day) };
}

/**
 * Returns the sum of the buckets in each point of a period. Points without buckets have zeros. Buckets
 * outside the period are ignored.
 */
export function sumPoints(buckets: readonly Usage[], { from, step, points }: PointRange): Point[] {
  const all = Array.from({ length: points }, (_, index): Point => ({
    at: from + index * step,
    counts: { ...noCounts },
  }));
  for (const bucket of buckets) {
    const point = all[Math.floor((readBucketStart(bucket) - from) / step)];
    if (point) for (const name of countNames) point.counts[name] += bucket[name];
  }
  return all;
}

/** Returns the number of dead letters, from all of the largest buckets. */
export const sumDeadLetters = (buckets: readonly Usage[]): number =>
  buckets.reduce((sum, { deadLetters }) => sum + deadLetters, 0);

/** Returns the number of stored bytes, from all of the largest buckets. */
export const sumStoredBytes = (buckets: readonly Usage[]): number =>
  buckets.reduce((sum, { storedBytes }) => sum + storedBytes, 0);

/**
 * Prices in dollars: for 100,000 messages outside workflows, for 100,000 messages of workflows, and for a
 * gigabyte (10^9 bytes) in or out.
 */
export type Prices = { messages: number; workflowMessages: number; gigabyte: number };

/** Returns the cost of counts in dollars. */
export const calculateCost = (
  { messages, workflowMessages, bytesIn, bytesOut }: Counts,
  prices: Prices,
): number =>
  (messages * prices.messages + workflowMessages * prices.workflowMessages) / 100_000 +
  ((bytesIn + bytesOut) * prices.gigabyte) / 1e9;
