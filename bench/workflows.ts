/**
 * What do workflows cost? Runs of a few steps through a minimal endpoint, compared with a server that only
 * forwards their requests.
 */
import { startPassThrough } from "./benchSetup.ts";
import { mebibytes, summarize, ratio, formatSummary, formatTable } from "./figures.ts";
import type { common, Given } from "./options.ts";
import type { BenchProcess } from "./benchProcess.ts";
import { cpuTime, memory } from "./processFigures.ts";
import { question } from "./question.ts";
import { waitUntilQuiet, type Server } from "./server.ts";
import type { BenchResources } from "./benchResources.ts";
import { startWaypost } from "./waypost.ts";
import type { WorkflowAnswers, WorkflowReport, WorkflowRun } from "./workflow.ts";

const options = {
  rounds: { default: 5, help: "throughput turns of each server" },
  runs: { default: 3_000, help: "runs of 3 steps in a throughput turn" },
  "at-once": { default: 64, help: "runs in progress at once in it" },
  "latency-runs": { default: 100, help: "runs at a fixed rate of 10/s" },
  "long-rounds": { default: 3, help: "turns of one run of 200 steps, and of 20 runs of 10" },
  sleeping: { default: 100_000, help: "sleeping runs, to measure their memory (0: skip this)" },
} as const;

type Options = Given<typeof options & typeof common>;

type WorkflowBench = { endpoint: BenchProcess<WorkflowAnswers>; rounds: number };

/** `perSecond` counts steps, including the payload of each run, because each is a call to the endpoint. */
type Turn = {
  steps: number;
  perSecond: number;
  runsPerSecond: number;
  cpuPerStep: number;
  report: WorkflowReport;
};

const defaultLoad = { steps: 3, rate: null, batch: 1, sleep: null } as const;

/** The benchmark of workflow runs. */
export const workflows = question({
  asks:
    "steps/s of workflow runs, their latency, long histories, and memory of sleeping runs; " +
    "goal: half of a pass-through's steps/s",
  options,
  async find(given, resources) {
    const endpoint = resources.part<WorkflowAnswers>("workflow", "others");
    await endpoint.ask("listen", undefined);
    const bench: WorkflowBench = { endpoint, rounds: 0 };
    const passThrough = await startPassThrough(resources, given.connections);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const [plain, kept] = await throughput(bench, [passThrough, waypost], given);
    const paced = await takeTurn(bench, waypost, {
      ...defaultLoad,
      runs: given["latency-runs"],
      atOnce: 1,
      rate: 10,
    });
    const long = await longRuns(bench, waypost, given);
    const asleep = given.sleeping === 0 ? null : await sleepers(bench, resources, given.sleeping);
    const figures = { plain, kept, paced, long, asleep };
    return { figures, text: report(figures) };
  },
});

type Figures = { plain: Turn[]; kept: Turn[]; paced: Turn; long: LongRunResult; asleep: SleepResult | null };

async function throughput(
  bench: WorkflowBench,
  servers: readonly [Server, Server],
  given: Options,
): Promise<[Turn[], Turn[]]> {
  const load = { ...defaultLoad, runs: given.runs, atOnce: given["at-once"] };
  for (const server of servers) await takeTurn(bench, server, load);
  const turns: [Turn[], Turn[]] = [[], []];
  for (let round = 1; round <= given.rounds; round += 1) {
    for (const [index, server] of servers.entries()) {
      const turn = await takeTurn(bench, server, load);
      turns[index]?.push(turn);
      console.error(
        `round ${round}  ${server.name}: ${turn.perSecond.toFixed(0)} steps/s, ` +
          `${turn.cpuPerStep.toFixed(1)} µs each`,
      );
    }
  }
  return turns;
}

/** Runs one turn. Throws if a run does not end. */
async function takeTurn(
  bench: WorkflowBench,
  server: Server,
  load: Omit<WorkflowRun, "port" | "token" | "round">,
): Promise<Turn> {
  const round = ++bench.rounds;
  const cpuBefore = cpuTime(server.pid);
  const run = { ...load, port: server.port, token: server.token, round };
  const done = await bench.endpoint.ask("run", run, 60_000 + load.runs * load.steps * 20);
  if (done.ended < load.runs) throw new Error(`${server.name} ended ${done.ended} of ${load.runs} runs.`);
  await waitUntilQuiet(server.pid);
  const steps = done.steps + done.ended;
  const seconds = (done.lastAt - done.firstAt) / 1e6;
  return {
    steps,
    perSecond: steps / seconds,
    runsPerSecond: load.runs / seconds,
    cpuPerStep: (cpuTime(server.pid) - cpuBefore) / steps,
    report: done,
  };
}

/** Time in milliseconds and CPU time of 200 steps: as one run, and as 20 runs one after another. */
type LongRunResult = { one: Turn[]; many: Turn[] };

async function longRuns(bench: WorkflowBench, server: Server, given: Options): Promise<LongRunResult> {
  const long: LongRunResult = { one: [], many: [] };
  for (let round = 0; round <= given["long-rounds"]; round += 1) {
    const many = await takeTurn(bench, server, { ...defaultLoad, runs: 20, steps: 10, atOnce: 1 });
    const one = await takeTurn(bench, server, { ...defaultLoad, runs: 1, steps: 200, atOnce: 1 });
    // The first turn is a warm-up.
    if (round > 0) {
      long.one.push(one);
      long.many.push(many);
    }
  }
  return long;
}

type SleepResult = {
  runs: number;
  startedPerSecond: number;
  empty: number;
  full: number;
  restarted: number;
  emptyRestarted: number;
  readyAfter: number;
};

/**
 * Measures the memory of a server whose runs all sleep, before and after a restart, and of a server without
 * runs.
 */
async function sleepers(bench: WorkflowBench, resources: BenchResources, runs: number): Promise<SleepResult> {
  const folder = resources.folder("sleepers");
  const server = await startWaypost(resources, { folder, name: "waypost with sleeping runs" });
  await takeTurn(bench, server, { ...defaultLoad, runs: 500, atOnce: 50 });
  const empty = memory(server.pid).resident;
  const turn = await takeTurn(bench, server, {
    ...defaultLoad,
    runs,
    steps: 1,
    atOnce: 500,
    batch: 50,
    sleep: "30d",
  });
  const full = memory(server.pid).resident;
  await server.kill();
  const again = await startWaypost(resources, { folder, name: "waypost with sleeping runs" });
  await takeTurn(bench, again, { ...defaultLoad, runs: 500, atOnce: 50 });
  const restarted = memory(again.pid).resident;
  const other = await startWaypost(resources, { folder: resources.folder("awake"), name: "waypost without" });
  await takeTurn(bench, other, { ...defaultLoad, runs: 500, atOnce: 50 });
  const emptyRestarted = memory(other.pid).resident;
  await again.stop();
  await other.stop();
  return {
    runs,
    startedPerSecond: turn.runsPerSecond,
    empty,
    full,
    restarted,
    emptyRestarted,
    readyAfter: again.readyAfter,
  };
}

function report({ plain, kept, paced, long, asleep }: Figures): string {
  const compared = (name: string, of: (turn: Turn) => number, digits: number): string[] => [
    name,
    ...[plain, kept].map((turns) => formatSummary(summarize(turns.map(of)), digits)),
    formatSummary(ratio(kept.map(of), plain.map(of)), 2),
  ];
  const rows = formatTable([
    ["median (lowest to highest)", "pass-through", "waypost", "ratio"],
    compared("steps/s of runs of 3 steps", (turn) => turn.perSecond, 0),
    compared("runs/s, from trigger to end", (turn) => turn.runsPerSecond, 0),
    compared("CPU µs per step", (turn) => turn.cpuPerStep, 1),
  ]);
  const { p50, p99 } = paced.report.latency;
  const times = (turns: readonly Turn[]): number[] =>
    turns.map(({ report: { firstAt, lastAt } }) => (lastAt - firstAt) / 1e3);
  const cpuTimes = (turns: readonly Turn[]): number[] =>
    turns.map(({ cpuPerStep, steps }) => cpuPerStep * steps);
  const shown = (a: readonly number[], b: readonly number[]): string => formatSummary(ratio(a, b), 2);
  const busiest = Math.max(...[...plain, ...kept].map((turn) => turn.report.cpu));
  return [
    rows,
    "",
    `From trigger to end at 10 runs/s: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms.`,
    `One run of 200 steps ÷ 20 of 10: ` +
      `time ${shown(times(long.one), times(long.many))}, ` +
      `CPU ${shown(cpuTimes(long.one), cpuTimes(long.many))}.`,
    ...(asleep ? [memoryText(asleep)] : []),
    `Share of a core of the endpoint in the busiest turn: ${busiest.toFixed(2)}.`,
  ].join("\n");
}

const memoryText = ({
  runs,
  startedPerSecond,
  empty,
  full,
  restarted,
  emptyRestarted,
  readyAfter,
}: SleepResult): string =>
  [
    `${runs} sleeping runs, started at ${startedPerSecond.toFixed(0)}/s:`,
    `${mebibytes(empty)} → ${mebibytes(full)} MiB; after a restart (ready in ${readyAfter.toFixed(0)} ms)`,
    `${mebibytes(restarted)} MiB, without them ${mebibytes(emptyRestarted)} MiB.`,
  ].join(" ");
