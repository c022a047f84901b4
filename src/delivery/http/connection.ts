import type { Socket } from "node:net";
import type { AccountId, HeaderList, Bytes } from "../../core/model/message.ts";
import type { LongWork } from "../../core/fairness/longWork.ts";
import { ResponseReader, type ConnectionReuse } from "./response.ts";

/** A request as it is sent: names and values of `headers` in turn. All texts hold what HTTP allows there (RFC 9110, 5), in latin1. */
export type HttpRequest = { method: string; path: string; headers: readonly string[]; body: Bytes };

/** Whoever waits for the answer to a request. After `ends` or `fails` it hears nothing more. */
export type RequestCaller = {
  readonly request: HttpRequest;
  /** The account on whose behalf it is sent. */
  readonly account?: AccountId;
  /** The request is sent now. Closing the connection ends it. Called a second time if the request is resent over a new connection. */
  onSent(connection: HttpConnection): void;
  /** `length`: of the body, as far as the response announces it. */
  onResponse(status: number, fields: () => HeaderList, length: number | null): void;
  /** The bytes are overwritten when this returns. */
  onBody(bytes: Buffer): void;
  onEnd(): void;
  onFailure(error: unknown): void;
};

/** The connection ended before the answer did. */
export class ConnectionLost extends Error {}

/**
 * Told when a connection may take another request, and when it is gone. `unheard`: the caller whose request must be resent over a new
 * connection. A connection that was reused may have been closed by the destination before the request arrived, so if it ends before
 * the first byte of a response, that is not yet a failure. See docs/decisions/0047.
 */
export type ConnectionOwner = {
  onFree(connection: HttpConnection): void;
  onGone(connection: HttpConnection, unanswered: RequestCaller | null): void;
};

/** After a read of so many bytes a connection reads on when it has its turn. Most responses are smaller. */
const largeReadBytes = 16 * 1024;

/** A smaller read is taken at once, whatever it is. Of a larger one so many pieces of a body are taken in one turn: each costs a tenth of a microsecond. */
const smallReadBytes = 2 * 1024;
const maxPieces = 1_000;

/** All sockets read into one place, as what was read is looked at before anything else is read. */
const readBuffer = Buffer.allocUnsafeSlow(64 * 1024);

const readEvent = "waypost read";

/** What a socket for a `Connection` is opened with. It says what it reads by an event of its own, and makes nothing to carry it. */
export const socketReadOptions = {
  onread: {
    buffer: readBuffer,
    callback(this: Socket, count: number): boolean {
      this.emit(readEvent, readBuffer.subarray(0, count));
      return true;
    },
  },
};

/**
 * One connection to a destination, with one request at a time: an attempt that is cut off takes nobody else's with it. HTTP/1.1, by
 * hand, since a request and its answer cost a third of what they do in a library that can do more (docs/decisions/0035).
 */
export class HttpConnection {
  /** So many ticks of its owner it may still wait for another request. */
  idleSeconds = 0;
  readonly #socket: Socket;
  readonly #host: string;
  readonly #owner: ConnectionOwner;
  #caller: RequestCaller | null = null;
  #reader: ResponseReader | null = null;
  #isGone = false;
  #isPaused = false;
  /** Whether it waits for its turn to read on. */
  #isWaitingForTurn = false;
  /** What was read and waits for its turn. */
  readonly #unread: Buffer[] = [];
  readonly #longWork: LongWork;
  /** Whether it has carried a request before. */
  #isReused = false;
  /** Whether its end means that the running request must be resent: it was reused, and no byte of the response has come. */
  #mayBeStale = false;

  constructor(socket: Socket, { host, owner, longWork }: { host: string; owner: ConnectionOwner; longWork: LongWork }) {
    this.#socket = socket;
    this.#host = host;
    this.#owner = owner;
    this.#longWork = longWork;
    socket.on(readEvent, (bytes: Buffer) => this.#read(bytes));
    socket.on("error", (error) => this.#handleLost(error));
    socket.on("end", () => this.#handleEnd());
    socket.on("close", () => this.#handleEnd());
  }

  send(caller: RequestCaller): void {
    this.#caller = caller;
    this.#reader = new ResponseReader(caller.request.method, caller);
    this.#mayBeStale = this.#isReused;
    this.#isReused = true;
    caller.onSent(this);
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
    if (!this.#isWaitingForTurn) this.#socket.resume();
  }

  /** Closes it at once. What runs on it fails with this error. */
  close(error: unknown): void {
    if (this.#isGone) return;
    this.#destroy()?.onFailure(error);
    this.#owner.onGone(this, null);
  }

  /** It has ended by itself. */
  #handleLost(error: unknown): void {
    this.#takeUnread();
    if (this.#isGone) return;
    if (!this.#mayBeStale) return this.close(error);
    this.#owner.onGone(this, this.#destroy());
  }

  /** Answers whose request ran on it. */
  #destroy(): RequestCaller | null {
    const caller = this.#caller;
    this.#isGone = true;
    this.#caller = null;
    this.#reader = null;
    this.#socket.destroy();
    return caller;
  }

  #write({ method, path, headers, body }: HttpRequest): void {
    let head = `${method} ${path} HTTP/1.1\r\nHost: ${this.#host}\r\nConnection: keep-alive\r\n`;
    for (let at = 0; at + 1 < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`;
    head += body.length > 0 || !bodilessMethods.has(method) ? `Content-Length: ${body.length}\r\n\r\n` : "\r\n";
    // As one text: it is copied once, on its way into the system, and leaves nothing behind for the garbage collector.
    if (body.length <= maxTextBytes) return void this.#socket.write(head + toLatin1Text(body), "latin1");
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /**
   * Connections that have much to read take turns: otherwise all of it would be read before anything else is done. A read of many small
   * pieces is taken in several turns.
   */
  #read(bytes: Buffer): void {
    // TLS hands over what it has decrypted although the socket is paused.
    if (this.#isWaitingForTurn || this.#unread.length > 0) this.#unread.push(Buffer.from(bytes));
    else if (bytes.length < smallReadBytes) this.#take(bytes);
    else this.#readSome(bytes, (rest) => Buffer.from(rest));
  }

  /** `kept`: makes what is left of the bytes one's own. */
  #readSome(bytes: Buffer, copy: (rest: Buffer) => Buffer): void {
    const account = this.#caller?.account ?? "";
    let taken = bytes.length;
    const elapsed = this.#longWork.timed(() => (taken = this.#take(bytes, maxPieces)));
    if (taken < bytes.length) this.#unread.unshift(copy(bytes.subarray(taken)));
    if (this.#isGone || this.#caller === null || (this.#unread.length === 0 && bytes.length < largeReadBytes)) return;
    this.#isWaitingForTurn = true;
    this.#socket.pause();
    this.#longWork.next(account, () => this.#continueReading(), elapsed);
  }

  #continueReading(): void {
    this.#isWaitingForTurn = false;
    if (this.#isGone) return;
    const [bytes] = this.#unread.splice(0, 1);
    if (bytes) this.#readSome(bytes, (rest) => rest);
    if (!this.#isWaitingForTurn && !this.#isPaused && !this.#isGone) this.#socket.resume();
  }

  /** Takes what was read and has not had its turn: the connection has ended. */
  #takeUnread(): void {
    for (const bytes of this.#unread.splice(0)) if (!this.#isGone) this.#take(bytes);
  }

  /** Returns how many of the bytes were taken. */
  #take(bytes: Buffer, maxPieces = Infinity): number {
    const reader = this.#reader;
    let taken = bytes.length;
    // What nobody asked for.
    if (reader === null) this.close(null);
    else {
      this.#mayBeStale = false;
      try {
        taken = reader.take(bytes, maxPieces);
      } catch (error) {
        this.close(error);
      }
      if (reader.isWhole && !this.#isGone) this.#finish(reader.reuse);
    }
    return taken;
  }

  #handleEnd(): void {
    this.#takeUnread();
    if (this.#isGone) return;
    if (this.#reader?.handleClose()) this.#finish(null);
    else this.#handleLost(new ConnectionLost());
  }

  #finish(reuse: ConnectionReuse): void {
    const caller = this.#caller;
    this.#caller = null;
    this.#reader = null;
    // When an answer comes before its request was taken, nobody will read the rest.
    if (reuse === null || this.#unread.length > 0 || this.#socket.writableLength > 0) this.close(null);
    caller?.onEnd();
    if (this.#isGone || reuse === null) return;
    this.resume();
    this.idleSeconds = reuse.seconds;
    this.#owner.onFree(this);
  }
}

/** They say nothing of a body that they do not have (RFC 9110, 8.6). */
const bodilessMethods: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

const maxTextBytes = 8 * 1024;

const toLatin1Text = (bytes: Bytes): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
