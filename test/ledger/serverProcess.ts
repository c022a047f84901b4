import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import { Frames } from "../../bench/frames.ts";
import type { ServerAnswers, Start } from "./measuredServer.ts";

/**
 * The flags of the measured process. Without compiled code and without garbage collections between two
 * readings, the same work always allocates the same bytes.
 */
const flags = [
  "--expose-gc",
  "--min-semi-space-size=256",
  "--max-semi-space-size=256",
  "--no-opt",
  "--no-maglev",
  "--no-sparkplug",
];

type Reply = { id: number; result: unknown; error?: string };

/** A server in its own process, with connections to it and a sink that holds its deliveries. */
export class MeasuredServer {
  readonly sink: Sink;
  token = "";
  readonly #process: ChildProcess;
  readonly #connections: Connection[] = [];
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #database: Client | null = null;
  #port = 0;
  #asked = 0;

  private constructor(child: ChildProcess, sink: Sink) {
    this.#process = child;
    this.sink = sink;
    child.on("message", ({ id, result, error }: Reply) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(result);
      else waiting?.reject(new Error(error));
    });
    child.once("exit", (code) => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`the measured server exited with code ${code}`));
    });
  }

  /** Starts a server. */
  static async start(start: Start): Promise<MeasuredServer> {
    const file = fileURLToPath(new URL("measuredServer.ts", import.meta.url));
    const env = { PATH: process.env["PATH"], TZ: "UTC" };
    const child = fork(file, [], { execArgv: flags, env });
    const server = new MeasuredServer(child, await Sink.listen());
    const { port, token } = await server.ask("start", start);
    if (start.databaseUrl !== "") {
      server.#database = new Client({ connectionString: start.databaseUrl });
      await server.#database.connect();
    }
    server.#port = port;
    server.token = token;
    return server;
  }

  /** Asks the process a question. */
  ask<N extends keyof ServerAnswers>(
    name: N,
    input: Parameters<ServerAnswers[N]>[0],
  ): ReturnType<ServerAnswers[N]> {
    const waiting = Promise.withResolvers<unknown>();
    const id = ++this.#asked;
    this.#waiting.set(id, waiting);
    this.#process.send({ id, name, input });
    return waiting.promise as ReturnType<ServerAnswers[N]>;
  }

  /**
   * Sends requests so that the server reads all of them in one turn of its event loop. Resolves with all
   * replies.
   */
  async post(requests: readonly string[]): Promise<void> {
    while (this.#connections.length < requests.length)
      this.#connections.push(await Connection.open(this.#port));
    const connections = this.#connections.slice(0, requests.length);
    const replies = connections.map((connection) => connection.nextReply());
    await this.#whileStopped(() =>
      connections.map((connection, index) => connection.write(requests[index] ?? "")),
    );
    for (const reply of await Promise.all(replies))
      if (!reply.startsWith("HTTP/1.1 2")) throw new Error(`the server responded with ${reply}`);
  }

  /** Responds to the oldest deliveries, so that the server reads all responses in one turn. */
  async respond(response: string, count: number): Promise<void> {
    await this.#whileStopped(() => this.sink.respond(response, count));
  }

  /** Returns how many bytes the database has written to its write-ahead log. On SQLite, 0. */
  async readLogBytes(): Promise<number> {
    const result = await this.#database?.query("select pg_current_wal_insert_lsn() - '0/0' as bytes");
    return Number(result?.rows[0]?.bytes ?? 0);
  }

  async stop(): Promise<void> {
    await this.#database?.end();
    for (const connection of this.#connections) connection.close();
    this.sink.close();
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exited;
  }

  /** Stops the process, writes, and lets the process continue when everything has reached its sockets. */
  async #whileStopped(write: () => readonly Promise<void>[]): Promise<void> {
    const { pid = 0 } = this.#process;
    this.#process.kill("SIGSTOP");
    while (!isStopped(pid)) await new Promise((resolve) => setTimeout(resolve, 1));
    await Promise.all(write());
    this.#process.kill("SIGCONT");
  }
}

/** Reports whether a process on Linux is stopped. */
const isStopped = (pid: number): boolean =>
  /^\d+ \(.*\) T /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));

const write = (socket: Socket, text: string): Promise<void> =>
  new Promise((resolve, reject) =>
    socket.write(text, "latin1", (error) => (error ? reject(error) : resolve())),
  );

/** A connection to the server. */
class Connection {
  readonly #socket: Socket;
  #reply: (reply: string) => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    const frames = new Frames((head, body) => this.#reply(`${head} ${body}`));
    socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
  }

  static async open(port: number): Promise<Connection> {
    const socket = connect({ host: "127.0.0.1", port, noDelay: true });
    await once(socket, "connect");
    return new Connection(socket);
  }

  nextReply(): Promise<string> {
    return new Promise((resolve) => (this.#reply = resolve));
  }

  write(request: string): Promise<void> {
    return write(this.#socket, request);
  }

  close(): void {
    this.#socket.destroy();
  }
}

/** A destination that holds each delivery until `respond` is called. */
class Sink {
  readonly url: string;
  readonly #close: () => void;
  readonly #sockets: Socket[];
  readonly #arrived: { notify(): void };

  private constructor(port: number, parts: { close(): void; held: Socket[]; arrived: { notify(): void } }) {
    this.url = `http://127.0.0.1:${port}/`;
    this.#close = parts.close;
    this.#sockets = parts.held;
    this.#arrived = parts.arrived;
  }

  static async listen(): Promise<Sink> {
    const held: Socket[] = [];
    const arrived = { notify: (): void => undefined };
    const sockets = new Set<Socket>();
    const server = createServer({ noDelay: true }, (socket) => {
      sockets.add(socket);
      const frames = new Frames(() => {
        held.push(socket);
        arrived.notify();
      });
      socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
      socket.on("error", () => socket.destroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const close = (): void => {
      server.close();
      for (const socket of sockets) socket.destroy();
    };
    return new Sink((server.address() as AddressInfo).port, { close, held, arrived });
  }

  /** The deliveries without a response. */
  get held(): number {
    return this.#sockets.length;
  }

  /** Resolves when the sink holds this many deliveries. */
  async waitFor(count: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (this.#sockets.length >= count) resolve();
      };
      this.#arrived.notify = check;
      check();
    });
  }

  /** Responds to the oldest deliveries. */
  respond(response: string, count: number): Promise<void>[] {
    return this.#sockets.splice(0, count).map((socket) => write(socket, response));
  }

  close(): void {
    this.#close();
  }
}
