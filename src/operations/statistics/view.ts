import { z } from "zod";
import type { Millis } from "../../engine/core/values/basics.ts";
import type { Point, Prices } from "../../engine/core/accounts/statistics.ts";
import { calculateCost } from "../../engine/core/accounts/statistics.ts";
import type { CountName, Counts } from "../../engine/core/model/counts.ts";
import type { AccountBrand } from "../../api/fields/accountRecord.ts";

const x = z.string().describe("The start of the point, such as 2026-01-31 12:00:00.000 +0000 UTC.");
const integerPoint = z.object({ x, y: z.int().min(0).describe("The value of the point.") });
const series = z.array(
  z.object({
    id: z
      .enum(["delivered", "failed", "canceled"])
      .describe("The outcome that is counted: delivered, failed for good, or cancelled."),
    data_points: z.array(integerPoint).describe("The number of messages in each point."),
  }),
);

/** Returns the schema of an account's statistics as its owner sees them. */
export const makeStatisticsSchema = (brand: AccountBrand) =>
  z.object({
    days: z
      .array(z.string())
      .describe("The weekday of each day of the current month in UTC, including days to come."),
    daily_requests: z
      .array(
        integerPoint.extend({
          workflow_message: z.int().min(0).describe("Messages of workflows."),
          workflow_run: z.int().min(0).describe("Runs that were started."),
        }),
      )
      .describe(
        "For each day of the month: messages outside workflows (y), messages of workflows, and started runs.",
      ),
    daily_billings: z
      .array(z.object({ x, y: z.number().describe("The cost in dollars.") }))
      .describe("For each day of the month: the cost in dollars, by the prices of the server."),
    daily_bandwidths: z
      .array(integerPoint)
      .describe("For each day of the month: the bytes of bodies that were published and delivered."),
    daily_used: z.array(integerPoint).describe("Messages outside workflows, for each point of the period."),
    daily_used_workflow: z
      .array(integerPoint)
      .describe("Messages of workflows, for each point of the period."),
    [`daily_${brand}_messages`]: series.describe(
      "Outcomes of messages outside workflows, for each point of the period.",
    ),
    daily_workflow_messages: series.describe(
      "Outcomes of messages of workflows, for each point of the period.",
    ),
    dlq_message_count: z.int().min(0).describe("The number of dead letters now."),
    storage_bytes: z
      .int()
      .describe("Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log."),
    max_storage_bytes: z.int().describe("The quota of stored bytes. Above it, publishing is refused."),
    daily_bandwidth_used: z
      .array(integerPoint)
      .describe("Bytes of bodies that were published and delivered, for each point of the period."),
    total_monthly_billing: z.number().describe("The cost of the current month so far, in dollars."),
  });

const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"] as const;

/** Returns the statistics of an account for the days of a month and the points of a period. */
export function statisticsJson(
  {
    month,
    period,
    ...now
  }: {
    month: readonly Point[];
    period: readonly Point[];
    deadLetters: number;
    stored: number;
    maxStored: number;
  },
  { prices, brand }: { prices: Prices; brand: AccountBrand },
): z.output<ReturnType<typeof makeStatisticsSchema>> {
  const names = ["delivered", "failed", "cancelled"] as const;
  const workflowNames = ["workflowDelivered", "workflowFailed", "workflowCancelled"] as const;
  return {
    days: month.map(({ at }) => weekdays[new Date(at).getUTCDay()] ?? ""),
    daily_requests: month.map(({ at, counts }) => ({
      x: formatTime(at),
      y: counts.messages,
      workflow_message: counts.workflowMessages,
      workflow_run: counts.workflowRuns,
    })),
    daily_billings: toPoints(month, (counts) => roundDollars(calculateCost(counts, prices))),
    daily_bandwidths: toPoints(month, sumBandwidth),
    daily_used: toPoints(period, ({ messages }) => messages),
    daily_used_workflow: toPoints(period, ({ workflowMessages }) => workflowMessages),
    [`daily_${brand}_messages`]: toSeries(period, names),
    daily_workflow_messages: toSeries(period, workflowNames),
    dlq_message_count: now.deadLetters,
    storage_bytes: now.stored,
    max_storage_bytes: now.maxStored,
    daily_bandwidth_used: toPoints(period, sumBandwidth),
    total_monthly_billing: roundDollars(
      month.reduce((sum, { counts }) => sum + calculateCost(counts, prices), 0),
    ),
  };
}

const toPoints = (points: readonly Point[], y: (counts: Counts) => number) =>
  points.map(({ at, counts }) => ({ x: formatTime(at), y: y(counts) }));

const ids = ["delivered", "failed", "canceled"] as const;

const toSeries = (points: readonly Point[], names: readonly CountName[]) =>
  ids.map((id, index) => ({
    id,
    data_points: toPoints(points, (counts) => counts[names[index] ?? "delivered"]),
  }));

const sumBandwidth = ({ bytesIn, bytesOut }: Counts): number => bytesIn + bytesOut;

/** Rounds to millionths of a dollar, because sums of fractions are not exact. */
const roundDollars = (amount: number): number => Math.round(amount * 1e6) / 1e6;

/** Returns a time in the format of this record, such as `2026-01-31 12:00:00.000 +0000 UTC`. */
const formatTime = (at: Millis): string =>
  `${new Date(at).toISOString().replace("T", " ").slice(0, -1)} +0000 UTC`;
