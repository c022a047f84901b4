/**
 * How fast are messages that clients pull, compared with messages that the server sends? And what do clients
 * cost that wait for messages?
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Agent, request } from "undici";
import { formatSummary, formatTable, ratio, summarize } from "./figures.ts";
import { startCpuClock } from "./processFigures.ts";
import { question } from "./question.ts";
import { pause, type Server } from "./server.ts";
import { devToken, startWaypost } from "./waypost.ts";

/** `rate` is in messages per second, and `cpu` is that of the server in microseconds per message. */
type Turn = { rate: number; cpu: number };
type MeasuredTurn = (client: Client, given: Given) => Promise<void | (() => Promise<unknown>)>;
type Given = { messages: number; connections: number; pulls: number };

const origin = "https://worker.internal";

/** The benchmark of messages that clients pull. */
export const pull = question({
  asks: "messages/s that clients pull, against messages that are sent, and the CPU of clients that wait",
  options: {
    rounds: { default: 5, help: "turns of each way, after one warm-up turn" },
    messages: { default: 5_000, help: "messages of a turn" },
    pulls: { default: 4, help: "clients that pull at once" },
    idle: { default: 1_000, help: "clients that wait for messages" },
    seconds: { default: 30, help: "seconds for which the waiting clients are watched" },
  },
  async find(given, resources) {
    const server = await startWaypost(resources, { folder: resources.folder("waypost") });
    const client = new Client(server);
    await client.ask("/v2/pulled", { origin });
    const pushed: Turn[] = [];
    const pulled: Turn[] = [];
    for (let round = 0; round <= given.rounds; round++) {
      const turns = [await client.measure(given, pushTurn), await client.measure(given, pullTurn)] as const;
      if (round > 0) void [pushed.push(turns[0]), pulled.push(turns[1])];
      console.error(`round ${round}: ${turns.map(({ rate }) => rate.toFixed(0)).join(" and ")} messages/s`);
    }
    const idleShare = await measureIdle(client, given);
    const ratios = ratio(
      pulled.map(({ rate }) => rate),
      pushed.map(({ rate }) => rate),
    );
    const row = (name: string, turns: readonly Turn[]): string[] => [
      name,
      formatSummary(summarize(turns.map(({ rate }) => rate)), 0),
      formatSummary(summarize(turns.map(({ cpu }) => cpu)), 0),
    ];
    const table = formatTable([
      ["", "messages/s", "CPU of the server, µs/message"],
      row("sent", pushed),
      row("pulled", pulled),
    ]);
    const idle = `${given.idle} waiting clients: ${(idleShare * 100).toFixed(2)} % of a core`;
    return {
      figures: { pushed, pulled, ratio: ratios, idleShare },
      text: `${table}\npulled / sent: ${formatSummary(ratios, 2)}\n${idle}\n`,
    };
  },
});

/** Sends requests to the server. */
class Client {
  readonly #server: Server;
  readonly #agent = new Agent({ connections: 4_000, headersTimeout: 120_000 });

  constructor(server: Server) {
    this.#server = server;
  }

  /** Returns a function that returns the CPU time of the server since now, in microseconds. */
  startCpuClock(): () => number {
    return startCpuClock(this.#server.pid);
  }

  /** Posts JSON, or puts it where the origin is declared. */
  async ask(path: string, json: unknown): Promise<Record<string, unknown>> {
    const method = path === "/v2/pulled" ? "PUT" : "POST";
    const { statusCode, body } = await request(`http://127.0.0.1:${this.#server.port}${path}`, {
      ...{ method, dispatcher: this.#agent, body: JSON.stringify(json) },
      headers: { "content-type": "application/json", authorization: `Bearer ${devToken}` },
    });
    if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode} ${await body.text()}`);
    return (await body.json()) as Record<string, unknown>;
  }

  /** Measures a turn. It may return what must end after it, and does not count. */
  async measure(given: Given, turn: MeasuredTurn): Promise<Turn> {
    const cpu = this.startCpuClock();
    const startedAt = performance.now();
    const rest = await turn(this, given);
    const rate = (given.messages * 1_000) / (performance.now() - startedAt);
    const result = { rate, cpu: cpu() / given.messages };
    await rest?.();
    return result;
  }
}

/** Publishes the messages of a turn on several connections at once. */
async function publishAll(client: Client, url: string, { messages, connections }: Given): Promise<void> {
  let left = messages;
  const publish = async (): Promise<void> => {
    while (left-- > 0) await client.ask(`/v2/publish/${url}`, { order: left });
  };
  await Promise.all(Array.from({ length: connections }, publish));
}

async function pushTurn(client: Client, given: Given): Promise<void> {
  let arrived = 0;
  const all = Promise.withResolvers<void>();
  const sink = createServer((incoming, outgoing) => {
    incoming.resume().once("end", () => {
      outgoing.end("ok");
      if (++arrived === given.messages) all.resolve();
    });
  });
  sink.listen(0, "127.0.0.1");
  await once(sink, "listening");
  await publishAll(client, `http://127.0.0.1:${(sink.address() as AddressInfo).port}/`, given);
  await all.promise;
  sink.closeAllConnections();
  sink.close();
}

async function pullTurn(client: Client, given: Given): Promise<() => Promise<unknown>> {
  let reported = 0;
  const work = async (): Promise<void> => {
    while (reported < given.messages) {
      const { attempts } = (await client.ask("/v2/pull", { origin, max: 100, wait: "1s" })) as {
        attempts: { attempt: string }[];
      };
      const reports = attempts.map(({ attempt }) => ({ attempt, outcome: "ok" }));
      if (reports.length === 0) continue;
      const { results } = await client.ask("/v2/attempts/batch", { reports });
      const refused = (results as { became?: string }[]).find(({ became }) => became !== "delivered");
      if (refused) throw new Error(`a report was refused: ${JSON.stringify(refused)}`);
      reported += reports.length;
    }
  };
  const pulling = Array.from({ length: given.pulls }, work);
  await publishAll(client, `${origin}/`, given);
  while (reported < given.messages) await pause(1);
  // The last pulls wait for a second more. They must not get messages of the next turn.
  return () => Promise.all(pulling);
}

/** Returns the share of a core that the server uses while clients wait. */
async function measureIdle(
  client: Client,
  { idle, seconds }: { idle: number; seconds: number },
): Promise<number> {
  await pause(2_000);
  let isOver = false;
  const wait = async (): Promise<void> => {
    while (!isOver) await client.ask("/v2/pull", { origin, wait: "60s" }).catch(() => undefined);
  };
  for (let at = 0; at < idle; at++) {
    void wait();
    // They begin one after another, and so they also repeat their pulls one after another.
    await pause(20);
  }
  const cpu = client.startCpuClock();
  await pause(seconds * 1_000);
  isOver = true;
  return cpu() / (seconds * 1e6);
}
