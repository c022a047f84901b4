import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { onTestFinished } from "vitest";
import { createTestServer, token } from "../testServer.ts";
import type { TestServer } from "../testServer.ts";
import { listen } from "../wire.ts";

type Answer = { status: number; head: string; body: string };

/** A connection that stays open, and on which everything is written and read as bytes. */
export class Talk {
  readonly socket: Socket;
  received = Buffer.alloc(0);
  isClosed = false;

  readonly #accepted: ReadonlyMap<number | undefined, Socket>;

  /** `accepted` maps the local port of each connection to its other end. */
  constructor(port: number, accepted: ReadonlyMap<number | undefined, Socket>) {
    this.#accepted = accepted;
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
    this.socket.on("data", (bytes: Buffer) => (this.received = Buffer.concat([this.received, bytes])));
    this.socket.on("close", () => (this.isClosed = true)).on("error", () => undefined);
    this.socket.on("end", () => this.socket.end());
    onTestFinished(() => void this.socket.destroy());
  }

  /** Writes the pieces so that each arrives alone. */
  async write(...pieces: readonly string[]): Promise<void> {
    for (const piece of pieces) {
      if (piece !== "") this.socket.write(piece, "latin1");
      do await pause(0);
      while (
        !this.isClosed &&
        (this.#accepted.get(this.socket.localPort)?.bytesRead ?? 0) < this.socket.bytesWritten
      );
    }
  }

  /** Returns the next response. */
  async answer(): Promise<Answer> {
    for (;;) {
      const text = this.received.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      const length = Number(/^content-length: (\d+)/im.exec(text.slice(0, end))?.[1] ?? 0);
      if (end >= 0 && text.length >= end + 4 + length) {
        this.received = this.received.subarray(end + 4 + length);
        const head = text.slice(0, end);
        return {
          status: Number(/ (\d{3}) /.exec(head)?.[1]),
          head,
          body: text.slice(end + 4, end + 4 + length),
        };
      }
      if (this.isClosed) throw new Error(`closed after ${JSON.stringify(text)}`);
      await pause(1);
    }
  }

  async closed(): Promise<string> {
    if (!this.isClosed) await once(this.socket, "close");
    return this.received.toString("latin1");
  }
}

/** Waits for a time in milliseconds. */
export const pause = (time: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, time));

/** A test server, its port, and a function that opens a connection to it. */
export type Open = TestServer & { port: number; usual: string[]; talk(): Talk };

/**
 * Creates a server whose token was just used. `usual` records the requests that Node's own parser has read.
 */
export async function open(options: Parameters<typeof createTestServer>[0] = {}): Promise<Open> {
  const server = await createTestServer(options);
  const usual: string[] = [];
  server.api.server.on("request", ({ method, url }) => void usual.push(`${method} ${url}`));
  const port = await listen(server);
  const accepted = new Map<number | undefined, Socket>();
  server.api.server.on("connection", (socket: Socket) => accepted.set(socket.remotePort, socket));
  await server.ask("GET", "/v2/queues");
  usual.length = 0;
  return { ...server, port, usual, talk: () => new Talk(port, accepted) };
}

/** Returns a request with a body and more header lines. */
export const request = (
  body: string,
  more: readonly string[] = [],
  line = "POST /v2/publish/https://e.example/ HTTP/1.1",
): string =>
  [
    line,
    "Host: x",
    `Authorization: Bearer ${token}`,
    ...more,
    `Content-Length: ${body.length}`,
    "",
    body,
  ].join("\r\n");

/** Returns the bodies that were delivered, in order. */
export const bodies = ({ deliveries }: TestServer): string[] =>
  deliveries.map(({ message }) => Buffer.from(message.body).toString("latin1"));
