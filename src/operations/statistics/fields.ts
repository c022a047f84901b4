import type { FieldsOf } from "../../api/fields/field.ts";
import { count, integer, list, number, text, texts, word } from "../../api/fields/field.ts";
import type { AccountBrand } from "../../api/fields/accountRecord.ts";
import type { Point, Prices } from "../../engine/core/accounts/statistics.ts";
import { calculateCost } from "../../engine/core/accounts/statistics.ts";
import type { CountName, Counts } from "../../engine/core/model/counts.ts";
import type { Millis } from "../../engine/core/values/basics.ts";

/** The counts of an account: for the days of a month, for the points of a period, and now. */
type Statistics = {
  month: readonly Point[];
  period: readonly Point[];
  prices: Prices;
  deadLetters: number;
  stored: number;
  maxStored: number;
};

const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"] as const;

/** A point of a series. */
type Plotted = { at: Millis; value: number };

const toPoints = (points: readonly Point[], read: (counts: Counts) => number): Plotted[] =>
  points.map(({ at, counts }) => ({ at, value: read(counts) }));
const sumBandwidth = ({ bytesIn, bytesOut }: Counts): number => bytesIn + bytesOut;

/** Rounds to millionths of a dollar, because sums of fractions are not exact. */
const roundDollars = (amount: number): number => Math.round(amount * 1e6) / 1e6;

const x = text<{ at: Millis }>(
  "The start of the point, such as 2026-01-31 12:00:00.000 +0000 UTC.",
  ({ at }) => `${new Date(at).toISOString().replace("T", " ").slice(0, -1)} +0000 UTC`,
);
const pointFields: FieldsOf<Plotted> = { x, y: count("The value of the point.", ({ value }) => value) };
const points = list(pointFields);

const dayFields: FieldsOf<Point> = {
  x,
  y: count("The value of the point.", ({ counts }) => counts.messages),
  workflow_message: count("Messages of workflows.", ({ counts }) => counts.workflowMessages),
  workflow_run: count("Runs that were started.", ({ counts }) => counts.workflowRuns),
};
const costFields: FieldsOf<Plotted> = { x, y: number("The cost in dollars.", ({ value }) => value) };

const outcomes = ["delivered", "failed", "canceled"] as const;
type Series = { id: (typeof outcomes)[number]; points: readonly Plotted[] };
const seriesFields: FieldsOf<Series> = {
  id: word(outcomes)(
    "The outcome that is counted: delivered, failed for good, or cancelled.",
    ({ id }) => id,
  ),
  data_points: points("The number of messages in each point.", ({ points }) => points),
};
const series = list(seriesFields);

const toSeries = (period: readonly Point[], names: Record<Series["id"], CountName>): Series[] =>
  outcomes.map((id) => ({ id, points: toPoints(period, (counts) => counts[names[id]]) }));

/** Returns the fields of the statistics of an account as its holder sees them. */
export const makeStatisticsFields = (brand: AccountBrand): FieldsOf<Statistics> => ({
  days: texts("The weekday of each day of the current month in UTC, including days to come.", ({ month }) =>
    month.map(({ at }) => weekdays[new Date(at).getUTCDay()] ?? ""),
  ),
  daily_requests: list(dayFields)(
    "For each day of the month: messages outside workflows (y), messages of workflows, and started runs.",
    ({ month }) => month,
  ),
  daily_billings: list(costFields)(
    "For each day of the month: the cost in dollars, by the prices of the server.",
    ({ month, prices }) => toPoints(month, (counts) => roundDollars(calculateCost(counts, prices))),
  ),
  daily_bandwidths: points(
    "For each day of the month: the bytes of bodies that were published and delivered.",
    ({ month }) => toPoints(month, sumBandwidth),
  ),
  daily_used: points("Messages outside workflows, for each point of the period.", ({ period }) =>
    toPoints(period, ({ messages }) => messages),
  ),
  daily_used_workflow: points("Messages of workflows, for each point of the period.", ({ period }) =>
    toPoints(period, ({ workflowMessages }) => workflowMessages),
  ),
  [`daily_${brand}_messages`]: series(
    "Outcomes of messages outside workflows, for each point of the period.",
    ({ period }) => toSeries(period, { delivered: "delivered", failed: "failed", canceled: "cancelled" }),
  ),
  daily_workflow_messages: series(
    "Outcomes of messages of workflows, for each point of the period.",
    ({ period }) =>
      toSeries(period, {
        delivered: "workflowDelivered",
        failed: "workflowFailed",
        canceled: "workflowCancelled",
      }),
  ),
  dlq_message_count: count("The number of dead letters now.", ({ deadLetters }) => deadLetters),
  storage_bytes: integer(
    "Bytes stored now: bodies, logs, dead letters, runs, schedules and the audit log.",
    ({ stored }) => stored,
  ),
  max_storage_bytes: integer(
    "The quota of stored bytes. Above it, publishing is refused.",
    ({ maxStored }) => maxStored,
  ),
  daily_bandwidth_used: points(
    "Bytes of bodies that were published and delivered, for each point of the period.",
    ({ period }) => toPoints(period, sumBandwidth),
  ),
  total_monthly_billing: number("The cost of the current month so far, in dollars.", ({ month, prices }) =>
    roundDollars(month.reduce((sum, { counts }) => sum + calculateCost(counts, prices), 0)),
  ),
});
