/** What do flow control and queues cost? The same messages with keys, and in queues, in turns with messages that have neither. */
import {
  footnote,
  type Contestant,
  destination,
  type Drive,
  type Field,
  openField,
  publishWith,
  takeRounds,
  takeTurn,
  type Turn,
} from "./field.ts";
import { type Middle, middle, ratio, showMiddle, table } from "./figures.ts";
import type { common, Given } from "./options.ts";
import { type Aim, nameSlot } from "./payload.ts";
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
  aim(field: Field, given: Options): Aim;
  /** Where its setup differs from what the first message makes. */
  prepare?(server: Server, given: Options): Promise<unknown>;
  /** The key that must have a line, or the load is not what it says. */
  keyWithLine?: string;
};

/** No limit that any of these could reach: there are never so many hands for one host. */
const ample = "parallelism=1000";
const oneQueue = "the-one";

const loads: Readonly<Record<string, Load>> = {
  plain: { aim: (field) => publishWith(field, []) },
  "1-key": keyed(1),
  "100-keys": keyed(100),
  "10000-keys": keyed(10_000),
  "hot-10": hot(10),
  "hot-20": hot(20),
  "hot-50": hot(50),
  "1-queue": {
    aim: (field) => enqueueTo(field, oneQueue, 1),
    prepare: (server, given) =>
      ask(server, { method: "POST", path: "/v2/queues", json: { queueName: oneQueue, parallelism: given["queue-parallelism"] } }),
  },
  "1000-queues": { aim: (field) => enqueueTo(field, `one-of-${nameSlot}`, 1_000) },
};

function keyed(names: number): Load {
  return { aim: (field) => publishWith(field, limitsOf(`of-${names}-${nameSlot}`, ample), names) };
}

/** So few may be under way that messages wait in its line: how far it comes is its limit through the time that a delivery and its commit take. */
function hot(parallelism: number): Load {
  const key = `hot-${parallelism}`;
  return { aim: (field) => publishWith(field, limitsOf(key, `parallelism=${parallelism}`)), keyWithLine: key };
}

function limitsOf(key: string, value: string): string[] {
  return [`Svc-Flow-Control-Key: ${key}`, `Svc-Flow-Control-Value: ${value}`];
}

function enqueueTo(field: Field, queue: string, names: number): Aim {
  return { path: `/v2/enqueue/${queue}/${destination(field)}`, headers: [], names };
}

type Entry = { server: Server; load: Load; aim: Aim };

/** `line`: how many waited at most when a hot key was warmed up; null for loads without a line. */
type Measured = { name: string; line: number | null; turns: Turn[]; latencies: Turn[] };

export const flow = question({
  asks: "throughput, CPU and latency with flow control keys and queues, against plain messages; goal: half of their throughput or more",
  options,
  async find(given, stage) {
    const field = await openField(stage);
    const loadsByName = namedLoads(given);
    const waypost = await startWaypost(stage, { folder: stage.folder("waypost") });
    const entries = loadsByName.map(([name, load]): Entry => ({ server: { ...waypost, name }, load, aim: load.aim(field, given) }));
    const closed: Drive = { connections: given.connections, messages: given.messages, seconds: null, rate: null };
    const paced: Drive = { ...closed, messages: given.rate * given["latency-seconds"], rate: given.rate };
    const lines: (number | null)[] = [];
    for (const entry of entries) lines.push(await warmUp(field, entry, { drive: closed, given }));
    const turns = await takeRounds(field, driven(entries, closed), given.rounds);
    const latencies = await takeRounds(field, driven(entries, paced), given["latency-rounds"]);
    const measured = entries.map(({ server: { name } }, index): Measured => {
      return { name, line: lines[index] ?? null, turns: turns[index] ?? [], latencies: latencies[index] ?? [] };
    });
    return { figures: { loads: measured.map((one) => ({ ...summary(one, measured), ...one })) }, text: report(measured, given) };
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

const driven = (entries: readonly Entry[], drive: Drive): Omit<Contestant, "warmUp">[] =>
  entries.map(({ server, aim }) => ({ server, drive: { ...drive, aim } }));

/** Answers how many waited in the line at most. Throws where figures would tell of another load than they say. */
async function warmUp(
  field: Field,
  { server, load, aim }: Entry,
  { drive, given }: { drive: Drive; given: Options },
): Promise<number | null> {
  if (aim.names > drive.messages)
    throw new Error(`${server.name} needs --messages ${aim.names} or more, to give each a message. Leave it out with --loads.`);
  await load.prepare?.(server, given);
  const warm: Drive = { ...drive, aim };
  if (load.keyWithLine === undefined) {
    await takeTurn(field, server, warm);
    return null;
  }
  const watched = new AbortController();
  const turn = takeTurn(field, server, warm).finally(() => watched.abort());
  const [longest] = await Promise.all([longestLine(server, load.keyWithLine, watched.signal), turn]);
  // Where nobody can ask for a key, this says so; otherwise it is still known, for it was used just now.
  await ask(server, { path: `/v2/flowControl/${load.keyWithLine}` });
  if (longest > 0) return longest;
  throw new Error(`Nobody ever waited in the line of ${server.name}. Give more --connections or --messages.`);
}

/** Looks at the line until the signal comes. A key that is not there yet has none. */
async function longestLine(server: Server, key: string, until: AbortSignal): Promise<number> {
  let longest = 0;
  while (!until.aborted) {
    const text = await ask(server, { path: `/v2/flowControl/${key}`, missing: "" });
    longest = Math.max(longest, Number(/"waitListSize":\s*(\d+)/.exec(text)?.[1] ?? 0));
    await pause(20);
  }
  return longest;
}

type Summary = Record<"perSecond" | "perSecondRatio" | "cpuPerMessage" | "cpuRatio" | "publishP99" | "deliveryP99", Middle>;

/** Ratios are to the plain turns of the same rounds; latencies are those of the fixed rate, in milliseconds. */
function summary({ turns, latencies }: Measured, [plain]: readonly Measured[]): Summary {
  const rates = (of: readonly Turn[]): number[] => of.map(({ perSecond }) => perSecond);
  const costs = (of: readonly Turn[]): number[] => of.map(({ cpuPerMessage }) => cpuPerMessage);
  return {
    perSecond: middle(rates(turns)),
    perSecondRatio: ratio(rates(turns), rates(plain?.turns ?? [])),
    cpuPerMessage: middle(costs(turns)),
    cpuRatio: ratio(costs(turns), costs(plain?.turns ?? [])),
    publishP99: middle(latencies.map(({ load }) => load.latency.p99)),
    deliveryP99: middle(latencies.map(({ sink }) => sink.latency.p99)),
  };
}

function report(measured: readonly Measured[], { rate, "latency-rounds": latencyRounds }: Options): string {
  const latencyHeads = latencyRounds === 0 ? [] : [`publish p99 ms at ${rate}/s`, "to delivery"];
  const rows = measured.map((one) => {
    const { perSecond, perSecondRatio, cpuPerMessage, cpuRatio, publishP99, deliveryP99 } = summary(one, measured);
    const latencies = latencyRounds === 0 ? [] : [showMiddle(publishP99, 2), showMiddle(deliveryP99, 2)];
    const throughput = [showMiddle(perSecond, 0), showMiddle(perSecondRatio, 2)];
    return [one.name, ...throughput, showMiddle(cpuPerMessage, 1), showMiddle(cpuRatio, 2), ...latencies];
  });
  const heads = ["median (lowest to highest)", "messages/s", "to plain", "CPU µs per message", "to plain", ...latencyHeads];
  const lines = measured.flatMap(({ name, line }) => (line === null ? [] : [`${name}: up to ${line} waited in its line in the warm-up.`]));
  return [table([heads, ...rows]), ...lines, footnote(measured.flatMap(({ turns }) => turns))].join("\n\n");
}
