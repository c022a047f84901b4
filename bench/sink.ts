/**
 * The destination, in its own process: it responds with 200 to every request, counts each message once, and
 * measures how long it took.
 */
import { createServer, type Socket } from "node:net";
import type { AddressInfo } from "node:net";
import { microseconds } from "./clock.ts";
import { type Spread, spread } from "./figures.ts";
import { Frames } from "./frames.ts";
import { serveDriver } from "./benchProcess.ts";
import { readCopy, readStamp } from "./payload.ts";

/** The figures of one round. */
export type SinkReport = {
  received: number;
  /** Deliveries of messages that had arrived before. */
  repeated: number;
  /** In microseconds, or 0 if nothing arrived. */
  firstAt: number;
  lastAt: number;
  /** From the time in the message to its arrival. */
  latency: Spread;
  /** Share of one core that this process used. */
  cpu: number;
};

/** The requests that the sink handles. */
export type SinkAnswers = typeof answers;

const ok = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "latin1");

/**
 * The arrivals of one round, in which each message has `copies` copies. Messages of other rounds get a
 * response, and are not counted.
 */
class Round {
  readonly id: number;
  readonly copies: number;
  received = 0;
  repeated = 0;
  firstAt = 0;
  lastAt = 0;
  expected = Number.POSITIVE_INFINITY;
  onComplete: () => void = () => undefined;
  readonly #seen: Uint8Array;
  readonly #latencies: Float64Array;
  readonly #cpuAtStart = process.cpuUsage();
  readonly #startedAt = microseconds();

  constructor({ id, messages, copies }: { id: number; messages: number; copies: number }) {
    this.id = id;
    this.copies = copies;
    this.#seen = new Uint8Array(messages * copies);
    this.#latencies = new Float64Array(messages * copies);
  }

  arrived(number: number, sentAt: number): void {
    if (this.#seen[number] !== 0) {
      this.repeated += 1;
      return;
    }
    this.#seen[number] = 1;
    this.lastAt = microseconds();
    if (this.received === 0) this.firstAt = this.lastAt;
    this.#latencies[this.received] = this.lastAt - sentAt;
    this.received += 1;
    if (this.received >= this.expected) this.onComplete();
  }

  report(): SinkReport {
    const { received, repeated, firstAt, lastAt } = this;
    const { user, system } = process.cpuUsage(this.#cpuAtStart);
    const cpu = (user + system) / (microseconds() - this.#startedAt);
    return { received, repeated, firstAt, lastAt, latency: spread(this.#latencies, received), cpu };
  }
}

let round = new Round({ id: 0, messages: 0, copies: 1 });

const answers = {
  listen: async (): Promise<{ port: number }> => {
    const server = createServer({ noDelay: true }, accept);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", 4096, resolve));
    return { port: (server.address() as AddressInfo).port };
  },
  begin: (of: { id: number; messages: number; copies: number }): void => {
    round = new Round(of);
  },
  /** Returns when `expected` messages have arrived, or after `patience` milliseconds with those that have. */
  finish: async ({ expected, patience }: { expected: number; patience: number }): Promise<SinkReport> => {
    const current = round;
    current.expected = expected;
    if (current.received < expected) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, patience);
        current.onComplete = () => (clearTimeout(timer), resolve());
      });
    }
    return current.report();
  },
};

function accept(socket: Socket): void {
  const frames = new Frames((head, body) => {
    const { round: id, number, at } = readStamp(body);
    if (id === round.id)
      round.arrived(round.copies === 1 ? number : number * round.copies + readCopy(head), at);
    socket.write(ok);
  });
  socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
  socket.on("error", () => socket.destroy());
}

serveDriver(answers);
