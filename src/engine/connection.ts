import type { Socket } from "node:net";
import type { AccountId, HeaderList, Bytes } from "../core/message.ts";
import { AnswerReader, type Reuse } from "./answer.ts";

/** A request as it is sent: names and values of `headers` in turn. All texts hold what HTTP allows there (RFC 9110, 5), in latin1. */
export type Request = { method: string; path: string; headers: readonly string[]; body: Bytes };

/** Whoever waits for the answer to a request. After `ends` or `fails` it hears nothing more. */
export type Caller = {
  readonly request: Request;
  /** The account on whose behalf it is sent. */
  readonly account?: AccountId;
  /** The request is sent now. Closing the connection ends it. Called a second time if the request is resent over a new connection. */
  sent(connection: Connection): void;
  /** `length`: of the body, as far as the response announces it. */
  begins(status: number, fields: () => HeaderList, length: number | null): void;
  /** The bytes are overwritten when this returns. */
  continues(bytes: Buffer): void;
  ends(): void;
  fails(error: unknown): void;
};

/** The connection ended before the answer did. */
export class Lost extends Error {}

/**
 * Told when a connection may take another request, and when it is gone. `unheard`: the caller whose request must be resent over a new
 * connection. A connection that was reused may have been closed by the destination before the request arrived, so if it ends before
 * the first byte of a response, that is not yet a failure. See docs/decisions/0047.
 */
export type Owner = { free(connection: Connection): void; gone(connection: Connection, unheard: Caller | null): void };

/** All sockets read into one place, as what was read is looked at before anything else is read. */
const place = Buffer.allocUnsafeSlow(64 * 1024);

const read = "waypost read";

/** What a socket for a `Connection` is opened with. It says what it reads by an event of its own, and makes nothing to carry it. */
export const reading = {
  onread: {
    buffer: place,
    callback(this: Socket, count: number): boolean {
      this.emit(read, place.subarray(0, count));
      return true;
    },
  },
};

/**
 * One connection to a destination, with one request at a time: an attempt that is cut off takes nobody else's with it. HTTP/1.1, by
 * hand, since a request and its answer cost a third of what they do in a library that can do more (docs/decisions/0035).
 */
export class Connection {
  /** So many ticks of its owner it may still wait for another request. */
  seconds = 0;
  readonly #socket: Socket;
  readonly #host: string;
  readonly #owner: Owner;
  #caller: Caller | null = null;
  #reader: AnswerReader | null = null;
  #isGone = false;
  #isPaused = false;
  /** Whether it has carried a request before. */
  #isReused = false;
  /** Whether its end means that the running request must be resent: it was reused, and no byte of the response has come. */
  #mayBeStale = false;

  constructor(socket: Socket, host: string, owner: Owner) {
    this.#socket = socket;
    this.#host = host;
    this.#owner = owner;
    socket.on(read, (bytes: Buffer) => this.#take(bytes));
    socket.on("error", (error) => this.#lost(error));
    socket.on("end", () => this.#ended());
    socket.on("close", () => this.#ended());
  }

  send(caller: Caller): void {
    this.#caller = caller;
    this.#reader = new AnswerReader(caller.request.method, caller);
    this.#mayBeStale = this.#isReused;
    this.#isReused = true;
    caller.sent(this);
    if (this.#caller !== null) this.#write(caller.request);
  }

  /** Reads no more until `resume`, except for what the socket has at hand. */
  pause(): void {
    this.#socket.pause();
    this.#isPaused = true;
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket.resume();
  }

  /** Closes it at once. What runs on it fails with this error. */
  close(error: unknown): void {
    if (this.#isGone) return;
    this.#destroy()?.fails(error);
    this.#owner.gone(this, null);
  }

  /** It has ended by itself. */
  #lost(error: unknown): void {
    if (this.#isGone) return;
    if (!this.#mayBeStale) return this.close(error);
    this.#owner.gone(this, this.#destroy());
  }

  /** Answers whose request ran on it. */
  #destroy(): Caller | null {
    const caller = this.#caller;
    this.#isGone = true;
    this.#caller = null;
    this.#reader = null;
    this.#socket.destroy();
    return caller;
  }

  #write({ method, path, headers, body }: Request): void {
    let head = `${method} ${path} HTTP/1.1\r\nHost: ${this.#host}\r\nConnection: keep-alive\r\n`;
    for (let at = 0; at + 1 < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`;
    head += body.length > 0 || !bodiless.has(method) ? `Content-Length: ${body.length}\r\n\r\n` : "\r\n";
    // As one text: it is copied once, on its way into the system, and leaves nothing behind for the garbage collector.
    if (body.length <= mostAsText) return void this.#socket.write(head + latin1Of(body), "latin1");
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  }

  #take(bytes: Buffer): void {
    const reader = this.#reader;
    // What nobody asked for.
    if (reader === null) return this.close(null);
    this.#mayBeStale = false;
    try {
      reader.take(bytes);
    } catch (error) {
      return this.close(error);
    }
    if (reader.isWhole && !this.#isGone) this.#end(reader.reuse);
  }

  #ended(): void {
    if (this.#reader?.closed()) this.#end(null);
    else this.#lost(new Lost());
  }

  #end(reuse: Reuse): void {
    const caller = this.#caller;
    this.#caller = null;
    this.#reader = null;
    // When an answer comes before its request was taken, nobody will read the rest.
    if (reuse === null || this.#socket.writableLength > 0) this.close(null);
    caller?.ends();
    if (this.#isGone || reuse === null) return;
    this.resume();
    this.seconds = reuse.seconds;
    this.#owner.free(this);
  }
}

/** They say nothing of a body that they do not have (RFC 9110, 8.6). */
const bodiless: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

const mostAsText = 8 * 1024;

const latin1Of = (bytes: Bytes): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
