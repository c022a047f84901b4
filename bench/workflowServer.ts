/** Servers that run workflows: Waypost, the pass-through, Restate and DBOS. Each executes the same runs. */
import { existsSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BenchProcess } from "./benchProcess.ts";
import type { BenchResources } from "./benchResources.ts";
import { startDatabase } from "./database.ts";
import type { DbosAnswers } from "./dbosService.ts";
import { canIsolate, inNewNamespace, joinNamespace } from "./networkNamespace.ts";
import type { RestateAnswers } from "./restateService.ts";
import { installRival } from "./rivalPackages.ts";
import type { RunLoadAnswers } from "./runLoad.ts";
import { pause, type Server } from "./server.ts";
import type { stepAnswers } from "./stepTurn.ts";
import { freePort } from "./waypost.ts";
import type { WorkflowAnswers, WorkflowReport, WorkflowRun } from "./workflowRuns.ts";

/** The runs of a turn. `windowSteps`: the number of steps after which the CPU time of the server is read. */
export type WorkflowLoad = Omit<WorkflowRun, "port" | "token" | "round" | "windows"> & {
  windowSteps?: number;
};

/** How the steps are executed: by an endpoint that does the least that it can, or by the published client. */
export type EndpointKind = "minimal" | "client";

/**
 * A server that runs workflows. `callers` are the processes that execute the steps and start the runs. `note`
 * says how it runs, if that is not obvious.
 */
export type WorkflowServer = Pick<Server, "name" | "pid" | "databaseCpu"> & {
  endpoint: EndpointKind;
  /** Calls of the endpoint run on. Absent: not, or not in this way. */
  runsOn?: boolean;
  callers: readonly number[];
  note?: string;
  run(load: WorkflowLoad): Promise<WorkflowReport>;
};

/** The rivals that run workflows. */
export const workflowRivals = ["restate", "restate-sdk", "dbos"] as const;

const startLimit = 10_000;
const listenLimit = 90_000;
const runLimit = ({ runs, steps }: WorkflowLoad): number => 60_000 + runs * steps * 100;

let rounds = 0;

/** Returns a server of the workflow protocol that Waypost has, with its endpoint. */
export const callEndpoint = (
  endpoint: BenchProcess<WorkflowAnswers>,
  server: Server,
  { kind = "minimal", runsOn = false }: { kind?: EndpointKind; runsOn?: boolean } = {},
): WorkflowServer => ({
  name: [server.name, ...(kind === "client" ? ["sdk"] : []), ...(runsOn ? ["run-on"] : [])].join("-"),
  runsOn,
  pid: server.pid,
  endpoint: kind,
  callers: [endpoint.process.pid ?? Number.NaN],
  run: ({ windowSteps, ...load }) => {
    const { pid, port, token } = server;
    const run: WorkflowRun = { ...load, runsOn, port, token, round: ++rounds };
    if (windowSteps !== undefined) run.windows = { pid, steps: windowSteps };
    return endpoint.ask("run", run, runLimit(load));
  },
});

/** Starts a rival. Throws if it cannot be installed or started. */
export function startWorkflowRival(
  resources: BenchResources,
  name: (typeof workflowRivals)[number],
  { pinned }: { pinned: boolean },
): Promise<WorkflowServer> {
  if (name === "dbos") return startDbos(resources, pinned);
  restate ??= startRestate(resources);
  return startRestateEndpoint(resources, name === "restate" ? "minimal" : "client", restate);
}

/** The server of both endpoints of Restate. It runs until the benchmark ends. */
let restate: Promise<RestateServer> | null = null;

/** A running server of Restate. `within` is the start of a command that runs in its network namespace. */
type RestateServer = {
  pid: number;
  packages: string;
  adminPort: number;
  ingressPort: number;
  within: readonly string[];
};

/**
 * Starts Restate with its default settings. If this user may create a network namespace, it runs in one,
 * because it looks for updates.
 */
async function startRestate(resources: BenchResources): Promise<RestateServer> {
  const packages = await installRival("restate");
  const folder = resources.folder("restate");
  const [ingressPort, adminPort, nodePort] = [await freePort(), await freePort(), await freePort()];
  const settings = join(folder, "restate.toml");
  writeFileSync(settings, restateSettings({ folder, ingressPort, adminPort, nodePort }));
  const platform = `restate-server-${process.platform}-${process.arch}`;
  const program = join(packages, "node_modules/@restatedev", platform, "bin/restate-server");
  if (!existsSync(program)) throw new Error(`there is no ${platform} package`);
  const isIsolated = canIsolate();
  const command = [program, "--no-logo", "--config-file", settings];
  const child = resources.server(isIsolated ? inNewNamespace(command) : command, join(folder, "output.txt"));
  const pid = child.pid ?? Number.NaN;
  await waitForProgram(pid, program);
  return { pid, packages, adminPort, ingressPort, within: isIsolated ? joinNamespace(pid) : [] };
}

/** Starts an endpoint of Restate and a load, in the network namespace of the server. */
async function startRestateEndpoint(
  resources: BenchResources,
  kind: EndpointKind,
  server: Promise<RestateServer>,
): Promise<WorkflowServer> {
  const { pid, packages, adminPort, ingressPort, within } = await server;
  const file = kind === "minimal" ? "restateEndpoint" : "restateService";
  const service = resources.part<RestateAnswers>(file, "others", within);
  const load = resources.part<RunLoadAnswers>("runLoad", "others", within);
  await service.ask("listen", { folder: packages, adminPort }, listenLimit);
  const path = kind === "minimal" ? "/benchMinimal/run" : "/bench/run";
  return {
    name: kind === "minimal" ? "restate" : "restate-sdk",
    pid,
    endpoint: kind,
    callers: [service.process.pid ?? Number.NaN, load.process.pid ?? Number.NaN],
    ...(kind === "minimal" && { note: formatIsolation(within.length > 0) }),
    run: (turn) => runRivalTurn({ service, load, port: ingressPort, path }, turn),
  };
}

const formatIsolation = (isIsolated: boolean): string =>
  isIsolated
    ? "restate runs in a separate network namespace, with its telemetry disabled."
    : "restate runs with its telemetry disabled, because no network namespace could be created.";

/** Waits until a process runs this program. The command that starts it first sets up its environment. */
async function waitForProgram(pid: number, program: string): Promise<void> {
  const deadline = performance.now() + startLimit;
  while (readProgram(pid) !== program) {
    if (performance.now() > deadline || readProgram(pid) === null)
      throw new Error(`${program} did not start.`);
    await pause(10);
  }
}

/** Returns the path of the program that a process runs, or null if the process has ended. */
function readProgram(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/exe`);
  } catch {
    return null;
  }
}

const restateSettings = ({
  folder,
  ingressPort,
  adminPort,
  nodePort,
}: Record<"ingressPort" | "adminPort" | "nodePort", number> & { folder: string }): string =>
  [
    `base-dir = "${join(folder, "data")}"`,
    'node-name = "bench"',
    "disable-telemetry = true",
    'listen-mode = "tcp"',
    `bind-address = "127.0.0.1:${nodePort}"`,
    `advertised-address = "http://127.0.0.1:${nodePort}"`,
    "[admin]",
    `bind-address = "127.0.0.1:${adminPort}"`,
    "[ingress]",
    `bind-address = "127.0.0.1:${ingressPort}"`,
    "",
  ].join("\n");

/** Starts DBOS on its own PostgreSQL server. It stores everything there, so both together are the server. */
async function startDbos(resources: BenchResources, pinned: boolean): Promise<WorkflowServer> {
  const folder = await installRival("dbos");
  const database = await startDatabase(resources, { pinned });
  const service = resources.part<DbosAnswers>("dbosService", "server");
  const load = resources.part<RunLoadAnswers>("runLoad", "others");
  const url = await database.database("dbos");
  const { port } = await service.ask("listen", { folder, database: url }, listenLimit);
  return {
    name: "dbos",
    pid: service.process.pid ?? Number.NaN,
    endpoint: "client",
    callers: [load.process.pid ?? Number.NaN],
    note: "dbos is a library: its figures include its steps, its HTTP server and its PostgreSQL.",
    databaseCpu: () => database.cpu(),
    run: (turn) => runRivalTurn({ service, load, port, path: "/run" }, turn),
  };
}

type RivalParts = {
  service: BenchProcess<typeof stepAnswers>;
  load: BenchProcess<RunLoadAnswers>;
  port: number;
  path: string;
};

/** Runs one turn of a rival. */
async function runRivalTurn(
  { service, load, port, path }: RivalParts,
  turn: WorkflowLoad,
): Promise<WorkflowReport> {
  const { runs, steps, atOnce, rate } = turn;
  await service.ask("begin", { steps: runs * steps });
  const done = await load.ask("run", { port, path, runs, steps, atOnce, rate }, runLimit(turn));
  const { between, cpu: endpointCpu } = await service.ask("finish", undefined);
  return { ...done, between, endpointCpu, windows: [] };
}
