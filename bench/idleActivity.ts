/** What servers do while nobody asks anything of them. */
import { threads } from "./process-figures.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";

/** One thread, while it was watched: how often it was woken or set aside a second, and its CPU time in microseconds a second. */
export type ThreadActivity = { name: string; wakeUpsPerSecond: number; cpuPerSecond: number };

/** Leaves servers alone for `settle` seconds, and watches their threads for `seconds`: all at once, for they have nothing to do that could disturb another. */
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

/** What `formatActivity` tells. */
export const activityHeads = ["wake-ups/s", "CPU µs/s", "threads that wake, and how often"] as const;

export function formatActivity(threads: readonly ThreadActivity[]): string[] {
  const sum = (of: (thread: ThreadActivity) => number): string => threads.reduce((total, thread) => total + of(thread), 0).toFixed(1);
  const awake = threads
    .filter((thread) => thread.wakeUpsPerSecond >= 0.1)
    .map((thread) => `${thread.name} ${thread.wakeUpsPerSecond.toFixed(1)}`);
  return [sum((thread) => thread.wakeUpsPerSecond), sum((thread) => thread.cpuPerSecond), awake.join(", ")];
}
