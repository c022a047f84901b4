/**
 * What does the server do when it is idle? The bench counts wake-ups and CPU time of each thread, fresh and
 * after work.
 */
import { type BenchSetup, openBenchSetup, startPassThrough, runTurn } from "./benchSetup.ts";
import { formatTable } from "./figures.ts";
import { question } from "./question.ts";
import { formatActivity, activityHeads, type ThreadActivity, watchIdle } from "./idleActivity.ts";
import type { Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

type IdleResult = { server: string; when: "fresh" | "after work"; threads: ThreadActivity[] };

/** The benchmark of a server that has nothing to do. */
export const idle = question({
  asks: "wake-ups and CPU time without work, beside a bare Node server",
  options: {
    seconds: { default: 20, help: "seconds that the servers are watched, each time" },
    settle: { default: 10, help: "idle seconds before the servers are watched" },
    messages: { default: 5_000, help: "messages before the servers are watched again" },
  },
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const passThrough = await startPassThrough(resources, given.connections);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const servers = [passThrough, waypost];
    const fresh = await watch(servers, "fresh", given);
    for (const server of servers) await work(setup, server, given);
    const rests = [...fresh, ...(await watch(servers, "after work", given))];
    return { figures: { rests }, text: report(rests) };
  },
});

async function work(
  setup: BenchSetup,
  server: Server,
  { messages, connections }: { messages: number; connections: number },
): Promise<void> {
  await runTurn(setup, server, { connections, messages, seconds: null, rate: null });
}

async function watch(
  servers: Server[],
  when: IdleResult["when"],
  given: { settle: number; seconds: number },
): Promise<IdleResult[]> {
  const rests = await watchIdle(servers, given);
  return servers.map(({ name }, index) => ({ server: name, when, threads: rests[index] ?? [] }));
}

function report(rests: IdleResult[]): string {
  const row = ({ server, when, threads }: IdleResult): string[] => [
    `${server}, ${when}`,
    ...formatActivity(threads),
  ];
  return formatTable([["", ...activityHeads], ...rests.map(row)]);
}
