/** Sends fixed loads to a server in another process, and reads what they cost it. */
import type { Costs } from "./costs.ts";
import type { Start } from "./measuredServer.ts";
import { MeasuredServer } from "./serverProcess.ts";
import { formatRequest, okResponse, startItem, stepItem, stepResponse } from "./requests.ts";

/** Measures all loads on a new server. Returns the costs per message or step, by the name of the load. */
export async function measureLoads(start: Start): Promise<Map<string, Costs>> {
  const server = await MeasuredServer.start(start);
  try {
    const costs = new Map<string, Costs>();
    for (const [name, load] of messageLoads)
      for (const count of [1, 64] as const)
        costs.set(
          `${name}, batch of ${count}`,
          await measure(server, count, sendMessages(server, load, count)),
        );
    for (const [step, count] of [
      [2, 1],
      [2, 64],
      [500, 1],
    ] as const)
      costs.set(
        `step ${step}, batch of ${count}`,
        await measure(server, count, takeSteps(server, step, count)),
      );
    return costs;
  } finally {
    await server.stop();
  }
}

/** One round of a load. The costs of `prepare` are not counted. */
type Round = { prepare?(): Promise<void>; run(): Promise<void> };

const warmUpRounds = 4;
const rounds = { 1: 12, 64: 2 } as const;
/** The milliseconds that the server's clock moves between two rounds. */
const roundTime = 10;

async function measure(server: MeasuredServer, count: 1 | 64, { prepare, run }: Round): Promise<Costs> {
  const measured: Costs[] = [];
  for (let round = 1 - warmUpRounds; round <= rounds[count]; round++) {
    await prepare?.();
    await server.ask("quiet", 3);
    await server.ask("advance", roundTime);
    const logBytes = await server.readLogBytes();
    await server.ask("reset", undefined);
    await run();
    await server.ask("quiet", 3);
    const costs = await server.ask("read", undefined);
    if (round > 0) measured.push({ ...costs, logBytes: (await server.readLogBytes()) - logBytes });
  }
  // The last calls of runs are still open. They must not belong to the next load.
  await server.respond(okResponse, server.sink.held);
  return meanCosts(measured, count);
}

/** Returns the mean costs of a message in rounds of `count` messages. */
function meanCosts(measured: readonly Costs[], count: number): Costs {
  const mean = (values: readonly number[]): number => {
    const sum = values.reduce((total, value) => total + value, 0);
    return Math.round((sum / measured.length / count) * 1000) / 1000;
  };
  const meanByName = (records: readonly Record<string, number>[]): Record<string, number> => {
    const names = [...new Set(records.flatMap((record) => Object.keys(record)))].sort();
    return Object.fromEntries(names.map((name) => [name, mean(records.map((record) => record[name] ?? 0))]));
  };
  const median = (name: "allocated" | "logBytes"): number => {
    const values = measured.map((costs) => costs[name]).sort((a, b) => a - b);
    return Math.round((values[Math.floor(values.length / 2)] ?? 0) / count);
  };
  const numbers = (name: keyof Costs): number => mean(measured.map((costs) => Number(costs[name])));
  return {
    statements: meanByName(measured.map(({ statements }) => statements)),
    rows: meanByName(measured.map(({ rows: of }) => of)),
    commits: numbers("commits"),
    syncs: numbers("syncs"),
    pages: numbers("pages"),
    json: numbers("json"),
    base64: numbers("base64"),
    timers: numbers("timers"),
    socketWrites: numbers("socketWrites"),
    allocated: median("allocated"),
    logBytes: median("logBytes"),
  };
}

/** Returns the path and the headers of a message, by its number in the batch. */
type MessageLoad = (sink: string, index: number) => { path: string; headers?: readonly string[] };

const keyHeaders = ["Svc-Flow-Control-Key: key", "Svc-Flow-Control-Value: parallelism=1000"];

const messageLoads: readonly (readonly [string, MessageLoad])[] = [
  ["plain", (sink) => ({ path: `/v2/publish/${sink}` })],
  ["key", (sink) => ({ path: `/v2/publish/${sink}`, headers: keyHeaders })],
  ["queue", (sink, index) => ({ path: `/v2/enqueue/queue-${index}/${sink}` })],
  ["callback", (sink) => ({ path: `/v2/publish/${sink}`, headers: [`Svc-Callback: ${sink}`] })],
];

const body = JSON.stringify({ text: "x".repeat(189) });

function sendMessages(server: MeasuredServer, load: MessageLoad, count: number): Round {
  const { sink, token } = server;
  const settings = Array.from({ length: count }, (_, index) => load(sink.url, index));
  const requests = settings.map(({ path, headers = [] }) => formatRequest({ path, headers, token, body }));
  const hasCallback = settings[0]?.headers?.some((header) => header.startsWith("Svc-Callback")) ?? false;
  const run = async (): Promise<void> => {
    await Promise.all([server.post(requests), sink.waitFor(count)]);
    await server.respond(okResponse, count);
    if (!hasCallback) return;
    await sink.waitFor(count);
    await server.respond(okResponse, count);
  };
  return { run };
}

/**
 * Measures a step: its post, the call that follows, and the response to the call in which it was executed.
 * The second step is that of new runs each time; a later step is followed by its successors.
 */
function takeSteps(server: MeasuredServer, first: number, count: number): Round {
  const { sink, token } = server;
  let runs = 0;
  let step = Infinity;
  const runId = (index: number): string => `run-${first}-${count}-${runs}-${index}`;
  const post = (makeItem: (runId: string) => object): Promise<unknown> => {
    const requests = Array.from({ length: count }, (_, index) =>
      formatRequest({ path: "/v2/batch", token, body: JSON.stringify([makeItem(runId(index))]) }),
    );
    return server.post(requests);
  };
  const run = async (): Promise<void> => {
    await Promise.all([post((id) => stepItem(sink.url, id, step)), sink.waitFor(2 * count)]);
    await server.respond(stepResponse, count);
    step++;
  };
  const prepare = async (): Promise<void> => {
    if (step > first && step <= first + rounds[1] + warmUpRounds && first > 2) return;
    if (runs > 0) await server.respond(stepResponse, count);
    runs++;
    step = 1;
    await Promise.all([post((id) => startItem(sink.url, id)), sink.waitFor(count)]);
    while (step < first) {
      await run();
      await server.ask("quiet", 1);
    }
  };
  return { prepare, run };
}
