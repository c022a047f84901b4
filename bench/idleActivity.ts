/** The activity of idle servers. */
import { threads } from "./processFigures.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";

/** The activity of a thread: its context switches per second, and its CPU time in microseconds per second. */
export type ThreadActivity = { name: string; wakeUpsPerSecond: number; cpuPerSecond: number };

/**
 * Leaves servers idle for `settle` seconds, then watches their threads for `seconds`: all at the same time,
 * because idle servers do not disturb each other.
 */
export async function watchIdle(
  servers: readonly Server[],
  { settle, seconds }: { settle: number; seconds: number },
): Promise<ThreadActivity[][]> {
  for (const server of servers) await waitUntilQuiet(server.pid);
  await pause(settle * 1e3);
  const before = servers.map(({ pid }) => threads(pid));
  await pause(seconds * 1e3);
  return servers.map(({ pid }, index) => {
    const earlier = new Map(before[index]?.map((thread) => [thread.id, thread]));
    return threads(pid).map((thread) => ({
      name: thread.name,
      wakeUpsPerSecond: (thread.switches - (earlier.get(thread.id)?.switches ?? 0)) / seconds,
      cpuPerSecond: (thread.cpu - (earlier.get(thread.id)?.cpu ?? 0)) / seconds,
    }));
  });
}

/** The column heads of `formatActivity`. */
export const activityHeads = ["wake-ups/s", "CPU µs/s", "threads that wake, and how often"] as const;

/** Formats the activity of a server's threads as the cells of a row. */
export function formatActivity(threads: readonly ThreadActivity[]): string[] {
  const sum = (of: (thread: ThreadActivity) => number): string =>
    threads.reduce((total, thread) => total + of(thread), 0).toFixed(1);
  const awake = threads
    .filter((thread) => thread.wakeUpsPerSecond >= 0.1)
    .map((thread) => `${thread.name} ${thread.wakeUpsPerSecond.toFixed(1)}`);
  return [sum((thread) => thread.wakeUpsPerSecond), sum((thread) => thread.cpuPerSecond), awake.join(", ")];
}
