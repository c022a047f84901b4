/** One turn of a server that runs workflows. */
import { startCpuClock, writtenBytes } from "./processFigures.ts";
import { waitUntilQuiet } from "./server.ts";
import type { WorkflowReport } from "./workflowRuns.ts";
import type { WorkflowLoad, WorkflowServer } from "./workflowServer.ts";

/** The figures of a turn. A step is a step whose result is stored. Starts and ends of runs are not steps. */
export type WorkflowTurn = {
  steps: number;
  stepsPerSecond: number;
  runsPerSecond: number;
  /** CPU time of the server and its database in microseconds per step, including starts and ends of runs. */
  cpuPerStep: number;
  /** CPU time of the processes that execute the steps and start the runs, in microseconds per step. */
  callersCpuPerStep: number;
  /** Bytes that the server has written to the disk per step. NaN: its database is another process. */
  writtenPerStep: number;
  /** Milliseconds per step, from the first start of a run to the last end. */
  timePerStep: number;
  report: WorkflowReport;
};

const defaultLoad: WorkflowLoad = { runs: 1, steps: 3, atOnce: 1, rate: null, batch: 1, sleep: null };

/** Runs one turn, by default of one run of three steps. Throws if a run does not end. */
export async function runWorkflowTurn(
  server: WorkflowServer,
  load: Partial<WorkflowLoad>,
): Promise<WorkflowTurn> {
  const whole = { ...defaultLoad, ...load };
  const readCpu = startCpuClock(server.pid);
  const callers = server.callers.map(startCpuClock);
  const databaseCpu = server.databaseCpu ?? (() => 0);
  const databaseBefore = databaseCpu();
  const writtenBefore = writtenBytes(server.pid);
  const done = await server.run(whole);
  if (done.ended < whole.runs) throw new Error(`${server.name} ended ${done.ended} of ${whole.runs} runs.`);
  const callersCpu = callers.reduce((sum, read) => sum + read(), 0);
  await waitUntilQuiet(server.pid);
  const time = done.lastAt - done.firstAt;
  return {
    steps: done.steps,
    stepsPerSecond: (done.steps * 1e6) / time,
    runsPerSecond: (whole.runs * 1e6) / time,
    cpuPerStep: (readCpu() + databaseCpu() - databaseBefore) / done.steps,
    callersCpuPerStep: callersCpu / done.steps,
    writtenPerStep: server.databaseCpu ? Number.NaN : (writtenBytes(server.pid) - writtenBefore) / done.steps,
    timePerStep: time / 1e3 / done.steps,
    report: done,
  };
}
