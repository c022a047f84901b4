/** The upper bounds, in seconds, of times from half a millisecond to ten minutes. */
export const timeBounds = [
  ...[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5],
  ...[1, 2.5, 5, 10, 30, 60, 300, 600],
];
/** The upper bounds, in seconds, of times of work on this machine. */
export const shortTimeBounds = timeBounds.slice(0, 14);
/** The upper bounds of numbers of rows. */
export const rowBounds = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/**
 * Counts values by size, in plain numbers: this runs for each message. The scrape adds the counts up, as
 * Prometheus expects them.
 */
export class Histogram {
  readonly bounds: readonly number[];
  /** The number of values up to each bound and above the one before. The last one has no bound. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** Counts a value. A negative value, as after a change of a clock, counts as 0. */
  observe(value: number): void {
    const counted = value > 0 ? value : 0;
    const { bounds } = this;
    let at = 0;
    while (at < bounds.length && counted > (bounds[at] ?? Infinity)) at++;
    this.counts[at] = (this.counts[at] ?? 0) + 1;
    this.sum += counted;
  }

  /** Counts a time that is given in milliseconds. */
  observeMillis(time: number): void {
    this.observe(time / 1000);
  }
}
