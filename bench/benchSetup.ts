/**
 * The parts around the servers, and one turn of one server: from the first publish until the last delivery is
 * settled.
 */
import { microseconds } from "./clock.ts";
import type { LoadAnswers, LoadReport, LoadRun } from "./load.ts";
import type { BenchProcess } from "./benchProcess.ts";
import type { PassThroughAnswers } from "./passThrough.ts";
import { type PublishTarget, sinkUrl } from "./payload.ts";
import { startCpuClock } from "./processFigures.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";
import type { SinkAnswers, SinkReport } from "./sink.ts";
import { end, type BenchResources } from "./benchResources.ts";

/** The parts around the servers. */
export type BenchSetup = {
  load: BenchProcess<LoadAnswers>;
  sink: BenchProcess<SinkAnswers>;
  sinkPort: number;
  rounds: number;
};

/**
 * How a turn is driven. Without a target, messages are published to the sink. `copies` is the number of
 * deliveries per publish. `patience` is how long after the last publish everything must be settled, in
 * milliseconds.
 */
export type Workload = Pick<LoadRun, "connections" | "messages" | "seconds" | "rate"> & {
  target?: PublishTarget;
  copies?: number;
  patience?: number;
};

/** The figures of one turn. */
export type TurnResult = {
  /** The number of deliveries: as many as publishes, unless there are copies. */
  messages: number;
  perSecond: number;
  /**
   * CPU time of the server in microseconds per message, including its work after the last delivery. It
   * includes `databaseCpu`.
   */
  cpuPerMessage: number;
  /** How the end was measured: by the server's own figure, or by the last arrival at the sink. */
  settledBy: "server" | "sink";
  load: LoadReport;
  sink: SinkReport;
};

/** Starts the load and the sink. */
export async function openBenchSetup(resources: BenchResources): Promise<BenchSetup> {
  const load = resources.part<LoadAnswers>("load", "others");
  const sink = resources.part<SinkAnswers>("sink", "others");
  const { port } = await sink.ask("listen", undefined);
  return { load, sink, sinkPort: port, rounds: 0 };
}

/** Starts the pass-through. */
export async function startPassThrough(resources: BenchResources, connections: number): Promise<Server> {
  const part = resources.part<PassThroughAnswers>("passThrough", "server");
  const { port } = await part.ask("listen", { connections });
  return {
    name: "pass-through",
    pid: part.process.pid ?? Number.NaN,
    port,
    token: "none",
    unsettled: async () => null,
    stop: () => end(part.process, "SIGTERM"),
  };
}

/** Returns the URL that the messages of the bench go to. */
export const destination = (setup: BenchSetup): string => sinkUrl(setup.sinkPort);

/** Returns a publish to the sink with these headers. */
export function publishWith(setup: BenchSetup, headers: readonly string[], names = 1): PublishTarget {
  return { path: `/v2/publish/${destination(setup)}`, headers, names };
}

/** Runs one turn. Throws if a publish is refused or a delivery is missing at the end. */
export async function runTurn(setup: BenchSetup, server: Server, workload: Workload): Promise<TurnResult> {
  const { patience = 60_000, copies = 1 } = workload;
  const round = ++setup.rounds;
  const before = await server.unsettled();
  const readCpu = startCpuClocks(server);
  await setup.sink.ask("begin", { id: round, messages: workload.messages, copies });
  const load = await sendLoad(setup, server, { ...workload, round });
  const messages = load.sent * copies;
  const sink = await setup.sink.ask("finish", { expected: messages, patience }, patience + 10_000);
  if (sink.received < messages)
    throw new Error(`${server.name} delivered ${sink.received} of ${messages} messages.`);
  const settledAt = before === null ? null : await waitUntilSettled(server, before, patience);
  for (const { pid } of [server, ...(server.others ?? [])]) await waitUntilQuiet(pid);
  const endedAt = Math.max(settledAt ?? 0, sink.lastAt, load.lastAnsweredAt);
  return {
    messages,
    perSecond: (messages * 1e6) / (endedAt - load.firstSentAt),
    cpuPerMessage: readCpu() / messages,
    settledBy: settledAt === null ? "sink" : "server",
    load,
    sink,
  };
}

/**
 * Starts to measure the CPU time of all nodes of a server, and of its database if the server knows it. The
 * returned function returns it in microseconds.
 */
function startCpuClocks({ pid, others = [], databaseCpu = () => 0 }: Server): () => number {
  const clocks = [startCpuClock(pid), ...others.map((node) => startCpuClock(node.pid))];
  const before = databaseCpu();
  return () => clocks.reduce((sum, read) => sum + read(), databaseCpu() - before);
}

/** Sends only the requests of a turn, without waiting for their effects. Throws if one is refused. */
export async function sendLoad(
  setup: BenchSetup,
  server: Server,
  workload: Workload & { round: number },
): Promise<LoadReport> {
  const { connections, messages, seconds, rate, round, target = publishWith(setup, []) } = workload;
  const run: LoadRun = {
    connections,
    messages,
    seconds,
    rate,
    round,
    target,
    port: server.port,
    token: server.token,
  };
  if (server.others) run.others = server.others.map(({ port }) => port);
  const load = await setup.load.ask("run", run, loadLimit(workload));
  if (load.refused === 0) return load;
  throw new Error(
    `${server.name} refused ${load.refused} of ${load.sent} requests, the first with ${load.firstRefusal}`,
  );
}

/**
 * Returns after how many milliseconds the load must have ended. The value is generous, because it only ends a
 * bench that hangs.
 */
function loadLimit({ messages, rate, seconds }: Workload): number {
  return 30_000 + Math.max((seconds ?? 0) * 2e3, (messages * 1e3) / Math.min(rate ?? 100, 100));
}

/** Waits until the server has no more to settle than before the turn. Returns when that was. */
async function waitUntilSettled(server: Server, before: number, timeout: number): Promise<number> {
  const deadline = performance.now() + timeout;
  for (;;) {
    const askedAt = microseconds();
    const left = (await server.unsettled()) ?? 0;
    if (left <= before) return askedAt;
    if (performance.now() > deadline)
      throw new Error(`${server.name} still has ${left} deliveries to settle, ${before} before the turn.`);
    await pause(2);
  }
}

/** A participant: a server, or one way to drive it. Its name is used in figures and errors. */
export type Contestant = { server: Server; warmUp: Workload; drive: Workload };

/** Lets participants take turns (A B A B …) after a warm-up of each. Returns the turns of each. */
export async function runTurns(
  setup: BenchSetup,
  contestants: readonly Contestant[],
  rounds: number,
): Promise<TurnResult[][]> {
  for (const { server, warmUp } of contestants) await runTurn(setup, server, warmUp);
  return runWarmTurns(setup, contestants, rounds);
}

/** Like `runTurns`, without a warm-up. */
export async function runWarmTurns(
  setup: BenchSetup,
  contestants: readonly Omit<Contestant, "warmUp">[],
  rounds: number,
): Promise<TurnResult[][]> {
  const turns: TurnResult[][] = contestants.map(() => []);
  for (let round = 1; round <= rounds; round += 1) {
    for (const [index, { server, drive: workload }] of contestants.entries()) {
      const turn = await runTurn(setup, server, workload);
      turns[index]?.push(turn);
      console.error(
        `round ${round}  ${server.name}: ${turn.perSecond.toFixed(0)} messages/s, ` +
          `${turn.cpuPerMessage.toFixed(1)} µs each`,
      );
    }
  }
  return turns;
}

/**
 * Returns a note on how near the bench itself came to its limit, and how many deliveries were repeated. If
 * load or sink took a whole core, the figures describe the bench and not the server. Nothing in these turns
 * should cause a repetition.
 */
export function formatFootnote(turns: readonly TurnResult[]): string {
  const max = (side: "load" | "sink"): string => Math.max(...turns.map((turn) => turn[side].cpu)).toFixed(2);
  const repeated = turns.reduce((sum, { sink }) => sum + sink.repeated, 0);
  return (
    `Shares of a core in the busiest turns: load ${max("load")}, sink ${max("sink")}. ` +
    `Repeated deliveries: ${repeated}.`
  );
}
