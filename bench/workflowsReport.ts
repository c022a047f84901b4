/** The table of the question `workflows`. */
import { formatSummary, formatTable, ratio, summarize } from "./figures.ts";
import { formatLeftOut } from "./rivals.ts";
import { formatSleepingRuns } from "./sleepingRuns.ts";
import type { MeasuredServer, WorkflowFigures } from "./workflows.ts";
import type { WorkflowTurn } from "./workflowTurn.ts";

/** Formats the answer as text. */
export function formatWorkflows({ servers, atOnce, asleep, leftOut, notes }: WorkflowFigures): string {
  return [
    formatTable([
      ["median (lowest to highest)", ...servers.map(({ name }) => name)],
      ...throughputRows(servers),
      ...latencyRows(servers),
      ...shareRows(servers),
    ]),
    "",
    ...formatCurve(servers, atOnce),
    ...(asleep ? [formatSleepingRuns(asleep)] : []),
    ...notes,
    ...formatLeftOut(leftOut),
  ].join("\n");
}

type Figure = (turn: WorkflowTurn) => number;

const listFigures = ({ turns }: { turns: readonly WorkflowTurn[] }, of: Figure): number[] => turns.map(of);

function throughputRows(servers: readonly MeasuredServer[]): string[][] {
  const row = (name: string, of: Figure, digits: number): string[] => [
    name,
    ...servers.map((server) => formatSummary(summarize(listFigures(server, of)), digits)),
  ];
  const ratios = (what: string, of: Figure): string[][] =>
    [false, true].map((runsOn) => {
      const cells = servers.map((server) => {
        const own = findOwn(servers, server, runsOn);
        return own === undefined || own === server
          ? ""
          : formatSummary(ratio(listFigures(own, of), listFigures(server, of)), 2);
      });
      return [`${what} of waypost${runsOn ? " that runs on" : ""}, same endpoint, ÷ this`].concat(cells);
    });
  const perSecond: Figure = (turn) => turn.stepsPerSecond;
  const server: Figure = (turn) => turn.cpuPerStep;
  const all: Figure = (turn) => turn.cpuPerStep + turn.callersCpuPerStep;
  return [
    ["endpoint", ...servers.map(({ endpoint }) => endpoint)],
    row("steps/s of runs of 3 steps", perSecond, 0),
    ...ratios("steps/s", perSecond),
    row("runs/s, from trigger to end", (turn) => turn.runsPerSecond, 0),
    row("CPU µs per step, server", server, 1),
    ...ratios("server CPU", server),
    row("CPU µs per step, endpoint and load", (turn) => turn.callersCpuPerStep, 1),
    row("CPU µs per step, all", all, 1),
    ...ratios("all CPU", all),
    row("KB written per step", (turn) => turn.writtenPerStep / 1e3, 1),
  ];
}

/** Returns Waypost with the same kind of endpoint as a server. */
function findOwn(
  servers: readonly MeasuredServer[],
  { endpoint }: MeasuredServer,
  runsOn: boolean,
): MeasuredServer | undefined {
  return servers.slice(1).find((one) => one.endpoint === endpoint && one.runsOn === runsOn);
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

/** The load of the pass-through and of Waypost is in the process of their endpoint. */
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

/** Formats CPU time, steps/s and bytes per step by the length of the run. */
function formatCurve(servers: readonly MeasuredServer[], atOnce: number): string[] {
  const [first] = servers;
  if (!first || first.curve.length === 0) return [];
  const cells = (at: number, of: Figure, digits: number): string[] =>
    servers.map(({ curve }) => formatSummary(summarize(listFigures(curve[at] ?? { turns: [] }, of)), digits));
  const rows = (what: string, of: Figure, digits: number): string[][] =>
    first.curve.map(({ steps }, at) => [`${what} per step, runs of ${steps}`].concat(cells(at, of, digits)));
  return [
    formatTable([
      [atOnce === 1 ? "one run after another" : `${atOnce} runs at once`, ...servers.map(({ name }) => name)],
      ...rows("CPU µs", (turn) => turn.cpuPerStep, 0),
      ...rows("ms", (turn) => turn.timePerStep, 2),
      ...rows("KB written", (turn) => turn.writtenPerStep / 1e3, 1),
      ...windowRows(servers),
    ]),
    "",
  ];
}

/** Formats the CPU time of the server in the course of a long run. Only some servers have these figures. */
function windowRows(servers: readonly MeasuredServer[]): string[][] {
  const longest = servers.map(({ curve }) => curve.at(-1) ?? { steps: 0, turns: [] });
  const count = Math.max(...longest.flatMap(({ turns }) => turns.map(({ report }) => report.windows.length)));
  return Array.from({ length: Math.max(count, 0) }, (_, at) => [
    `CPU µs per step, part ${at + 1} of ${count} of a run of ${longest[0]?.steps ?? 0}`,
    ...longest.map(({ turns }) => {
      const found = turns.flatMap(({ report }) => report.windows[at] ?? []);
      return found.length === 0 ? "" : formatSummary(summarize(found), 0);
    }),
  ]);
}
