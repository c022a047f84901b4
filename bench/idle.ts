/** What does the server do when there is nothing to do? Wake-ups and CPU time of each thread, fresh and after work. */
import { type Field, openField, startPassThrough, takeTurn } from "./field.ts";
import { table } from "./figures.ts";
import { threads } from "./process-figures.ts";
import { question } from "./question.ts";
import { pause, quiet, type Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

type Rest = { server: string; when: "fresh" | "after work"; threads: { name: string; wakeUpsPerSecond: number; cpuPerSecond: number }[] };

export const idle = question({
  asks: "wake-ups and CPU time without work, beside those of a bare Node server",
  options: {
    seconds: { default: 20, help: "how long it is watched, each time" },
    settle: { default: 10, help: "seconds it is left alone before" },
    messages: { default: 5_000, help: "messages before it is watched again" },
  },
  async find(given, stage) {
    const field = await openField(stage);
    const passThrough = await startPassThrough(stage, given.connections);
    const waypost = await startWaypost(stage, { folder: stage.folder("waypost") });
    const servers = [passThrough, waypost];
    const fresh = await watch(servers, "fresh", given);
    for (const server of servers) await work(field, server, given);
    const rests = [...fresh, ...(await watch(servers, "after work", given))];
    return { figures: { rests }, text: report(rests) };
  },
});

async function work(field: Field, server: Server, { messages, connections }: { messages: number; connections: number }): Promise<void> {
  await takeTurn(field, server, { connections, messages, seconds: null, rate: null });
}

/** All are watched at the same time: they have nothing to do that could disturb another. */
async function watch(servers: Server[], when: Rest["when"], { settle, seconds }: { settle: number; seconds: number }): Promise<Rest[]> {
  for (const server of servers) await quiet(server.pid);
  await pause(settle * 1e3);
  const before = servers.map(({ pid }) => threads(pid));
  await pause(seconds * 1e3);
  return servers.map(({ name, pid }, index) => {
    const earlier = new Map(before[index]?.map((thread) => [thread.id, thread]));
    const found = threads(pid).map((thread) => ({
      name: thread.name,
      wakeUpsPerSecond: (thread.switches - (earlier.get(thread.id)?.switches ?? 0)) / seconds,
      cpuPerSecond: (thread.cpu - (earlier.get(thread.id)?.cpu ?? 0)) / seconds,
    }));
    return { server: name, when, threads: found };
  });
}

function report(rests: Rest[]): string {
  const row = ({ server, when, threads: all }: Rest): string[] => {
    const sum = (of: (thread: Rest["threads"][number]) => number): string =>
      all.reduce((total, thread) => total + of(thread), 0).toFixed(1);
    const awake = all
      .filter((thread) => thread.wakeUpsPerSecond >= 0.1)
      .map((thread) => `${thread.name} ${thread.wakeUpsPerSecond.toFixed(1)}`);
    return [`${server}, ${when}`, sum((thread) => thread.wakeUpsPerSecond), sum((thread) => thread.cpuPerSecond), awake.join(", ")];
  };
  return table([["", "wake-ups/s", "CPU µs/s", "threads that wake, and how often"], ...rests.map(row)]);
}
