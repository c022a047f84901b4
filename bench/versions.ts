/** What does a change cost? This version and another one take turns with the same work. */
import type { BenchResources } from "./benchResources.ts";
import { startDatabase } from "./database.ts";
import { openBenchSetup, publishWith, runTurn, type Workload } from "./benchSetup.ts";
import { estimateRatio, formatSummary, formatTable, summarize } from "./figures.ts";
import { nameSlot } from "./payload.ts";
import { question } from "./question.ts";
import type { Server } from "./server.ts";
import { type ServerLocation, startWaypost, type Waypost } from "./waypost.ts";
import type { WorkflowAnswers } from "./workflowRuns.ts";
import { callEndpoint, type WorkflowLoad } from "./workflowServer.ts";
import { runWorkflowTurn } from "./workflowTurn.ts";

const options = {
  before: { default: "", help: "folder of the other version of this repository, installed (required)" },
  rounds: { default: 10, help: "turns of each version" },
  "warm-up": { default: 2, help: "warm-up turns of each version" },
  loads: { default: "messages,flow,workflows", help: "loads to measure; also: long-runs" },
  messages: { default: 20_000, help: "messages of a turn" },
  runs: { default: 2_000, help: "runs of 3 steps in a turn" },
  "long-runs": { default: 4, help: "runs of 1,000 steps in a turn of long-runs, all at once" },
  postgres: { default: false, help: "store on PostgreSQL; its CPU is not counted" },
} as const;

/** The figures of one turn. CPU is in microseconds per message or per step. */
type Turn = { cpu: number; perSecond: number };

type Work = (server: Server) => Promise<Turn>;

/** The turns of both versions with one load. */
type Pairs = { load: string; before: Turn[]; now: Turn[] };

/** The benchmark of a change. */
export const versions = question({
  asks: "CPU and throughput of messages, flow control and workflow steps, against another version",
  options,
  async find(given, resources) {
    if (given.before === "") throw new Error("--before: requires the folder of another version.");
    const works = await prepare(resources, given);
    const names = given.loads.split(",");
    const unknown = names.find((name) => !works.has(name));
    if (unknown !== undefined)
      throw new Error(`--loads: unknown load "${unknown}"; use ${[...works.keys()].join(", ")}.`);
    const [before, now] = await startBoth(resources, given);
    const pairs: Pairs[] = [];
    for (const [load, work] of works)
      if (names.includes(load)) pairs.push(await takeTurns({ load, work, servers: [before, now] }, given));
    return { figures: pairs, text: report(pairs) };
  },
});

/** Starts the other version and this one, each with its own store. */
async function startBoth(
  resources: BenchResources,
  given: { before: string; postgres: boolean; pin: boolean },
): Promise<[Waypost, Waypost]> {
  const database = given.postgres ? await startDatabase(resources, { pinned: given.pin }) : null;
  const start = async (location: Omit<ServerLocation, "folder"> & { name: string }): Promise<Waypost> => {
    const folder = resources.folder(location.name);
    if (database === null) return startWaypost(resources, { ...location, folder });
    return startWaypost(resources, { ...location, folder, database: await database.database(location.name) });
  };
  return [await start({ name: "before", sources: given.before }), await start({ name: "now" })];
}

/** Returns the work of a turn, by the name of the load. */
async function prepare(
  resources: BenchResources,
  given: { connections: number; messages: number; runs: number; "long-runs": number },
): Promise<Map<string, Work>> {
  const { connections, messages, runs, "long-runs": longRuns } = given;
  const setup = await openBenchSetup(resources);
  const endpoint = resources.part<WorkflowAnswers>("workflow", "others");
  await endpoint.ask("listen", undefined);
  const plain: Workload = { connections, messages, seconds: null, rate: null };
  const limits = [`Svc-Flow-Control-Key: of-100-${nameSlot}`, "Svc-Flow-Control-Value: parallelism=1000"];
  const keyed: Workload = { ...plain, target: publishWith(setup, limits, 100) };
  const send =
    (workload: Workload): Work =>
    async (server) => {
      const { cpuPerMessage, perSecond } = await runTurn(setup, server, workload);
      return { cpu: cpuPerMessage, perSecond };
    };
  const run =
    (load: Partial<WorkflowLoad>): Work =>
    async (server) => {
      const turn = await runWorkflowTurn(callEndpoint(endpoint, server), load);
      return { cpu: turn.cpuPerStep, perSecond: turn.stepsPerSecond };
    };
  return new Map([
    ["messages", send(plain)],
    ["flow", send(keyed)],
    ["workflows", run({ runs, atOnce: 64 })],
    ["long-runs", run({ runs: longRuns, steps: 1_000, atOnce: longRuns })],
  ]);
}

/** Lets both versions take turns. The version that goes first alternates. */
async function takeTurns(
  { load, work, servers }: { load: string; work: Work; servers: readonly [Server, Server] },
  given: { rounds: number; "warm-up": number },
): Promise<Pairs> {
  const turns: [Turn[], Turn[]] = [[], []];
  for (let round = 1 - given["warm-up"]; round <= given.rounds; round += 1) {
    for (const index of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
      const turn = await work(servers[index]);
      if (round > 0) turns[index].push(turn);
      const label = round > 0 ? `round ${round}` : "warm-up";
      console.error(
        `${label}  ${load}, ${servers[index].name}: ` +
          `${turn.perSecond.toFixed(0)}/s, ${turn.cpu.toFixed(1)} µs each`,
      );
    }
  }
  return { load, before: turns[0], now: turns[1] };
}

function report(pairs: readonly Pairs[]): string {
  const figures = [
    { name: "CPU µs", read: (turn: Turn) => turn.cpu, digits: 1 },
    { name: "per second", read: (turn: Turn) => turn.perSecond, digits: 0 },
  ];
  const rows = pairs.flatMap(({ load, before, now }) =>
    figures.map(({ name, read, digits }) => {
      const [old, current] = [before.map(read), now.map(read)];
      const { mean, low, high } = estimateRatio(current, old);
      return [
        `${load}, ${name}`,
        formatSummary(summarize(old), digits),
        formatSummary(summarize(current), digits),
        `${mean.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})`,
      ];
    }),
  );
  const note =
    "Before and now: median (lowest to highest). Ratio: mean of the pairs, with its 95 % interval.";
  return `${formatTable([["", "before", "now", "now ÷ before"], ...rows])}\n\n${note}`;
}
