/**
 * Parts of the attacks of `neighbours`: requests of the hostile account, its destinations, and raw
 * connections.
 */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { Agent } from "undici";
import { Frames } from "./frames.ts";
import { pause } from "./server.ts";

/** How much an attack has sent, and how much of that the server refused. */
export type AttackCount = {
  /** The unit depends on the attack: bytes, requests or messages. */
  count: number;
  /** Requests with a status of at least 400, and connections that the server closed or refused. */
  refused: number;
  firstRefusal: string | null;
};

/** The server under attack, and the account that attacks. */
export class Target {
  readonly port: number;
  readonly token: string;
  readonly sent: AttackCount = { count: 0, refused: 0, firstRefusal: null };
  /** Aborted when the attack ends. */
  readonly over = new AbortController();
  readonly #agent = new Agent({
    connections: 64,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: 60_000 },
  });

  constructor({ port, token }: { port: number; token: string }) {
    this.port = port;
    this.token = token;
  }

  get isOver(): boolean {
    return this.over.signal.aborted;
  }

  /** Adds to what the attack has sent. */
  count(some: number): void {
    this.sent.count += some;
  }

  refused(how: string): void {
    if (this.isOver) return;
    this.sent.refused += 1;
    this.sent.firstRefusal ??= how.slice(0, 200);
  }

  /**
   * Sends a request with the token of the account. Returns the text of the response, or null if it was
   * refused or interrupted.
   */
  async post(path: string, body: string | Buffer): Promise<string | null> {
    try {
      const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
      const asked = {
        origin: `http://127.0.0.1:${this.port}`,
        path,
        method: "POST",
        headers,
        body,
        signal: this.over.signal,
      } as const;
      const response = await this.#agent.request(asked);
      const text = await response.body.text();
      if (response.statusCode < 400) return text;
      this.refused(`${response.statusCode} ${text}`);
    } catch (error) {
      this.refused(error instanceof Error ? error.message : String(error));
    }
    return null;
  }

  /** Publishes messages in one request and counts the accepted ones, `copies` for each item. */
  async publish(items: readonly object[], copies = 1): Promise<void> {
    if ((await this.post("/v2/batch", JSON.stringify(items))) !== null) this.count(items.length * copies);
    else await pause(20);
  }
}

/**
 * Starts a destination. `answer` receives the connection once for each request. Returns the port; it listens
 * on all loopback addresses.
 */
export async function destination(answer: (socket: Socket) => void): Promise<number> {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    const frames = new Frames(() => answer(socket));
    socket.on("data", (chunk) => frames.push(chunk.toString("latin1")));
  });
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", 8_192, resolve));
  return (server.address() as AddressInfo).port;
}

const ok = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "latin1");

/** Starts a destination that responds with 200 at once. */
export const quickDestination = (): Promise<number> => destination((socket) => void socket.write(ok));

/** Keeps one raw connection open and calls `onConnect` for each new one, until the attack ends. */
export async function keepConnected(target: Target, onConnect: (socket: Socket) => void): Promise<void> {
  while (!target.isOver) {
    const socket = connect({ host: "127.0.0.1", port: target.port, noDelay: true });
    const stop = (): unknown => socket.destroy();
    target.over.signal.addEventListener("abort", stop, { once: true });
    let heard = "";
    await new Promise<void>((resolve) => {
      socket.on("connect", () => onConnect(socket));
      socket.on("data", (chunk) => void (heard ||= chunk.toString("latin1", 0, 200)));
      socket.on("error", (error) => void (heard ||= error.message));
      socket.on("close", () => resolve());
    });
    target.over.signal.removeEventListener("abort", stop);
    target.refused(heard.split("\r\n")[0] || "the server closed the connection");
    await pause(20);
  }
}

/**
 * Writes the same bytes repeatedly, as fast as the other side reads them, until the connection or the attack
 * ends.
 */
export function writeForever(target: Target | null, socket: Socket, bytes: Buffer): void {
  const more = (): void => {
    if (socket.destroyed || !socket.writable) return;
    target?.count(bytes.length);
    socket.write(bytes, () => setImmediate(more));
  };
  more();
}

/** Runs `work` repeatedly and concurrently until the attack ends. */
export async function repeat(target: Target, concurrency: number, work: () => Promise<void>): Promise<void> {
  const lane = async (): Promise<void> => {
    while (!target.isOver) await work();
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
}

/** Waits until the attack ends. */
export function waitUntilOver(target: Target): Promise<void> {
  return new Promise((resolve) => {
    if (target.isOver) resolve();
    else target.over.signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
