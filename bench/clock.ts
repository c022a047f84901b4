/**
 * Returns the machine's monotonic clock in microseconds. It is the same in every process, so a latency may
 * start in one and end in another.
 */
export function microseconds(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + Math.floor(nanoseconds / 1e3);
}
