/**
 * What do workflows cost? Runs of a few steps through a minimal endpoint, compared with a server that only
 * forwards their requests, and with other workflow engines.
 */
import { startPassThrough } from "./benchSetup.ts";
import type { common, Given } from "./options.ts";
import { question } from "./question.ts";
import { type LeftOut, readRivals, rivalsOption, startRivals } from "./rivals.ts";
import { measureSleepingRuns, type SleepResult } from "./sleepingRuns.ts";
import { startWaypost } from "./waypost.ts";
import type { WorkflowAnswers } from "./workflowRuns.ts";
import {
  callEndpoint,
  type EndpointKind,
  startWorkflowRival,
  type WorkflowLoad,
  workflowRivals,
  type WorkflowServer,
} from "./workflowServer.ts";
import { formatWorkflows } from "./workflowsReport.ts";
import { runWorkflowTurn, type WorkflowTurn } from "./workflowTurn.ts";

const options = {
  rounds: { default: 5, help: "throughput turns of each server" },
  runs: { default: 3_000, help: "runs of 3 steps in a throughput turn" },
  "at-once": { default: 64, help: "runs in progress at once in a throughput turn" },
  "latency-runs": {
    default: 100,
    help: "runs of 3 steps at a fixed rate of 10/s, of each server; at least 1",
  },
  lengths: { default: "1,10,100,1000", help: "lengths of runs on the curve, in steps" },
  "curve-rounds": { default: 3, help: "turns of runs of each length (0: leave them out)" },
  "curve-steps": { default: 1_000, help: "steps of a curve turn, of at least one run" },
  "curve-at-once": { default: 1, help: "runs in progress at once in a curve turn" },
  sleeping: { default: 100_000, help: "sleeping runs, to measure their memory (0: skip this)" },
  rivals: rivalsOption(workflowRivals),
} as const;

type Options = Given<typeof options & typeof common>;

/** The client library takes seconds to load on a busy machine. */
const listenLimit = 60_000;

/** Longer runs are measured in windows of this many steps. */
const windowSteps = 100;

/** Turns of runs of one length. */
export type LengthTurns = { steps: number; turns: WorkflowTurn[] };

/** All turns of a server. `paced` has a fixed rate. */
export type MeasuredServer = {
  name: string;
  endpoint: EndpointKind;
  runsOn: boolean;
  turns: WorkflowTurn[];
  paced: WorkflowTurn;
  curve: LengthTurns[];
};

/**
 * The answer. The first server is the pass-through, then Waypost with each kind of endpoint, without and with
 * run on.
 */
export type WorkflowFigures = {
  servers: MeasuredServer[];
  /** Runs in progress at once on the curve. */
  atOnce: number;
  asleep: SleepResult | null;
  leftOut: LeftOut[];
  notes: string[];
};

/** The benchmark of workflow runs. */
export const workflows = question({
  asks:
    "steps/s of workflow runs, their latency, long runs, and memory of sleeping runs, against other " +
    "workflow engines; goal: half of a pass-through's steps/s",
  options,
  async find(given, resources) {
    const endpoint = resources.part<WorkflowAnswers>("workflow", "others");
    const client = resources.part<WorkflowAnswers>("workflowSdk", "others");
    await Promise.all([endpoint, client].map((one) => one.ask("listen", undefined, listenLimit)));
    const passThrough = await startPassThrough(resources, given.connections);
    const waypost = await startWaypost(resources, { folder: resources.folder("waypost") });
    const { started, leftOut } = await startRivals(
      resources,
      readRivals(given.rivals, workflowRivals),
      (name) => startWorkflowRival(resources, name, { pinned: given.pin }),
    );
    const own = [
      callEndpoint(endpoint, passThrough),
      callEndpoint(endpoint, waypost),
      callEndpoint(endpoint, waypost, { runsOn: true }),
      callEndpoint(client, waypost, { kind: "client" }),
      callEndpoint(client, waypost, { kind: "client", runsOn: true }),
    ];
    const servers = await measure([...own, ...started], given);
    const asleep =
      given.sleeping === 0 ? null : await measureSleepingRuns(resources, endpoint, given.sleeping);
    const notes = started.flatMap(({ note }) => note ?? []);
    const figures: WorkflowFigures = { servers, atOnce: given["curve-at-once"], asleep, leftOut, notes };
    return { figures, text: formatWorkflows(figures) };
  },
});

async function measure(servers: readonly WorkflowServer[], given: Options): Promise<MeasuredServer[]> {
  const load = { runs: given.runs, atOnce: given["at-once"] };
  const turns = await takeTurns(servers, load, { rounds: given.rounds, label: "" });
  const paced: WorkflowTurn[] = [];
  for (const server of servers)
    paced.push(await runWorkflowTurn(server, { runs: given["latency-runs"], rate: 10 }));
  const curves = servers.map((): LengthTurns[] => []);
  for (const steps of given["curve-rounds"] === 0 ? [] : readLengths(given.lengths)) {
    const runs = Math.max(1, Math.floor(given["curve-steps"] / steps));
    const label = `, runs of ${steps}`;
    const one = { runs, steps, atOnce: given["curve-at-once"], ...(steps > windowSteps && { windowSteps }) };
    const found = await takeTurns(servers, one, { rounds: given["curve-rounds"], label });
    for (const [index, one] of found.entries()) curves[index]?.push({ steps, turns: one });
  }
  return servers.flatMap(({ name, endpoint, runsOn = false }, index) => {
    const at = paced[index];
    return at
      ? [{ name, endpoint, runsOn, turns: turns[index] ?? [], paced: at, curve: curves[index] ?? [] }]
      : [];
  });
}

/** Reads `--lengths`. Throws if one is not a whole number of at least 1. */
function readLengths(text: string): number[] {
  return text.split(",").map((part) => {
    const length = Number(part);
    if (Number.isSafeInteger(length) && length > 0) return length;
    throw new Error(`--lengths: "${part}" is not a number of steps.`);
  });
}

/** Lets servers take turns, after a warm-up of each. Returns the turns of each. */
async function takeTurns(
  servers: readonly WorkflowServer[],
  load: Partial<WorkflowLoad>,
  { rounds, label }: { rounds: number; label: string },
): Promise<WorkflowTurn[][]> {
  const turns = servers.map((): WorkflowTurn[] => []);
  for (let round = 0; round <= rounds; round += 1) {
    for (const [index, server] of servers.entries()) {
      const turn = await runWorkflowTurn(server, load);
      if (round > 0) turns[index]?.push(turn);
      console.error(
        `${round === 0 ? "warm-up" : `round ${round}`}${label}  ${server.name}: ` +
          `${turn.stepsPerSecond.toFixed(0)} steps/s, server ${turn.cpuPerStep.toFixed(1)} µs each, ` +
          `endpoint and load ${turn.callersCpuPerStep.toFixed(1)} µs, ` +
          `${(turn.writtenPerStep / 1e3).toFixed(1)} KB written`,
      );
    }
  }
  return turns;
}
