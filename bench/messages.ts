/** How much of the possible does the durable server reach? Against a pass-through, in turns. */
import { type Drive, type Field, openField, startPassThrough, takeTurn, takeTurns, type Turn } from "./field.ts";
import { mebibytes, type Middle, middle, ratio, showMiddle, table } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { type Memory, memory } from "./process-figures.ts";
import { question } from "./question.ts";
import type { Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

const options = {
  rounds: { default: 5, help: "throughput turns of each server" },
  messages: { default: 30_000, help: "messages of a throughput turn" },
  seconds: { default: 0, help: "end a throughput turn after so many seconds, if --messages are not sent before (0: no limit)" },
  "warm-up": { default: 60_000, help: "messages of the warm-up of each server" },
  "latency-rounds": { default: 5, help: "turns of each server at each rate (0: leave latency out)" },
  "latency-warm-up": { default: 4, help: "turns of each server at each rate before those" },
  "latency-seconds": { default: 5, help: "seconds of a latency turn" },
} as const;

const rates = [100, 1_000] as const;

/** Milliseconds, each the middle of the turns. */
type Latency = { rate: number; publish: { p50: Middle; p99: Middle }; delivery: { p50: Middle; p99: Middle }; turns: Turn[] };
type Competitor = { server: Server; idle: Memory; turns: Turn[]; latencies: Latency[] };

export const messages = question({
  asks: "durable messages per second, CPU, memory and latency, against a server that stores nothing",
  options,
  async find(given, stage) {
    const field = await openField(stage);
    const passThrough = await startPassThrough(stage, given.connections);
    const waypost = await startWaypost(stage, { folder: stage.folder("waypost") });
    const competitors = [passThrough, waypost].map((server): Competitor => ({
      server,
      idle: memory(server.pid),
      turns: [],
      latencies: [],
    }));
    await measureThroughput(field, competitors, given);
    await measureLatency(field, competitors, given);
    const figures = { competitors: competitors.map(summary), ratios: ratios(competitors) };
    return { figures, text: report(competitors) };
  },
});

async function measureThroughput(field: Field, competitors: Competitor[], given: Given<typeof options & typeof common>): Promise<void> {
  const drive: Drive = { connections: given.connections, messages: given.messages, seconds: given.seconds || null, rate: null };
  const warmUp = { ...drive, messages: given["warm-up"] };
  const contestants = competitors.map(({ server }) => ({ server, warmUp, drive }));
  const turns = await takeTurns(field, contestants, given.rounds);
  for (const [index, competitor] of competitors.entries()) competitor.turns = turns[index] ?? [];
}

async function measureLatency(field: Field, competitors: Competitor[], given: Given<typeof options & typeof common>): Promise<void> {
  if (given["latency-rounds"] === 0) return;
  for (const rate of rates) {
    const drive: Drive = { connections: given.connections, messages: rate * given["latency-seconds"], seconds: null, rate };
    const turns = competitors.map((): Turn[] => []);
    // What a server does once for a batch is called too seldom under full load to be compiled. That happens in the first seconds of this one.
    for (let round = 1 - given["latency-warm-up"]; round <= given["latency-rounds"]; round += 1) {
      for (const [index, { server }] of competitors.entries()) {
        const turn = await takeTurn(field, server, drive);
        if (round > 0) turns[index]?.push(turn);
      }
      console.error(round > 0 ? `latency at ${rate}/s, round ${round}` : `latency at ${rate}/s, warm-up`);
    }
    for (const [index, competitor] of competitors.entries()) competitor.latencies.push(latency(rate, turns[index] ?? []));
  }
}

function latency(rate: number, turns: Turn[]): Latency {
  const of = (side: "load" | "sink", quantile: "p50" | "p99"): Middle => middle(turns.map((turn) => turn[side].latency[quantile]));
  return {
    rate,
    publish: { p50: of("load", "p50"), p99: of("load", "p99") },
    delivery: { p50: of("sink", "p50"), p99: of("sink", "p99") },
    turns,
  };
}

function summary({ server, idle, turns, latencies }: Competitor): object {
  return {
    name: server.name,
    perSecond: middle(turns.map((turn) => turn.perSecond)),
    cpuPerMessage: middle(turns.map((turn) => turn.cpuPerMessage)),
    memory: { idle: idle.resident, peak: memory(server.pid).peak },
    turns,
    latencies,
  };
}

function ratios([a, b]: Competitor[]): { perSecond: Middle; cpuPerMessage: Middle } {
  const pairs = (figure: (turn: Turn) => number): Middle => ratio((b?.turns ?? []).map(figure), (a?.turns ?? []).map(figure));
  return { perSecond: pairs((turn) => turn.perSecond), cpuPerMessage: pairs((turn) => turn.cpuPerMessage) };
}

function report(competitors: Competitor[]): string {
  const of = (figure: (turn: Turn) => number, digits: number): string[] =>
    competitors.map(({ turns }) => showMiddle(middle(turns.map(figure)), digits));
  const { perSecond, cpuPerMessage } = ratios(competitors);
  return table([
    ["median (lowest to highest)", ...competitors.map(({ server }) => server.name), "ratio, pair by pair"],
    ["messages/s, end to end", ...of((turn) => turn.perSecond, 0), showMiddle(perSecond, 2)],
    ["CPU µs per message", ...of((turn) => turn.cpuPerMessage, 1), showMiddle(cpuPerMessage, 2)],
    [
      "memory idle / peak, MiB",
      ...competitors.map(({ server, idle }) => `${mebibytes(idle.resident)} / ${mebibytes(memory(server.pid).peak)}`),
    ],
    ["load's share of a core", ...of((turn) => turn.load.cpu, 2)],
    ["sink's share of a core", ...of((turn) => turn.sink.cpu, 2)],
    ["end told by", ...competitors.map(({ turns }) => turns[0]?.settledBy ?? "")],
    ...rates.flatMap((rate) => latencyRows(competitors, rate)),
  ]);
}

function latencyRows(competitors: Competitor[], rate: number): string[][] {
  const found = competitors.map(({ latencies }) => latencies.find((one) => one.rate === rate));
  if (found.some((one) => one === undefined)) return [];
  const row = (name: string, of: (one: Latency) => { p50: Middle; p99: Middle }): string[] => {
    const cells = found.map((one) => (one ? of(one) : { p50: middle([]), p99: middle([]) }));
    const [a, b] = cells;
    const times = ((b?.p99.median ?? Number.NaN) / (a?.p99.median ?? Number.NaN)).toFixed(2);
    return [
      `${name} at ${rate}/s, p50 / p99 ms`,
      ...cells.map(({ p50, p99 }) => `${p50.median.toFixed(2)} / ${p99.median.toFixed(2)}`),
      `p99 × ${times}`,
    ];
  };
  const lateness = found.map((one) => middle((one?.turns ?? []).map((turn) => turn.load.lateness.p99)).median.toFixed(2));
  return [
    row("publish", (one) => one.publish),
    row("publish to delivery", (one) => one.delivery),
    [`load behind its schedule at ${rate}/s, p99 ms`, ...lateness],
  ];
}
