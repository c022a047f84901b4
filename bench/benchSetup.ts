/** The parts around the servers, and one turn of one server: from the first publish until the last delivery is settled. */
import { microseconds } from "./clock.ts";
import type { LoadAnswers, LoadReport, LoadRun } from "./load.ts";
import type { BenchProcess } from "./benchProcess.ts";
import type { PassThroughAnswers } from "./pass-through.ts";
import { type PublishTarget, sinkUrl } from "./payload.ts";
import { cpuTime } from "./process-figures.ts";
import { pause, waitUntilQuiet, type Server } from "./server.ts";
import type { SinkAnswers, SinkReport } from "./sink.ts";
import { end, type BenchResources } from "./benchResources.ts";

export type BenchSetup = { load: BenchProcess<LoadAnswers>; sink: BenchProcess<SinkAnswers>; sinkPort: number; rounds: number };

/**
 * How a turn is driven. Without an aim, messages are published to the sink as they are. `copies`: so many deliveries come of
 * each publish. Milliseconds for patience: how long after the last publish everything must be settled.
 */
export type Workload = Pick<LoadRun, "connections" | "messages" | "seconds" | "rate"> & {
  target?: PublishTarget;
  copies?: number;
  patience?: number;
};

export type TurnResult = {
  /** Deliveries; as many as publishes, unless these come in copies. */
  messages: number;
  perSecond: number;
  /** CPU of the server, microseconds per message, with what it did after the last delivery. */
  cpuPerMessage: number;
  /** How the end was told: by the server's own figure, or by the arrival at the sink. */
  settledBy: "server" | "sink";
  load: LoadReport;
  sink: SinkReport;
};

export async function openBenchSetup(resources: BenchResources): Promise<BenchSetup> {
  const load = resources.part<LoadAnswers>("load", "others");
  const sink = resources.part<SinkAnswers>("sink", "others");
  const { port } = await sink.ask("listen", undefined);
  return { load, sink, sinkPort: port, rounds: 0 };
}

export async function startPassThrough(resources: BenchResources, connections: number): Promise<Server> {
  const part = resources.part<PassThroughAnswers>("pass-through", "server");
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

/** Where the messages of the bench go. */
export const destination = (setup: BenchSetup): string => sinkUrl(setup.sinkPort);

/** A publish to the sink with these headers. */
export function publishWith(setup: BenchSetup, headers: readonly string[], names = 1): PublishTarget {
  return { path: `/v2/publish/${destination(setup)}`, headers, names };
}

/** Throws when a publish was refused, or a delivery is missing at the end. */
export async function runTurn(setup: BenchSetup, server: Server, workload: Workload): Promise<TurnResult> {
  const { patience = 60_000, copies = 1 } = workload;
  const round = ++setup.rounds;
  const before = await server.unsettled();
  const cpuBefore = sumCpuTime(server);
  await setup.sink.ask("begin", { id: round, messages: workload.messages, copies });
  const load = await sendLoad(setup, server, { ...workload, round });
  const messages = load.sent * copies;
  const sink = await setup.sink.ask("finish", { expected: messages, patience }, patience + 10_000);
  if (sink.received < messages) throw new Error(`${server.name} delivered ${sink.received} of ${messages} messages.`);
  const settledAt = before === null ? null : await waitUntilSettled(server, before, patience);
  for (const { pid } of [server, ...(server.others ?? [])]) await waitUntilQuiet(pid);
  const endedAt = Math.max(settledAt ?? 0, sink.lastAt, load.lastAnsweredAt);
  return {
    messages,
    perSecond: (messages * 1e6) / (endedAt - load.firstSentAt),
    cpuPerMessage: (sumCpuTime(server) - cpuBefore) / messages,
    settledBy: settledAt === null ? "sink" : "server",
    load,
    sink,
  };
}

/** Of all nodes. */
const sumCpuTime = (server: Server): number => [server, ...(server.others ?? [])].reduce((sum, { pid }) => sum + cpuTime(pid), 0);

/** The requests of a turn by themselves, whatever comes of them. Throws when one was refused. */
export async function sendLoad(setup: BenchSetup, server: Server, workload: Workload & { round: number }): Promise<LoadReport> {
  const { connections, messages, seconds, rate, round, target = publishWith(setup, []) } = workload;
  const run: LoadRun = { connections, messages, seconds, rate, round, target, port: server.port, token: server.token };
  if (server.others) run.others = server.others.map(({ port }) => port);
  const load = await setup.load.ask("run", run, loadLimit(workload));
  if (load.refused === 0) return load;
  throw new Error(`${server.name} refused ${load.refused} of ${load.sent} requests, the first with ${load.firstRefusal}`);
}

/** Milliseconds after which the load must have come to its end: generous, for it is only there to end a bench that hangs. */
function loadLimit({ messages, rate, seconds }: Workload): number {
  return 30_000 + Math.max((seconds ?? 0) * 2e3, (messages * 1e3) / Math.min(rate ?? 100, 100));
}

/** When the server had no more to settle than before the turn. */
async function waitUntilSettled(server: Server, before: number, timeout: number): Promise<number> {
  const deadline = performance.now() + timeout;
  for (;;) {
    const askedAt = microseconds();
    const left = (await server.unsettled()) ?? 0;
    if (left <= before) return askedAt;
    if (performance.now() > deadline) throw new Error(`${server.name} still has ${left} deliveries to settle, ${before} before the turn.`);
    await pause(2);
  }
}

/** One of those that take turns: a server, or one way to drive it. Its name stands for it wherever figures or faults are told. */
export type Contestant = { server: Server; warmUp: Workload; drive: Workload };

/** Contestants take turns, A B A B …, after a warm-up of each; answers the turns of each. */
export async function runTurns(setup: BenchSetup, contestants: readonly Contestant[], rounds: number): Promise<TurnResult[][]> {
  for (const { server, warmUp } of contestants) await runTurn(setup, server, warmUp);
  return runWarmTurns(setup, contestants, rounds);
}

/** The same of those that are warm already. */
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
      console.error(`round ${round}  ${server.name}: ${turn.perSecond.toFixed(0)} messages/s, ${turn.cpuPerMessage.toFixed(1)} µs each`);
    }
  }
  return turns;
}

/**
 * How near the bench itself came to its limit: figures of turns in which load or sink took a whole core tell of the bench, not
 * of the server. And how many deliveries came twice, which nothing in these turns is a reason for.
 */
export function formatFootnote(turns: readonly TurnResult[]): string {
  const max = (side: "load" | "sink"): string => Math.max(...turns.map((turn) => turn[side].cpu)).toFixed(2);
  const repeated = turns.reduce((sum, { sink }) => sum + sink.repeated, 0);
  return `Shares of a core in the busiest turns: load ${max("load")}, sink ${max("sink")}. Deliveries that came twice: ${repeated}.`;
}
