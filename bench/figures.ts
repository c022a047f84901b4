/** Latencies of one turn, in milliseconds. */
export type Spread = { count: number; p50: number; p99: number; max: number };

/** The median of several rounds, with the lowest and the highest. */
export type Summary = { median: number; min: number; max: number };

/** Returns the spread of the first `count` samples, in microseconds. Sorts them in place. */
export function spread(samples: Float64Array, count: number): Spread {
  const sorted = samples.subarray(0, count).sort();
  return {
    count,
    p50: findQuantile(sorted, 0.5) / 1e3,
    p99: findQuantile(sorted, 0.99) / 1e3,
    max: findQuantile(sorted, 1) / 1e3,
  };
}

/** Returns the nearest-rank quantile of sorted samples, or NaN if there are none. */
function findQuantile(sorted: Float64Array, quantile: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * quantile) - 1)] ?? Number.NaN;
}

/** Returns the median with minimum and maximum, or NaN if there are no values. */
export function summarize(values: readonly number[]): Summary {
  const sorted = Float64Array.from(values).sort();
  const half = Math.floor(sorted.length / 2);
  const upper = sorted[half] ?? Number.NaN;
  const median = sorted.length % 2 === 1 ? upper : (upper + (sorted[half - 1] ?? Number.NaN)) / 2;
  return { median, min: findQuantile(sorted, 0), max: findQuantile(sorted, 1) };
}

/**
 * Returns the summary of the ratios of paired rounds: each round of `b` divided by the round of `a` that it
 * took turns with.
 */
export function ratio(b: readonly number[], a: readonly number[]): Summary {
  return summarize(b.map((value, round) => value / (a[round] ?? Number.NaN)));
}

/** 97.5 % quantiles of Student's t-distribution, by degrees of freedom, from 1 to 30. */
const studentQuantiles = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/**
 * Returns the geometric mean of the ratios of paired rounds, with its 95 % confidence interval: Student's
 * t-test of the logarithms. One pair has no interval (NaN).
 */
export function estimateRatio(
  b: readonly number[],
  a: readonly number[],
): { mean: number; low: number; high: number } {
  const logs = b.map((value, round) => Math.log(value / (a[round] ?? Number.NaN)));
  const mean = logs.reduce((sum, value) => sum + value, 0) / logs.length;
  const variance = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (logs.length - 1);
  const quantile = studentQuantiles[Math.min(logs.length - 1, studentQuantiles.length) - 1] ?? Number.NaN;
  const margin = quantile * Math.sqrt(variance / logs.length);
  return { mean: Math.exp(mean), low: Math.exp(mean - margin), high: Math.exp(mean + margin) };
}

/** Formats bytes as whole mebibytes. */
export const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);

/** Formats a summary as "median (lowest to highest)". */
export function formatSummary({ median, min, max }: Summary, digits: number): string {
  if (Number.isNaN(median)) return "";
  return `${formatValue(median, digits)} (${formatValue(min, digits)} to ${formatValue(max, digits)})`;
}

function formatValue(value: number, digits: number): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Formats rows as an aligned table. The first row is the header. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  const lines = rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  lines.splice(1, 0, widths.map((width) => "-".repeat(width)).join("  "));
  return lines.join("\n");
}
