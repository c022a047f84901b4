/**
 * The account that is not hostile, in its own process. It publishes at a steady rate to a sink in the same
 * process, and records when each message was accepted and when it arrived. Latencies count from the time when
 * a message should have been sent, as in `load.ts`.
 */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { Frames } from "./frames.ts";
import { dueAt, type Pace } from "./pace.ts";
import { serveDriver } from "./benchProcess.ts";
import { PreparedPublish, readStamp, sinkUrl } from "./payload.ts";

/** One run of the honest account. */
export type NeighbourRun = {
  port: number;
  token: string;
  /** Identifies the messages of this run. */
  round: number;
  /** Messages per second, and their number. */
  rate: number;
  messages: number;
  /** Milliseconds to wait after the last message for responses and arrivals. */
  patience: number;
};

/** The figures of a run. */
export type NeighbourReport = {
  sent: number;
  /** Publishes that were refused, and connections that broke. */
  failed: number;
  firstFailure: string | null;
  /** Publishes without a response when patience ended. They count with the time until then. */
  unanswered: number;
  /** Accepted messages that had not arrived when patience ended. They count with the time until then. */
  missing: number;
  publish: Spread;
  arrival: Spread;
  /** How late this process was behind its own schedule. This is part of both latencies. */
  lateness: Spread;
};

/** The requests that the neighbour handles. */
export type NeighbourAnswers = typeof answers;

const headStart = 50_000;
const ok = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "latin1");
let sinkPort = 0;

class Run {
  readonly done = Promise.withResolvers<void>();
  readonly of: NeighbourRun;
  readonly pace: Pace;
  readonly #idle: Publisher[] = [];
  readonly #open = new Set<Publisher>();
  readonly #sentAt: Float64Array;
  readonly #answeredAt: Float64Array;
  readonly #arrivedAt: Float64Array;
  readonly #failures = new Map<number, string>();
  #sent = 0;

  constructor(of: NeighbourRun) {
    this.of = of;
    this.pace = { startAt: microseconds() + headStart, rate: of.rate, messages: of.messages };
    this.#sentAt = new Float64Array(of.messages);
    this.#answeredAt = new Float64Array(of.messages);
    this.#arrivedAt = new Float64Array(of.messages);
  }

  /** A message is due: an idle connection sends it, or a new one if all wait for responses. */
  tick(): void {
    const number = this.#sent++;
    this.#sentAt[number] = microseconds();
    const publisher = this.#idle.pop() ?? new Publisher(this);
    this.#open.add(publisher);
    publisher.send(number, dueAt(this.pace, number));
    if (this.#sent === this.of.messages) setTimeout(() => this.done.resolve(), this.of.patience);
  }

  answered(publisher: Publisher, number: number, failure: string | null): void {
    this.#answeredAt[number] = microseconds();
    if (failure !== null) this.#failures.set(number, failure);
    if (publisher.isOpen) this.#idle.push(publisher);
    this.#lookWhetherDone();
  }

  closed(publisher: Publisher): void {
    this.#open.delete(publisher);
    const at = this.#idle.indexOf(publisher);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  arrived(number: number): void {
    this.#arrivedAt[number] ||= microseconds();
    this.#lookWhetherDone();
  }

  close(): void {
    for (const publisher of this.#open) publisher.close();
  }

  report(): NeighbourReport {
    const now = microseconds();
    const numbers = Array.from({ length: this.#sent }, (_, number) => number);
    const accepted = numbers.filter((number) => !this.#failures.has(number));
    const since = (times: Float64Array, of: readonly number[]): Spread =>
      spread(
        Float64Array.from(of, (number) => (times[number] || now) - dueAt(this.pace, number)),
        of.length,
      );
    return {
      sent: this.#sent,
      failed: this.#failures.size,
      firstFailure: [...this.#failures.values()][0] ?? null,
      unanswered: accepted.filter((number) => this.#answeredAt[number] === 0).length,
      missing: accepted.filter((number) => this.#arrivedAt[number] === 0).length,
      publish: since(this.#answeredAt, accepted),
      arrival: since(this.#arrivedAt, accepted),
      lateness: since(this.#sentAt, numbers),
    };
  }

  #lookWhetherDone(): void {
    if (this.#sent < this.of.messages) return;
    const { failed, unanswered, missing } = this.report();
    if (failed === this.#sent || unanswered + missing === 0) this.done.resolve();
  }
}

/** One kept connection with at most one request in flight. */
class Publisher {
  isOpen = true;
  readonly #run: Run;
  readonly #socket: Socket;
  readonly #request: PreparedPublish;
  #number: number | null = null;

  constructor(run: Run) {
    this.#run = run;
    const { port, token, round } = run.of;
    this.#request = new PreparedPublish({
      port,
      token,
      round,
      target: { path: `/v2/publish/${sinkUrl(sinkPort)}`, headers: [], names: 1 },
    });
    const frames = new Frames((head, body) =>
      this.#settle(head.startsWith("HTTP/1.1 2") ? null : `${head.split("\r\n")[0]} ${body}`),
    );
    this.#socket = connect({ host: "127.0.0.1", port, noDelay: true });
    this.#socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
    this.#socket.on("error", (error) => this.#end(error.message));
    this.#socket.on("close", () => this.#end("the server closed the connection"));
  }

  send(number: number, at: number): void {
    this.#number = number;
    this.#request.stamp(number, at);
    this.#socket.write(this.#request.bytes);
  }

  close(): void {
    this.#number = null;
    this.#socket.destroy();
  }

  #settle(failure: string | null): void {
    const number = this.#number;
    this.#number = null;
    if (number !== null) this.#run.answered(this, number, failure);
  }

  #end(why: string): void {
    this.isOpen = false;
    this.#run.closed(this);
    this.#settle(why);
  }
}

let current: Run | null = null;

const answers = {
  /** Opens the sink. */
  listen: async (): Promise<void> => {
    const server = createServer({ noDelay: true }, (socket) => {
      const frames = new Frames((_, body) => {
        const { round, number } = readStamp(body);
        if (round === current?.of.round) current.arrived(number);
        socket.write(ok);
      });
      socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
      socket.on("error", () => socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    sinkPort = (server.address() as AddressInfo).port;
  },
  /** Publishes at the given rate and returns the latencies. */
  run: async (of: NeighbourRun): Promise<NeighbourReport> => {
    const ticker = new Worker(new URL("./ticker.ts", import.meta.url));
    await new Promise((resolve) => ticker.once("message", resolve));
    current = new Run(of);
    const run = current;
    ticker.on("message", () => run.tick());
    ticker.postMessage(run.pace);
    await run.done.promise;
    await ticker.terminate();
    run.close();
    return run.report();
  },
  /** Ends a run at once: the server is gone. */
  stop: (): void => current?.done.resolve(),
};

serveDriver(answers);
