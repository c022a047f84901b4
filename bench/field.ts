/** The parts around the servers, and one turn of one server: from the first publish until the last delivery is settled. */
import { microseconds } from "./clock.ts";
import { type LoadAnswers, type LoadReport, type LoadRun } from "./load.ts";
import type { Part } from "./part.ts";
import type { PassThroughAnswers } from "./pass-through.ts";
import { cpuTime } from "./process-figures.ts";
import { pause, quiet, type Server } from "./server.ts";
import type { SinkAnswers, SinkReport } from "./sink.ts";
import { end, type Stage } from "./stage.ts";

export type Field = { load: Part<LoadAnswers>; sink: Part<SinkAnswers>; sinkPort: number; rounds: number };

/** How a turn is driven. Milliseconds for patience: how long after the last publish everything must be settled. */
export type Drive = Pick<LoadRun, "connections" | "messages" | "seconds" | "rate"> & { patience?: number };

export type Turn = {
  messages: number;
  perSecond: number;
  /** CPU of the server, microseconds per message, with what it did after the last delivery. */
  cpuPerMessage: number;
  /** How the end was told: by the server's own figure, or by the arrival at the sink. */
  settledBy: "server" | "sink";
  load: LoadReport;
  sink: SinkReport;
};

export async function openField(stage: Stage): Promise<Field> {
  const load = stage.part<LoadAnswers>("load", "others");
  const sink = stage.part<SinkAnswers>("sink", "others");
  const { port } = await sink.ask("listen", undefined);
  return { load, sink, sinkPort: port, rounds: 0 };
}

export async function startPassThrough(stage: Stage, connections: number): Promise<Server> {
  const part = stage.part<PassThroughAnswers>("pass-through", "server");
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
export const destination = (field: Field): string => `http://127.0.0.1:${field.sinkPort}/sink`;

/** Throws when a publish was refused, or a delivery is missing at the end. */
export async function takeTurn(field: Field, server: Server, drive: Drive): Promise<Turn> {
  const { patience = 60_000, ...loop } = drive;
  const round = ++field.rounds;
  const before = await server.unsettled();
  const cpuBefore = cpuTime(server.pid);
  await field.sink.ask("begin", { id: round, capacity: drive.messages });
  const run = { ...loop, port: server.port, path: `/v2/publish/${destination(field)}`, token: server.token, round };
  const load = await field.load.ask("run", run, loadLimit(drive));
  if (load.refused > 0)
    throw new Error(`${server.name} refused ${load.refused} of ${load.sent} publishes, the first with ${load.firstRefusal}`);
  const sink = await field.sink.ask("finish", { expected: load.sent, patience }, patience + 10_000);
  if (sink.received < load.sent) throw new Error(`${server.name} delivered ${sink.received} of ${load.sent} messages.`);
  const settledAt = before === null ? null : await settled(server, before, patience);
  await quiet(server.pid);
  const endedAt = Math.max(settledAt ?? 0, sink.lastAt, load.lastAnsweredAt);
  return {
    messages: load.sent,
    perSecond: (load.sent * 1e6) / (endedAt - load.firstSentAt),
    cpuPerMessage: (cpuTime(server.pid) - cpuBefore) / load.sent,
    settledBy: settledAt === null ? "sink" : "server",
    load,
    sink,
  };
}

/** Milliseconds after which the load must have come to its end: generous, for it is only there to end a bench that hangs. */
function loadLimit({ messages, rate, seconds }: Drive): number {
  return 30_000 + Math.max((seconds ?? 0) * 2e3, (messages * 1e3) / Math.min(rate ?? 100, 100));
}

/** When the server had no more to settle than before the turn. */
async function settled(server: Server, before: number, patience: number): Promise<number> {
  const deadline = performance.now() + patience;
  for (;;) {
    const askedAt = microseconds();
    const left = (await server.unsettled()) ?? 0;
    if (left <= before) return askedAt;
    if (performance.now() > deadline) throw new Error(`${server.name} still has ${left} deliveries to settle, ${before} before the turn.`);
    await pause(2);
  }
}

/** Servers take turns, A B A B …, after a warm-up of each; answers the turns of each server. */
export async function takeTurns(
  field: Field,
  servers: readonly Server[],
  plan: { warmUp: Drive; rounds: number; drive: Drive },
): Promise<Turn[][]> {
  for (const server of servers) await takeTurn(field, server, plan.warmUp);
  const turns: Turn[][] = servers.map(() => []);
  for (let round = 1; round <= plan.rounds; round += 1) {
    for (const [index, server] of servers.entries()) {
      const turn = await takeTurn(field, server, plan.drive);
      turns[index]?.push(turn);
      console.error(`round ${round}  ${server.name}: ${turn.perSecond.toFixed(0)} messages/s, ${turn.cpuPerMessage.toFixed(1)} µs each`);
    }
  }
  return turns;
}
