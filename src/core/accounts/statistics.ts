import type { Millis } from "../model/message.ts";
import type { Counts, Usage } from "../model/counts.ts";
import type { BucketSize } from "./usage.ts";
import { countNames, noCounts } from "../model/counts.ts";
import { readBucketStart } from "./usage.ts";
import { day, hour, minute } from "../values/time.ts";

/** A stretch of time, cut into points of equal length. */
export type PointRange = { from: Millis; step: Millis; points: number };

/** What was used in one of them, from `at` on. */
export type Point = { at: Millis; counts: Counts };

/** The periods that statistics are told of, and the buckets that they are made of: 60 points, and 240 of three hours for the longest. */
const periodRanges = {
  "1h": { size: "1m", step: minute, points: 60 },
  "3h": { size: "1m", step: 3 * minute, points: 60 },
  "12h": { size: "12m", step: 12 * minute, points: 60 },
  "1d": { size: "12m", step: 24 * minute, points: 60 },
  "3d": { size: "12m", step: 72 * minute, points: 60 },
  "7d": { size: "12m", step: 168 * minute, points: 60 },
  "30d": { size: "3h", step: 3 * hour, points: 240 },
} as const satisfies Record<string, { size: BucketSize; step: Millis; points: number }>;

export const periods = ["1h", "3h", "12h", "1d", "3d", "7d", "30d"] as const;
export type Period = (typeof periods)[number];

/**
 * The period that ends now. Points begin at whole multiples of their length, and the last one is that of now, which is not
 * over: so a point is the same whenever it is asked for.
 */
export function toPeriodRange(period: Period, now: Millis): PointRange & { size: BucketSize } {
  const { size, step, points } = periodRanges[period];
  return { size, step, points, from: Math.floor(now / step) * step - (points - 1) * step };
}

/** All days of the month of a moment, in UTC, those to come included. */
export function toMonthRange(now: Millis): PointRange {
  const date = new Date(now);
  const year = date.getUTCFullYear();
  const month = date.getUTCMonth();
  const from = Date.UTC(year, month);
  return { from, step: day, points: Math.round((Date.UTC(year, month + 1) - from) / day) };
}

/** What buckets come to in each point of a stretch; zeros where there are none. What is outside is left out. */
export function sumPoints(buckets: readonly Usage[], { from, step, points }: PointRange): Point[] {
  const all = Array.from({ length: points }, (_, index): Point => ({ at: from + index * step, counts: { ...noCounts } }));
  for (const bucket of buckets) {
    const point = all[Math.floor((readBucketStart(bucket) - from) / step)];
    if (point) for (const name of countNames) point.counts[name] += bucket[name];
  }
  return all;
}

/** How many dead letters there are, by all of the largest buckets. */
export const sumDeadLetters = (buckets: readonly Usage[]): number => buckets.reduce((sum, { deadLetters }) => sum + deadLetters, 0);

/** Returns how many bytes are stored, by all of the largest buckets. */
export const sumStoredBytes = (buckets: readonly Usage[]): number => buckets.reduce((sum, { storedBytes }) => sum + storedBytes, 0);

/** Dollars: for 100,000 messages outside workflows, for as many of workflows, for a gigabyte (10^9 bytes) in or out. */
export type Prices = { messages: number; workflowMessages: number; gigabyte: number };

/** What was used comes to so many dollars. */
export const calculateCost = ({ messages, workflowMessages, bytesIn, bytesOut }: Counts, prices: Prices): number =>
  (messages * prices.messages + workflowMessages * prices.workflowMessages) / 100_000 + ((bytesIn + bytesOut) * prices.gigabyte) / 1e9;
