/** How much memory do sleeping runs take? */
import type { BenchProcess } from "./benchProcess.ts";
import type { BenchResources } from "./benchResources.ts";
import { mebibytes } from "./figures.ts";
import { memory } from "./processFigures.ts";
import { startWaypost, type Waypost } from "./waypost.ts";
import type { WorkflowAnswers } from "./workflowRuns.ts";
import { callEndpoint, type WorkflowLoad } from "./workflowServer.ts";
import { runWorkflowTurn, type WorkflowTurn } from "./workflowTurn.ts";

/** Memory of a server with sleeping runs, in bytes, and the rate at which they started. */
export type SleepResult = {
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
export async function measureSleepingRuns(
  resources: BenchResources,
  endpoint: BenchProcess<WorkflowAnswers>,
  runs: number,
): Promise<SleepResult> {
  const take = (to: Waypost, load: Partial<WorkflowLoad>): Promise<WorkflowTurn> =>
    runWorkflowTurn(callEndpoint(endpoint, to), load);
  const folder = resources.folder("sleepers");
  const server = await startWaypost(resources, { folder, name: "waypost with sleeping runs" });
  await take(server, { runs: 500, atOnce: 50 });
  const empty = memory(server.pid).resident;
  const turn = await take(server, { runs, steps: 1, atOnce: 500, batch: 50, sleep: "30d" });
  const full = memory(server.pid).resident;
  await server.kill();
  const again = await startWaypost(resources, { folder, name: "waypost with sleeping runs" });
  await take(again, { runs: 500, atOnce: 50 });
  const restarted = memory(again.pid).resident;
  const other = await startWaypost(resources, { folder: resources.folder("awake"), name: "waypost without" });
  await take(other, { runs: 500, atOnce: 50 });
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

/** Formats the figures of sleeping runs as one line. */
export const formatSleepingRuns = ({
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
