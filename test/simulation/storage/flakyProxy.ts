import type { AddressInfo, Server, Socket } from "node:net";
import { connect, createServer } from "node:net";
import type { ConnectionLoss } from "./storage.ts";

type Link = { client: Socket; upstream: Socket; ended: Promise<void> };

/**
 * A proxy for all connections of one node to PostgreSQL, which can cut them in the middle of a statement. A
 * new connection is made only after the database has released what the last one held, so that its effects do
 * not depend on time.
 */
export class FlakyProxy {
  /** Resolves when connections are possible. */
  readonly ready: Promise<void>;
  /** The cut that the next writing transaction meets. */
  cut: ConnectionLoss | null = null;
  /** Whether the transaction that was cut last is stored. */
  isStored = false;
  readonly #target: URL;
  readonly #server: Server;
  readonly #links = new Set<Link>();
  readonly #ending = new Set<Promise<void>>();
  #isClosed = false;

  constructor(url: string) {
    this.#target = new URL(url);
    this.#server = createServer(
      { pauseOnConnect: true, noDelay: true },
      (client) => void this.#accept(client),
    );
    this.ready = new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
  }

  /** Returns the URL of the proxy. */
  get url(): string {
    const url = new URL(this.#target);
    url.port = String((this.#server.address() as AddressInfo).port);
    return url.href;
  }

  /** Cuts all connections. Resolves when the database has noticed. */
  async closeConnections(): Promise<void> {
    for (const link of this.#links) this.#end(link);
    await this.released();
  }

  /** Resolves when the database has released what the cut connections held. */
  async released(): Promise<void> {
    await Promise.all(this.#ending);
  }

  /** Closes the proxy for good. */
  kill(): Promise<void> {
    this.#isClosed = true;
    return this.closeConnections();
  }

  async close(): Promise<void> {
    await this.kill();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #accept(client: Socket): Promise<void> {
    client.on("error", () => undefined);
    await this.released();
    if (this.#isClosed) return void client.destroy();
    const upstream = connect({ port: Number(this.#target.port), host: this.#target.hostname, noDelay: true });
    upstream.on("error", () => undefined);
    const ended = new Promise<void>((resolve) => upstream.on("close", () => resolve()));
    const link: Link = { client, upstream, ended };
    this.#links.add(link);
    client.on("close", () => this.#end(link));
    void ended.then(() => this.#end(link));
    this.#forward(link);
    client.resume();
  }

  /** Closes the connection to the database, which then ends the running transaction and its own end. */
  #end(link: Link): void {
    const { client, upstream, ended } = link;
    if (!this.#links.delete(link)) return;
    client.destroy();
    upstream.end();
    this.#ending.add(ended);
    void ended.then(() => this.#ending.delete(ended));
  }

  #forward(link: Link): void {
    const { client, upstream } = link;
    const messages = new MessageSplitter();
    let statement: number | null = null;
    let isUnheard = false;
    client.on("data", (data: Buffer) => {
      for (const message of messages.read(data)) {
        if (!this.#links.has(link)) return;
        const text = readStatement(message);
        if (text?.startsWith("begin isolation level")) statement = -1;
        const cut = statement === null ? null : this.cut;
        if (cut && text === "commit" && cut.at === "stored") isUnheard = true;
        else if (cut && (text === "commit" || Number(cut.at) <= Number(statement)))
          return this.#cut(link, cut);
        if (statement !== null && isStatement(message)) statement++;
        if (text === "commit" || text === "rollback") statement = null;
        upstream.write(message);
      }
    });
    upstream.on("data", (data: Buffer) => {
      if (!isUnheard) return void client.write(data);
      // Everything before was answered, so this is the answer to the commit.
      this.isStored = data.includes("COMMIT");
      if (this.cut) this.#cut(link, this.cut);
    });
  }

  #cut(link: Link, { dies }: ConnectionLoss): void {
    this.cut = null;
    if (dies) this.#isClosed = true;
    this.#end(link);
  }
}

/**
 * Splits the bytes of a client into messages: a type (except for the first message), a length, and the
 * content. (PostgreSQL, 54.2.)
 */
class MessageSplitter {
  #rest: Buffer = Buffer.alloc(0);
  #head = 0;

  *read(data: Buffer): Generator<Buffer> {
    this.#rest = Buffer.concat([this.#rest, data]);
    while (this.#rest.length >= this.#head + 4) {
      const length = this.#head + this.#rest.readInt32BE(this.#head);
      if (this.#rest.length < length) return;
      const message = this.#rest.subarray(0, length);
      this.#rest = this.#rest.subarray(length);
      this.#head = 1;
      yield message;
    }
  }
}

/** Reports whether a message is a statement: `Q` as text, `E` prepared, with its values. */
const isStatement = (message: Buffer): boolean => message[0] === 0x51 || message[0] === 0x45;

const readStatement = (message: Buffer): string | null =>
  message[0] === 0x51 ? message.toString("utf8", 5, message.length - 1) : null;
