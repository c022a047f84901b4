/**
 * How fast is Waypost, compared with a server that stores nothing (the pass-through) and with other job
 * queues?
 */
import {
  type Workload,
  type BenchSetup,
  openBenchSetup,
  startPassThrough,
  runTurn,
  runTurns,
  type TurnResult,
} from "./benchSetup.ts";
import { formatMessages, makeFigures } from "./messagesReport.ts";
import type { common, Given } from "./options.ts";
import { type Memory, memory } from "./processFigures.ts";
import { question } from "./question.ts";
import { bullMqNames, startBullMq } from "./rivalServer.ts";
import { readRivals, rivalsOption, startRivals } from "./rivals.ts";
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
  "latency-rounds": { default: 5, help: "turns of each server at each rate (0: leave fixed rates out)" },
  "latency-warm-up": { default: 4, help: "warm-up turns of each server at each rate" },
  "latency-seconds": { default: 5, help: "seconds of a turn at a fixed rate (10/s: at least 10)" },
  rivals: rivalsOption(bullMqNames, "; they need redis-server"),
} as const;

type Options = Given<typeof options & typeof common>;

/** The fixed rates, in messages per second. */
const rates = [10, 100, 1_000] as const;
/** The minimum number of messages of a turn at a fixed rate. */
const fewest = 100;

/** The turns of a server at a fixed rate. */
export type RateTurns = { rate: number; turns: TurnResult[] };

/** A server with its memory before the first message, and its turns. */
export type Competitor = { server: Server; idle: Memory; turns: TurnResult[]; paced: RateTurns[] };

/** The benchmark of plain messages, against a server that stores nothing. */
export const messages = question({
  asks:
    "durable messages/s, CPU, memory and latency, against a server that stores nothing " +
    "and other job queues",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const own = [
      await startPassThrough(resources, given.connections),
      await startWaypost(resources, { folder: resources.folder("waypost") }),
    ];
    const { started, leftOut } = await startRivals(resources, readRivals(given.rivals, bullMqNames), (name) =>
      startBullMq(resources, { name, connections: given.connections }),
    );
    const competitors = [...own, ...started].map((server): Competitor => ({
      server,
      idle: memory(server.pid),
      turns: [],
      paced: [],
    }));
    await measureThroughput(setup, competitors, given);
    await measureRates(setup, competitors, given);
    return {
      figures: { ...makeFigures(competitors), leftOut },
      text: formatMessages(competitors, leftOut),
    };
  },
});

async function measureThroughput(
  setup: BenchSetup,
  competitors: Competitor[],
  given: Options,
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

async function measureRates(setup: BenchSetup, competitors: Competitor[], given: Options): Promise<void> {
  if (given["latency-rounds"] === 0) return;
  for (const rate of rates) {
    const workload: Workload = {
      connections: given.connections,
      messages: Math.max(fewest, rate * given["latency-seconds"]),
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
      console.error(round > 0 ? `${rate}/s, round ${round}` : `${rate}/s, warm-up`);
    }
    for (const [index, { paced }] of competitors.entries()) paced.push({ rate, turns: turns[index] ?? [] });
  }
}
