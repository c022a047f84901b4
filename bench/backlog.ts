/**
 * What does a large backlog cost? The bench publishes delayed messages, then measures throughput beside an
 * empty server, memory, and the restart after a kill.
 */
import { request } from "undici";
import { microseconds } from "./clock.ts";
import {
  destination,
  type Workload,
  type BenchSetup,
  openBenchSetup,
  runTurns,
  type TurnResult,
} from "./benchSetup.ts";
import { mebibytes, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import { body } from "./payload.ts";
import { memory } from "./processFigures.ts";
import { question } from "./question.ts";
import { waitUntilQuiet } from "./server.ts";
import type { BenchResources } from "./benchResources.ts";
import { type ServerLocation, startWaypost, type Waypost } from "./waypost.ts";

/** Milliseconds from the start of the process. */
type Restart = { ready: number; firstDelivery: number };

/** The benchmark of a large number of delayed messages. */
export const backlog = question({
  asks: "throughput, memory and restart with many delayed messages, against an empty server",
  options: {
    backlog: { default: 1_000_000, help: "delayed messages" },
    batch: { default: 1_000, help: "messages per batch request" },
    fillers: { default: 4, help: "concurrent batch requests" },
    rounds: { default: 5, help: "turns of each server" },
    messages: { default: 20_000, help: "messages of a turn, and of the warm-up" },
    restarts: { default: 3, help: "how often the server is killed and restarted" },
  },
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const folder = resources.folder("full");
    const filled = await startWaypost(resources, { folder });
    const filledPerSecond = await fill(setup, filled, {
      count: given.backlog,
      batch: given.batch,
      fillers: given.fillers,
    });
    const whileFilling = memory(filled.pid);
    const full = await killAndRestart(resources, setup, {
      server: filled,
      folder,
      times: given.restarts,
      name: "full",
    });
    const emptyFolder = resources.folder("empty");
    const started = await startWaypost(resources, { folder: emptyFolder });
    const empty = await killAndRestart(resources, setup, {
      server: started,
      folder: emptyFolder,
      times: given.restarts,
      name: "empty",
    });
    const workload: Workload = {
      connections: given.connections,
      messages: given.messages,
      seconds: null,
      rate: null,
    };
    const contestants = [empty.server, full.server].map((server) => ({
      server,
      warmUp: workload,
      drive: workload,
    }));
    const turns = await runTurns(setup, contestants, given.rounds);
    const figures = {
      filled: given.backlog,
      filledPerSecond,
      whileFilling,
      empty: {
        restarts: empty.restarts,
        idle: empty.idle,
        loaded: memory(empty.server.pid),
        turns: turns[0] ?? [],
      },
      full: {
        restarts: full.restarts,
        idle: full.idle,
        loaded: memory(full.server.pid),
        turns: turns[1] ?? [],
      },
    };
    return { figures, text: report(figures) };
  },
});

type Side = {
  restarts: Restart[];
  idle: ReturnType<typeof memory>;
  loaded: ReturnType<typeof memory>;
  turns: TurnResult[];
};
type Figures = {
  filled: number;
  filledPerSecond: number;
  whileFilling: ReturnType<typeof memory>;
  empty: Side;
  full: Side;
};

/** Publishes the backlog. Returns the messages per second. */
export async function fill(
  setup: BenchSetup,
  server: Waypost,
  { count, batch, fillers }: { count: number; batch: number; fillers: number },
): Promise<number> {
  const startedAt = performance.now();
  let started = 0;
  const filler = async (): Promise<void> => {
    while (started < count) {
      const size = Math.min(batch, count - started);
      const first = started;
      started += size;
      await publishBatch(setup, server, { first, size });
      if (Math.floor((first + size) / 100_000) > Math.floor(first / 100_000))
        console.error(`backlog: ${first + size} messages`);
    }
  };
  await Promise.all(Array.from({ length: fillers }, filler));
  const seconds = (performance.now() - startedAt) / 1e3;
  await waitUntilQuiet(server.pid);
  return count / seconds;
}

async function publishBatch(
  setup: BenchSetup,
  server: Waypost,
  { first, size }: { first: number; size: number },
): Promise<void> {
  const items = Array.from({ length: size }, (_, index) => ({
    destination: destination(setup),
    headers: { "content-type": "application/json", "upstash-delay": "1d" },
    body: body({ round: 0, number: first + index, at: 0 }),
  }));
  const response = await request(`http://127.0.0.1:${server.port}/v2/batch`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
    body: JSON.stringify(items),
  });
  const text = await response.body.text();
  const accepted = text.split('"messageId"').length - 1;
  if (response.statusCode < 300 && accepted === size) return;
  throw new Error(
    `A batch of ${size} got status ${response.statusCode}, ${accepted} accepted: ${text.slice(0, 500)}`,
  );
}

type Restarted = { server: Waypost; restarts: Restart[]; idle: ReturnType<typeof memory> };

/** Kills and restarts the server several times. Each time one message shows that it works. */
export async function killAndRestart(
  resources: BenchResources,
  setup: BenchSetup,
  plan: ServerLocation & { server: Waypost; times: number; name: string },
): Promise<Restarted> {
  const restarts: Restart[] = [];
  let { server } = plan;
  for (let time = 1; time <= Math.max(1, plan.times); time += 1) {
    await server.kill();
    const startedAt = microseconds();
    server = await startWaypost(resources, plan);
    const deliveredAt = await deliverOne(setup, server);
    restarts.push({ ready: server.readyAfter, firstDelivery: (deliveredAt - startedAt) / 1e3 });
    await waitUntilQuiet(server.pid);
  }
  return { server, restarts, idle: memory(server.pid) };
}

/** Publishes one message. Returns when the sink received it, in microseconds. */
async function deliverOne(setup: BenchSetup, server: Waypost): Promise<number> {
  const round = ++setup.rounds;
  await setup.sink.ask("begin", { id: round, messages: 1, copies: 1 });
  const response = await request(`http://127.0.0.1:${server.port}/v2/publish/${destination(setup)}`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
    body: body({ round, number: 0, at: 0 }),
  });
  if (response.statusCode >= 300)
    throw new Error(
      `After its restart ${server.name} responded with ${response.statusCode}: ${await response.body.text()}`,
    );
  await response.body.dump();
  const { received, lastAt } = await setup.sink.ask("finish", { expected: 1, patience: 30_000 }, 40_000);
  if (received === 0) throw new Error(`After its restart ${server.name} delivered nothing for 30 s.`);
  return lastAt;
}

function report({ filled, filledPerSecond, whileFilling, empty, full }: Figures): string {
  const rate = (side: Side): number[] => side.turns.map((turn) => turn.perSecond);
  const cpu = (side: Side): number[] => side.turns.map((turn) => turn.cpuPerMessage);
  const compared = (name: string, of: (side: Side) => number[], digits: number): string[] => [
    name,
    ...[empty, full].map((side) => formatSummary(summarize(of(side)), digits)),
    formatSummary(ratio(of(full), of(empty)), 2),
  ];
  const sizes = (name: string, of: (side: Side) => number): string[] => [
    name,
    ...[empty, full].map((side) => mebibytes(of(side))),
    `${mebibytes(of(full) - of(empty))} more`,
  ];
  const rows = formatTable([
    ["median (lowest to highest)", "empty", "full", "full ÷ empty"],
    compared("messages/s, end to end", rate, 0),
    compared("CPU µs per message", cpu, 1),
    compared("restart to ready, ms", (side) => side.restarts.map((one) => one.ready), 0),
    compared("restart to first delivery, ms", (side) => side.restarts.map((one) => one.firstDelivery), 0),
    sizes("memory after restart, MiB", (side) => side.idle.resident),
    sizes("memory after load, MiB", (side) => side.loaded.resident),
    sizes("peak memory, MiB", (side) => side.loaded.peak),
  ]);
  const filling =
    `Filled with ${filled} at ${filledPerSecond.toFixed(0)} messages/s ` +
    `with at most ${mebibytes(whileFilling.peak)} MiB.`;
  return `${rows}\n\n${filling}`;
}
