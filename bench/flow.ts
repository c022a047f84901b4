/**
 * What do flow control and queues cost? Messages with keys, and in queues, take turns with plain messages.
 */
import {
  formatFootnote,
  type Contestant,
  destination,
  type Workload,
  type BenchSetup,
  openBenchSetup,
  publishWith,
  runWarmTurns,
  runTurn,
  type TurnResult,
} from "./benchSetup.ts";
import { type Summary, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { type PublishTarget, nameSlot } from "./payload.ts";
import { question } from "./question.ts";
import { ask, pause, type Server } from "./server.ts";
import { startWaypost } from "./waypost.ts";

const options = {
  loads: {
    default: "1-key,100-keys,10000-keys,hot-10,hot-20,hot-50,1-queue,1000-queues",
    help: "loads to compare with plain messages",
  },
  rounds: { default: 5, help: "throughput turns of each load" },
  messages: {
    default: 10_000,
    help: "messages of a throughput turn, and of the warm-up; with 10000-keys at least the default",
  },
  "queue-parallelism": { default: 50, help: "parallelism of the single queue; the 1,000 queues have 1 each" },
  "latency-rounds": { default: 2, help: "turns of each load at a fixed rate (0: leave latency out)" },
  "latency-seconds": { default: 3, help: "seconds of a latency turn" },
  rate: { default: 1_000, help: "messages per second of a latency turn" },
} as const;

type Options = Given<typeof options & typeof common>;

/** One way to send the messages. */
type Load = {
  target(setup: BenchSetup, given: Options): PublishTarget;
  /** Prepares what the first message would not create as needed. */
  prepare?(server: Server, given: Options): Promise<unknown>;
  /** The key that must have a waitlist, because messages of this load must wait for it. */
  keyWithLine?: string;
};

/** A limit that no load reaches: the capacity for one host is lower. */
const ampleLimits = "parallelism=1000";
const oneQueue = "the-one";

const loads: Readonly<Record<string, Load>> = {
  plain: { target: (setup) => publishWith(setup, []) },
  "1-key": makeKeyedLoad(1),
  "100-keys": makeKeyedLoad(100),
  "10000-keys": makeKeyedLoad(10_000),
  "hot-10": makeHotLoad(10),
  "hot-20": makeHotLoad(20),
  "hot-50": makeHotLoad(50),
  "1-queue": {
    target: (setup) => makeEnqueueTarget(setup, oneQueue, 1),
    prepare: (server, given) =>
      ask(server, {
        method: "POST",
        path: "/v2/queues",
        json: { queueName: oneQueue, parallelism: given["queue-parallelism"] },
      }),
  },
  "1000-queues": { target: (setup) => makeEnqueueTarget(setup, `one-of-${nameSlot}`, 1_000) },
};

function makeKeyedLoad(names: number): Load {
  return {
    target: (setup) => publishWith(setup, makeLimitHeaders(`of-${names}-${nameSlot}`, ampleLimits), names),
  };
}

/**
 * Returns a load whose parallelism is so low that messages wait for it. Its throughput is the limit divided
 * by the time of a delivery and its commit.
 */
function makeHotLoad(parallelism: number): Load {
  const key = `hot-${parallelism}`;
  return {
    target: (setup) => publishWith(setup, makeLimitHeaders(key, `parallelism=${parallelism}`)),
    keyWithLine: key,
  };
}

function makeLimitHeaders(key: string, value: string): string[] {
  return [`Svc-Flow-Control-Key: ${key}`, `Svc-Flow-Control-Value: ${value}`];
}

function makeEnqueueTarget(setup: BenchSetup, queue: string, names: number): PublishTarget {
  return { path: `/v2/enqueue/${queue}/${destination(setup)}`, headers: [], names };
}

type Entry = { server: Server; load: Load; target: PublishTarget };

/** `maxWaitlist` is the longest waitlist of a hot key in its warm-up, or null for loads without one. */
type Measured = { name: string; maxWaitlist: number | null; turns: TurnResult[]; latencies: TurnResult[] };

/** The benchmark of flow control and queues. */
export const flow = question({
  asks:
    "throughput, CPU and latency with flow-control keys and queues, against plain messages; " +
    "goal: at least half of their throughput",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const loadsByName = namedLoads(given);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const entries = loadsByName.map(([name, load]): Entry => ({
      server: { ...waypost, name },
      load,
      target: load.target(setup, given),
    }));
    const closed: Workload = {
      connections: given.connections,
      messages: given.messages,
      seconds: null,
      rate: null,
    };
    const paced: Workload = { ...closed, messages: given.rate * given["latency-seconds"], rate: given.rate };
    const lines: (number | null)[] = [];
    for (const entry of entries) lines.push(await warmUp(setup, entry, { workload: closed, given }));
    const turns = await runWarmTurns(setup, toContestants(entries, closed), given.rounds);
    const latencies = await runWarmTurns(setup, toContestants(entries, paced), given["latency-rounds"]);
    const measured = entries.map(({ server: { name } }, index): Measured => {
      return {
        name,
        maxWaitlist: lines[index] ?? null,
        turns: turns[index] ?? [],
        latencies: latencies[index] ?? [],
      };
    });
    return {
      figures: { loads: measured.map((one) => ({ ...summarizeLoad(one, measured), ...one })) },
      text: report(measured, given),
    };
  },
});

/** Returns the chosen loads. Plain messages come first, because the others are compared with them. */
function namedLoads(given: Options): [string, Load][] {
  const names = new Set(["plain", ...given.loads.split(",").filter((name) => name !== "")]);
  return [...names].map((name) => {
    const load = loads[name];
    if (load === undefined)
      throw new Error(`--loads: unknown load "${name}"; use ${Object.keys(loads).join(", ")}.`);
    return [name, load];
  });
}

const toContestants = (entries: readonly Entry[], drive: Workload): Omit<Contestant, "warmUp">[] =>
  entries.map(({ server, target }) => ({ server, drive: { ...drive, target } }));

/** Warms a load up. Returns its longest waitlist. Throws if the load is not what its name says. */
async function warmUp(
  setup: BenchSetup,
  { server, load, target }: Entry,
  { workload, given }: { workload: Workload; given: Options },
): Promise<number | null> {
  if (target.names > workload.messages)
    throw new Error(
      `${server.name} requires --messages of at least ${target.names}, one per name. Remove it from --loads.`,
    );
  await load.prepare?.(server, given);
  const warm: Workload = { ...workload, target };
  if (load.keyWithLine === undefined) {
    await runTurn(setup, server, warm);
    return null;
  }
  const watched = new AbortController();
  const turn = runTurn(setup, server, warm).finally(() => watched.abort());
  const [longest] = await Promise.all([findMaxWaitlist(server, load.keyWithLine, watched.signal), turn]);
  // Throws if the server has no such endpoint. The key was just used, so it still exists.
  await ask(server, { path: `/v2/flowControl/${load.keyWithLine}` });
  if (longest > 0) return longest;
  throw new Error(`No message waited for ${server.name}. Use more --connections or --messages.`);
}

/** Watches the waitlist of a key until the signal. A key that does not exist yet has none. */
async function findMaxWaitlist(server: Server, key: string, until: AbortSignal): Promise<number> {
  let longest = 0;
  while (!until.aborted) {
    const text = await ask(server, { path: `/v2/flowControl/${key}`, missing: "" });
    longest = Math.max(longest, Number(/"waitListSize":\s*(\d+)/.exec(text)?.[1] ?? 0));
    await pause(20);
  }
  return longest;
}

type LoadSummary = Record<
  "perSecond" | "perSecondRatio" | "cpuPerMessage" | "cpuRatio" | "publishP99" | "deliveryP99",
  Summary
>;

/**
 * Summarizes a load. Ratios are to the plain turns of the same rounds. Latencies are from turns at a fixed
 * rate, in milliseconds.
 */
function summarizeLoad({ turns, latencies }: Measured, [plain]: readonly Measured[]): LoadSummary {
  const rates = (of: readonly TurnResult[]): number[] => of.map(({ perSecond }) => perSecond);
  const costs = (of: readonly TurnResult[]): number[] => of.map(({ cpuPerMessage }) => cpuPerMessage);
  return {
    perSecond: summarize(rates(turns)),
    perSecondRatio: ratio(rates(turns), rates(plain?.turns ?? [])),
    cpuPerMessage: summarize(costs(turns)),
    cpuRatio: ratio(costs(turns), costs(plain?.turns ?? [])),
    publishP99: summarize(latencies.map(({ load }) => load.latency.p99)),
    deliveryP99: summarize(latencies.map(({ sink }) => sink.latency.p99)),
  };
}

function report(measured: readonly Measured[], { rate, "latency-rounds": latencyRounds }: Options): string {
  const latencyHeads = latencyRounds === 0 ? [] : [`publish p99 ms at ${rate}/s`, "to delivery"];
  const rows = measured.map((one) => {
    const { perSecond, perSecondRatio, cpuPerMessage, cpuRatio, publishP99, deliveryP99 } = summarizeLoad(
      one,
      measured,
    );
    const latencies =
      latencyRounds === 0 ? [] : [formatSummary(publishP99, 2), formatSummary(deliveryP99, 2)];
    const throughput = [formatSummary(perSecond, 0), formatSummary(perSecondRatio, 2)];
    return [
      one.name,
      ...throughput,
      formatSummary(cpuPerMessage, 1),
      formatSummary(cpuRatio, 2),
      ...latencies,
    ];
  });
  const heads = [
    "median (lowest to highest)",
    "messages/s",
    "÷ plain",
    "CPU µs per message",
    "÷ plain",
    ...latencyHeads,
  ];
  const lines = measured.flatMap(({ name, maxWaitlist }) =>
    maxWaitlist === null ? [] : [`${name}: up to ${maxWaitlist} messages waited during the warm-up.`],
  );
  return [
    formatTable([heads, ...rows]),
    ...lines,
    formatFootnote(measured.flatMap(({ turns }) => turns)),
  ].join("\n\n");
}
