/** What do flow control and queues cost? The same messages with keys, and in queues, in turns with messages that have neither. */
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
  loads: { default: "1-key,100-keys,10000-keys,hot-10,hot-20,hot-50,1-queue,1000-queues", help: "what is compared with plain messages" },
  rounds: { default: 5, help: "throughput turns of each load" },
  messages: { default: 10_000, help: "messages of a throughput turn, and of the warm-up; with 10000-keys no fewer than the default" },
  "queue-parallelism": { default: 50, help: "limit of the one queue; the many have 1 each" },
  "latency-rounds": { default: 2, help: "turns of each load at a fixed rate (0: leave latency out)" },
  "latency-seconds": { default: 3, help: "seconds of such a turn" },
  rate: { default: 1_000, help: "messages a second in such a turn" },
} as const;

type Options = Given<typeof options & typeof common>;

/** One way to send the messages. */
type Load = {
  target(setup: BenchSetup, given: Options): PublishTarget;
  /** Where its setup differs from what the first message makes. */
  prepare?(server: Server, given: Options): Promise<unknown>;
  /** The key that must have a line, or the load is not what it says. */
  keyWithLine?: string;
};

/** No limit that any of these could reach: there are never so many hands for one host. */
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
      ask(server, { method: "POST", path: "/v2/queues", json: { queueName: oneQueue, parallelism: given["queue-parallelism"] } }),
  },
  "1000-queues": { target: (setup) => makeEnqueueTarget(setup, `one-of-${nameSlot}`, 1_000) },
};

function makeKeyedLoad(names: number): Load {
  return { target: (setup) => publishWith(setup, makeLimitHeaders(`of-${names}-${nameSlot}`, ampleLimits), names) };
}

/** So few may be under way that messages wait in its line: how far it comes is its limit through the time that a delivery and its commit take. */
function makeHotLoad(parallelism: number): Load {
  const key = `hot-${parallelism}`;
  return { target: (setup) => publishWith(setup, makeLimitHeaders(key, `parallelism=${parallelism}`)), keyWithLine: key };
}

function makeLimitHeaders(key: string, value: string): string[] {
  return [`Svc-Flow-Control-Key: ${key}`, `Svc-Flow-Control-Value: ${value}`];
}

function makeEnqueueTarget(setup: BenchSetup, queue: string, names: number): PublishTarget {
  return { path: `/v2/enqueue/${queue}/${destination(setup)}`, headers: [], names };
}

type Entry = { server: Server; load: Load; target: PublishTarget };

/** `line`: how many waited at most when a hot key was warmed up; null for loads without a line. */
type Measured = { name: string; maxWaitlist: number | null; turns: TurnResult[]; latencies: TurnResult[] };

export const flow = question({
  asks: "throughput, CPU and latency with flow control keys and queues, against plain messages; goal: half of their throughput or more",
  options,
  async find(given, resources) {
    const setup = await openBenchSetup(resources);
    const loadsByName = namedLoads(given);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const entries = loadsByName.map(([name, load]): Entry => ({ server: { ...waypost, name }, load, target: load.target(setup, given) }));
    const closed: Workload = { connections: given.connections, messages: given.messages, seconds: null, rate: null };
    const paced: Workload = { ...closed, messages: given.rate * given["latency-seconds"], rate: given.rate };
    const lines: (number | null)[] = [];
    for (const entry of entries) lines.push(await warmUp(setup, entry, { workload: closed, given }));
    const turns = await runWarmTurns(setup, toContestants(entries, closed), given.rounds);
    const latencies = await runWarmTurns(setup, toContestants(entries, paced), given["latency-rounds"]);
    const measured = entries.map(({ server: { name } }, index): Measured => {
      return { name, maxWaitlist: lines[index] ?? null, turns: turns[index] ?? [], latencies: latencies[index] ?? [] };
    });
    return { figures: { loads: measured.map((one) => ({ ...summarizeLoad(one, measured), ...one })) }, text: report(measured, given) };
  },
});

/** Plain messages come first: all others are measured by them. */
function namedLoads(given: Options): [string, Load][] {
  const names = new Set(["plain", ...given.loads.split(",").filter((name) => name !== "")]);
  return [...names].map((name) => {
    const load = loads[name];
    if (load === undefined) throw new Error(`--loads knows no "${name}"; there are ${Object.keys(loads).join(", ")}.`);
    return [name, load];
  });
}

const toContestants = (entries: readonly Entry[], drive: Workload): Omit<Contestant, "warmUp">[] =>
  entries.map(({ server, target }) => ({ server, drive: { ...drive, aim: target } }));

/** Answers how many waited in the line at most. Throws where figures would tell of another load than they say. */
async function warmUp(
  setup: BenchSetup,
  { server, load, target }: Entry,
  { workload, given }: { workload: Workload; given: Options },
): Promise<number | null> {
  if (target.names > workload.messages)
    throw new Error(`${server.name} needs --messages ${target.names} or more, to give each a message. Leave it out with --loads.`);
  await load.prepare?.(server, given);
  const warm: Workload = { ...workload, target };
  if (load.keyWithLine === undefined) {
    await runTurn(setup, server, warm);
    return null;
  }
  const watched = new AbortController();
  const turn = runTurn(setup, server, warm).finally(() => watched.abort());
  const [longest] = await Promise.all([findMaxWaitlist(server, load.keyWithLine, watched.signal), turn]);
  // Where nobody can ask for a key, this says so; otherwise it is still known, for it was used just now.
  await ask(server, { path: `/v2/flowControl/${load.keyWithLine}` });
  if (longest > 0) return longest;
  throw new Error(`Nobody ever waited in the line of ${server.name}. Give more --connections or --messages.`);
}

/** Looks at the line until the signal comes. A key that is not there yet has none. */
async function findMaxWaitlist(server: Server, key: string, until: AbortSignal): Promise<number> {
  let longest = 0;
  while (!until.aborted) {
    const text = await ask(server, { path: `/v2/flowControl/${key}`, missing: "" });
    longest = Math.max(longest, Number(/"waitListSize":\s*(\d+)/.exec(text)?.[1] ?? 0));
    await pause(20);
  }
  return longest;
}

type LoadSummary = Record<"perSecond" | "perSecondRatio" | "cpuPerMessage" | "cpuRatio" | "publishP99" | "deliveryP99", Summary>;

/** Ratios are to the plain turns of the same rounds; latencies are those of the fixed rate, in milliseconds. */
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
    const { perSecond, perSecondRatio, cpuPerMessage, cpuRatio, publishP99, deliveryP99 } = summarizeLoad(one, measured);
    const latencies = latencyRounds === 0 ? [] : [formatSummary(publishP99, 2), formatSummary(deliveryP99, 2)];
    const throughput = [formatSummary(perSecond, 0), formatSummary(perSecondRatio, 2)];
    return [one.name, ...throughput, formatSummary(cpuPerMessage, 1), formatSummary(cpuRatio, 2), ...latencies];
  });
  const heads = ["median (lowest to highest)", "messages/s", "to plain", "CPU µs per message", "to plain", ...latencyHeads];
  const lines = measured.flatMap(({ name, maxWaitlist }) =>
    maxWaitlist === null ? [] : [`${name}: up to ${maxWaitlist} waited in its line in the warm-up.`],
  );
  return [formatTable([heads, ...rows]), ...lines, formatFootnote(measured.flatMap(({ turns }) => turns))].join("\n\n");
}
