/**
 * The publishers, in their own process: prebuilt requests over kept raw connections, in a closed or an open
 * loop.
 */
import { connect, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { Frames } from "./frames.ts";
import { dueAt, type Pace } from "./pace.ts";
import { serveDriver } from "./benchProcess.ts";
import { type PublishTarget, PreparedPublish } from "./payload.ts";

/** One run of the load. */
export type LoadRun = {
  port: number;
  /** Further servers of the same service. The connections are spread over all. */
  others?: readonly number[];
  target: PublishTarget;
  token: string;
  round: number;
  connections: number;
  /** The maximum number of messages to send. */
  messages: number;
  /** The maximum time in seconds (closed loop only). Null: until all messages are sent. */
  seconds: number | null;
  /**
   * Messages per second on a fixed schedule (open loop). Null: each connection sends again when it has its
   * answer.
   */
  rate: number | null;
};

/** The figures of a run. */
export type LoadReport = {
  sent: number;
  /** In microseconds. */
  firstSentAt: number;
  lastAnsweredAt: number;
  refused: number;
  firstRefusal: string | null;
  /** From the time when a message should have been sent to the answer. */
  latency: Spread;
  /** How late the load was behind its schedule. This is part of the latencies. */
  lateness: Spread;
  /** Share of one core that this process used. */
  cpu: number;
};

/** The requests that the load handles. */
export type LoadAnswers = typeof answers;

/** Microseconds before the first message of an open loop, so that the ticker has started in time. */
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

  /** The connection is free: it sends the next message, or waits until one is due. */
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

  /**
   * Called by the ticker when a message is due. If every connection is busy, the next free one sends it late.
   */
  tick(): void {
    const connection = this.#idle.pop();
    if (connection) this.free(connection);
  }

  /** Returns the schedule for the ticker. */
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

  /** When the next message must be sent. Null: there are no more. */
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

/** One kept connection with at most one request in flight, so that its bytes can be reused. */
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
    socket.on("close", () =>
      connection.run?.done.reject(new Error("The server closed a connection under load.")),
    );
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
