/** The publishers, a process of its own: prebuilt requests over kept raw connections, in a closed or an open loop. */
import { connect, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { Frames } from "./frames.ts";
import { dueAt, type Pace } from "./pace.ts";
import { serveDriver } from "./benchProcess.ts";
import { type PublishTarget, PreparedPublish } from "./payload.ts";

export type LoadRun = {
  port: number;
  /** More servers of the same service: the connections go round. */
  others?: readonly number[];
  target: PublishTarget;
  token: string;
  round: number;
  connections: number;
  /** No more than so many. */
  messages: number;
  /** No longer than so many seconds (closed loop only); null: until all messages are sent. */
  seconds: number | null;
  /** Messages a second on a fixed schedule: an open loop. Null: each connection sends again when it has its answer. */
  rate: number | null;
};

export type LoadReport = {
  sent: number;
  /** Microseconds. */
  firstSentAt: number;
  lastAnsweredAt: number;
  refused: number;
  firstRefusal: string | null;
  /** From the time a message was to be sent to the answer. */
  latency: Spread;
  /** How late the load itself was behind its schedule: part of the latencies. */
  lateness: Spread;
  /** Share of one core this process used. */
  cpu: number;
};

export type LoadAnswers = typeof answers;

/** Microseconds before the first message of an open loop, so that the ticker is there in time. */
const headStart = 20_000;

class Run {
  readonly done = Promise.withResolvers<void>();
  readonly #options: LoadRun;
  readonly #idle: Connection[] = [];
  readonly #latencies: Float64Array;
  readonly #latenesses: Float64Array;
  readonly #startedAt: number;
  readonly #cpuAtStart = process.cpuUsage();
  #sent = 0;
  #answered = 0;
  #refused = 0;
  #firstRefusal: string | null = null;
  #lastAnsweredAt = 0;

  constructor(options: LoadRun) {
    this.#options = options;
    this.#startedAt = microseconds() + (options.rate === null ? 0 : headStart);
    this.#latencies = new Float64Array(options.messages);
    this.#latenesses = new Float64Array(options.messages);
  }

  /** The connection has nothing to do: it gets the next message, or rests until one is due. */
  free(connection: Connection): void {
    const now = microseconds();
    const at = this.#nextAt(now);
    if (at !== null && at <= now) {
      this.#latenesses[this.#sent] = now - at;
      connection.send(this.#sent++, at);
    } else {
      this.#idle.push(connection);
      if (at === null && this.#answered === this.#sent) this.done.resolve();
    }
  }

  /** The ticker says that a message is due. When every connection is busy, the next free one sends it, late. */
  tick(): void {
    const connection = this.#idle.pop();
    if (connection) this.free(connection);
  }

  /** What the ticker needs to know. */
  pace(rate: number): Pace {
    return { rate, messages: this.#options.messages, startAt: this.#startedAt };
  }

  answered(at: number, refusal: string | null): void {
    this.#lastAnsweredAt = microseconds();
    this.#latencies[this.#answered++] = this.#lastAnsweredAt - at;
    if (refusal === null) return;
    this.#refused += 1;
    this.#firstRefusal ??= refusal;
  }

  /** When the next message is to be sent; null: no more. */
  #nextAt(now: number): number | null {
    const { messages, seconds, rate } = this.#options;
    if (this.#sent >= messages) return null;
    if (rate !== null) return dueAt(this.pace(rate), this.#sent);
    return seconds !== null && now - this.#startedAt > seconds * 1e6 ? null : now;
  }

  report(): LoadReport {
    const { user, system } = process.cpuUsage(this.#cpuAtStart);
    return {
      sent: this.#sent,
      firstSentAt: this.#startedAt,
      lastAnsweredAt: this.#lastAnsweredAt,
      refused: this.#refused,
      firstRefusal: this.#firstRefusal,
      latency: spread(this.#latencies, this.#answered),
      lateness: spread(this.#latenesses, this.#sent),
      cpu: (user + system) / (microseconds() - this.#startedAt),
    };
  }
}

/** One kept connection with at most one request under way, so that its bytes may be reused. */
class Connection {
  run: Run | null = null;
  readonly #socket: Socket;
  readonly #request: PreparedPublish;
  #sentAt = 0;

  constructor(socket: Socket, request: PreparedPublish) {
    this.#socket = socket;
    this.#request = request;
  }

  static async open(options: LoadRun): Promise<Connection> {
    const frames = new Frames((head, body) => connection.#answer(head, body));
    const bytes = Buffer.alloc(16_384);
    const callback = (length: number): boolean => {
      frames.push(bytes.toString("latin1", 0, length));
      return true;
    };
    const onread = { buffer: bytes, callback };
    const socket = connect({ host: "127.0.0.1", port: options.port, noDelay: true, onread });
    const connection = new Connection(socket, new PreparedPublish(options));
    await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    socket.on("close", () => connection.run?.done.reject(new Error("The server closed a connection under load.")));
    return connection;
  }

  send(number: number, at: number): void {
    this.#sentAt = at;
    this.#request.stamp(number, at);
    this.#socket.write(this.#request.bytes);
  }

  close(): void {
    this.run = null;
    this.#socket.destroy();
  }

  #answer(head: string, body: string): void {
    const isAccepted = head.startsWith("HTTP/1.1 2");
    this.run?.answered(this.#sentAt, isAccepted ? null : `${head.slice(0, head.indexOf("\r\n"))} ${body}`);
    this.run?.free(this);
  }
}

const answers = {
  run: async (options: LoadRun): Promise<LoadReport> => {
    const ports = [options.port, ...(options.others ?? [])];
    const toOne = (_: unknown, index: number): Promise<Connection> =>
      Connection.open({ ...options, port: ports[index % ports.length] ?? options.port });
    const connections = await Promise.all(Array.from({ length: options.connections }, toOne));
    const ticker = options.rate === null ? null : await openTicker();
    const run = new Run(options);
    for (const connection of connections) {
      connection.run = run;
      run.free(connection);
    }
    ticker?.on("message", () => run.tick());
    if (options.rate !== null) ticker?.postMessage(run.pace(options.rate));
    try {
      await run.done.promise;
      return run.report();
    } finally {
      await ticker?.terminate();
      for (const connection of connections) connection.close();
    }
  },
};

async function openTicker(): Promise<Worker> {
  const ticker = new Worker(new URL("./ticker.ts", import.meta.url));
  await new Promise((resolve) => ticker.once("message", resolve));
  return ticker;
}

serveDriver(answers);
