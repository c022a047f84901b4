/** The table of the question `workflows`. */
import { formatSummary, formatTable, ratio, summarize } from "./figures.ts";
import { formatLeftOut } from "./rivals.ts";
import { formatSleepingRuns } from "./sleepingRuns.ts";
import type { MeasuredServer, WorkflowFigures } from "./workflows.ts";
import type { WorkflowTurn } from "./workflowTurn.ts";

/** Formats the answer as text. */
export function formatWorkflows({ servers, asleep, leftOut, notes }: WorkflowFigures): string {
  return [
    formatTable([
      ["median (lowest to highest)", ...servers.map(({ name }) => name)],
      ...throughputRows(servers),
      ...latencyRows(servers),
      ...shareRows(servers),
    ]),
    "",
    ...formatCurve(servers),
    ...(asleep ? [formatSleepingRuns(asleep)] : []),
    ...notes,
    ...formatLeftOut(leftOut),
  ].join("\n");
}

type Figure = (turn: WorkflowTurn) => number;

const listFigures = ({ turns }: { turns: readonly WorkflowTurn[] }, of: Figure): number[] => turns.map(of);

function throughputRows(servers: readonly MeasuredServer[]): string[][] {
  const [passThrough, waypost, ...rivals] = servers;
  const row = (name: string, of: Figure, digits: number): string[] => [
    name,
    ...servers.map((server) => formatSummary(summarize(listFigures(server, of)), digits)),
  ];
  const divide = (a: MeasuredServer | undefined, b: MeasuredServer | undefined, of: Figure): string =>
    a && b ? formatSummary(ratio(listFigures(a, of), listFigures(b, of)), 2) : "";
  const ratios = (what: string, of: Figure): string[][] => [
    [`${what} of waypost ÷ this`, divide(waypost, passThrough, of), ""].concat(
      rivals.map((rival) => divide(waypost, rival, of)),
    ),
  ];
  const perSecond: Figure = (turn) => turn.stepsPerSecond;
  const cpu: Figure = (turn) => turn.cpuPerStep;
  return [
    row("steps/s of runs of 3 steps", perSecond, 0),
    ...ratios("steps/s", perSecond),
    row("runs/s, from trigger to end", (turn) => turn.runsPerSecond, 0),
    row("CPU µs per step", cpu, 1),
    ...ratios("CPU", cpu),
  ];
}

function latencyRows(servers: readonly MeasuredServer[]): string[][] {
  const row = (name: string, which: "latency" | "between"): string[] => [
    name,
    ...servers.map(({ paced }) => {
      const { p50, p99 } = paced.report[which];
      return `${p50.toFixed(1)} / ${p99.toFixed(1)}`;
    }),
  ];
  return [
    row("from trigger to end at 10 runs/s, p50 / p99 ms", "latency"),
    row("between two steps of a run at 10 runs/s", "between"),
  ];
}

/** The load of the first two servers is in the process of their endpoint. */
function shareRows(servers: readonly MeasuredServer[]): string[][] {
  const busiest = (of: (turn: WorkflowTurn) => number): string[] =>
    servers.map((server) => {
      const share = Math.max(...listFigures(server, of));
      return share >= 0 ? share.toFixed(2) : "";
    });
  return [
    ["load's share of a core, busiest turn", ...busiest((turn) => turn.report.cpu)],
    ["steps' share of a core, if in another process", ...busiest((turn) => turn.report.endpointCpu ?? -1)],
  ];
}

/** Formats CPU time and time per step by the length of the run. */
function formatCurve(servers: readonly MeasuredServer[]): string[] {
  const [first] = servers;
  if (!first || first.curve.length === 0) return [];
  const cells = (at: number, of: Figure, digits: number): string[] =>
    servers.map(({ curve }) => formatSummary(summarize(listFigures(curve[at] ?? { turns: [] }, of)), digits));
  const rows = (what: string, of: Figure, digits: number): string[][] =>
    first.curve.map(({ steps }, at) => [`${what} per step, runs of ${steps}`].concat(cells(at, of, digits)));
  return [
    formatTable([
      ["one run after another", ...servers.map(({ name }) => name)],
      ...rows("CPU µs", (turn) => turn.cpuPerStep, 0),
      ...rows("ms", (turn) => turn.timePerStep, 2),
    ]),
    "",
  ];
}
