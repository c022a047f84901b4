/** What does the server do when there is nothing to do? Wake-ups and CPU time of each thread, fresh and after work. */
import { type Field, openField, startPassThrough, takeTurn } from "./field.ts";
import { table } from "./figures.ts";
import { question } from "./question.ts";
import { restCells, restHeads, type ThreadRest, watchRest } from "./rest.ts";
import type { Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

type Rest = { server: string; when: "fresh" | "after work"; threads: ThreadRest[] };

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

async function watch(servers: Server[], when: Rest["when"], given: { settle: number; seconds: number }): Promise<Rest[]> {
  const rests = await watchRest(servers, given);
  return servers.map(({ name }, index) => ({ server: name, when, threads: rests[index] ?? [] }));
}

function report(rests: Rest[]): string {
  const row = ({ server, when, threads }: Rest): string[] => [`${server}, ${when}`, ...restCells(threads)];
  return table([["", ...restHeads], ...rests.map(row)]);
}
