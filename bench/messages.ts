/** How near does the durable server come to the ceiling? It takes turns with a pass-through. */
import {
  type Workload,
  type BenchSetup,
  openBenchSetup,
  startPassThrough,
  runTurn,
  runTurns,
  type TurnResult,
} from "./benchSetup.ts";
import { mebibytes, type Summary, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { type Memory, memory } from "./processFigures.ts";
import { question } from "./question.ts";
import type { Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

const options = {
  rounds: { default: 5, help: "throughput turns of each server" },
  messages: { default: 30_000, help: "messages of a throughput turn" },
  seconds: {
    default: 0,
    help: "longest time of a throughput turn in seconds, even if --messages are not sent (0: no limit)",
  },
  "warm-up": { default: 60_000, help: "messages of the warm-up of each server" },
  "latency-rounds": { default: 5, help: "turns of each server at each rate (0: leave latency out)" },
  "latency-warm-up": { default: 4, help: "warm-up turns of each server at each rate" },
  "latency-seconds": { default: 5, help: "seconds of a latency turn" },
} as const;

const rates = [100, 1_000] as const;

/** Medians of the turns, in milliseconds. */
type Latency = {
  rate: number;
  publish: { p50: Summary; p99: Summary };
  delivery: { p50: Summary; p99: Summary };
  turns: TurnResult[];
};
type Competitor = { server: Server; idle: Memory; turns: TurnResult[]; latencies: Latency[] };

/** The benchmark of plain messages, against a server that stores nothing. */
export const messages = question({
  asks: "durable messages/s, CPU, memory and latency, against a server that stores nothing",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const passThrough = await startPassThrough(resources, given.connections);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const competitors = [passThrough, waypost].map((server): Competitor => ({
      server,
      idle: memory(server.pid),
      turns: [],
      latencies: [],
    }));
    await measureThroughput(setup, competitors, given);
    await measureLatency(setup, competitors, given);
    const figures = {
      competitors: competitors.map(summarizeCompetitor),
      ratios: compareCompetitors(competitors),
    };
    return { figures, text: report(competitors) };
  },
});

async function measureThroughput(
  setup: BenchSetup,
  competitors: Competitor[],
  given: Given<typeof options & typeof common>,
): Promise<void> {
  const workload: Workload = {
    connections: given.connections,
    messages: given.messages,
    seconds: given.seconds || null,
    rate: null,
  };
  const warmUp = { ...workload, messages: given["warm-up"] };
  const contestants = competitors.map(({ server }) => ({ server, warmUp, drive: workload }));
  const turns = await runTurns(setup, contestants, given.rounds);
  for (const [index, competitor] of competitors.entries()) competitor.turns = turns[index] ?? [];
}

async function measureLatency(
  setup: BenchSetup,
  competitors: Competitor[],
  given: Given<typeof options & typeof common>,
): Promise<void> {
  if (given["latency-rounds"] === 0) return;
  for (const rate of rates) {
    const workload: Workload = {
      connections: given.connections,
      messages: rate * given["latency-seconds"],
      seconds: null,
      rate,
    };
    const turns = competitors.map((): TurnResult[] => []);
    // Code that runs once per batch is called too rarely under full load to be compiled. It is compiled in
    // the first seconds at this rate.
    for (let round = 1 - given["latency-warm-up"]; round <= given["latency-rounds"]; round += 1) {
      for (const [index, { server }] of competitors.entries()) {
        const turn = await runTurn(setup, server, workload);
        if (round > 0) turns[index]?.push(turn);
      }
      console.error(round > 0 ? `latency at ${rate}/s, round ${round}` : `latency at ${rate}/s, warm-up`);
    }
    for (const [index, competitor] of competitors.entries())
      competitor.latencies.push(latency(rate, turns[index] ?? []));
  }
}

function latency(rate: number, turns: TurnResult[]): Latency {
  const of = (side: "load" | "sink", quantile: "p50" | "p99"): Summary =>
    summarize(turns.map((turn) => turn[side].latency[quantile]));
  return {
    rate,
    publish: { p50: of("load", "p50"), p99: of("load", "p99") },
    delivery: { p50: of("sink", "p50"), p99: of("sink", "p99") },
    turns,
  };
}

function summarizeCompetitor({ server, idle, turns, latencies }: Competitor): object {
  return {
    name: server.name,
    perSecond: summarize(turns.map((turn) => turn.perSecond)),
    cpuPerMessage: summarize(turns.map((turn) => turn.cpuPerMessage)),
    memory: { idle: idle.resident, peak: memory(server.pid).peak },
    turns,
    latencies,
  };
}

function compareCompetitors([a, b]: Competitor[]): { perSecond: Summary; cpuPerMessage: Summary } {
  const pairs = (figure: (turn: TurnResult) => number): Summary =>
    ratio((b?.turns ?? []).map(figure), (a?.turns ?? []).map(figure));
  return { perSecond: pairs((turn) => turn.perSecond), cpuPerMessage: pairs((turn) => turn.cpuPerMessage) };
}

function report(competitors: Competitor[]): string {
  const of = (figure: (turn: TurnResult) => number, digits: number): string[] =>
    competitors.map(({ turns }) => formatSummary(summarize(turns.map(figure)), digits));
  const { perSecond, cpuPerMessage } = compareCompetitors(competitors);
  return formatTable([
    ["median (lowest to highest)", ...competitors.map(({ server }) => server.name), "ratio of pairs"],
    ["messages/s, end to end", ...of((turn) => turn.perSecond, 0), formatSummary(perSecond, 2)],
    ["CPU µs per message", ...of((turn) => turn.cpuPerMessage, 1), formatSummary(cpuPerMessage, 2)],
    [
      "memory idle / peak, MiB",
      ...competitors.map(
        ({ server, idle }) => `${mebibytes(idle.resident)} / ${mebibytes(memory(server.pid).peak)}`,
      ),
    ],
    ["load's share of a core", ...of((turn) => turn.load.cpu, 2)],
    ["sink's share of a core", ...of((turn) => turn.sink.cpu, 2)],
    ["end measured by", ...competitors.map(({ turns }) => turns[0]?.settledBy ?? "")],
    ...rates.flatMap((rate) => latencyRows(competitors, rate)),
  ]);
}

function latencyRows(competitors: Competitor[], rate: number): string[][] {
  const found = competitors.map(({ latencies }) => latencies.find((one) => one.rate === rate));
  if (found.some((one) => one === undefined)) return [];
  const row = (name: string, of: (one: Latency) => { p50: Summary; p99: Summary }): string[] => {
    const cells = found.map((one) => (one ? of(one) : { p50: summarize([]), p99: summarize([]) }));
    const [a, b] = cells;
    const times = ((b?.p99.median ?? Number.NaN) / (a?.p99.median ?? Number.NaN)).toFixed(2);
    return [
      `${name} at ${rate}/s, p50 / p99 ms`,
      ...cells.map(({ p50, p99 }) => `${p50.median.toFixed(2)} / ${p99.median.toFixed(2)}`),
      `p99 × ${times}`,
    ];
  };
  const lateness = found.map((one) =>
    summarize((one?.turns ?? []).map((turn) => turn.load.lateness.p99)).median.toFixed(2),
  );
  return [
    row("publish", (one) => one.publish),
    row("publish to delivery", (one) => one.delivery),
    [`load behind its schedule at ${rate}/s, p99 ms`, ...lateness],
  ];
}
