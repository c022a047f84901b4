import type { Socket } from "node:net";
import type { AccountId, HeaderList, Bytes } from "../../core/values/basics.ts";
import type { OpeningTiming } from "../../core/model/attempt.ts";
import type { LongWork } from "../../core/node/longWork.ts";
import { ResponseReader, type ConnectionReuse } from "./response.ts";

/**
 * A request as it is sent. `headers` has names and values in turn. All texts are latin1 and hold only what
 * HTTP allows (RFC 9110, 5). The bytes of `body` follow one another.
 */
export type HttpRequest = {
  method: string;
  path: string;
  headers: readonly string[];
  body: readonly Bytes[];
};

/** Receives the response to a request. Nothing is called after `onEnd` or `onFailure`. */
export type RequestCaller = {
  readonly request: HttpRequest;
  /** The account that the request belongs to. */
  readonly account?: AccountId;
  /**
   * Called when the request is sent. Closing the connection ends the request. Called again if the request is
   * resent over a new connection.
   */
  onSent(connection: HttpConnection): void;
  /** Called when the response begins. `length` is the announced length of its body, or null. */
  onResponse(status: number, fields: () => HeaderList, length: number | null): void;
  /** Called with a part of the body. The bytes are overwritten after it returns. */
  onBody(bytes: Buffer): void;
  onEnd(): void;
  onFailure(error: unknown): void;
  /**
   * Called before the request is resent over a new connection. If it returns false, the request fails
   * instead. Absent: the request is resent.
   */
  mayResend?(): boolean;
};

/** Thrown if the connection ended before the response was complete. */
export class ConnectionLost extends Error {}

/**
 * Learns when a connection may take another request, and when it is gone. `unanswered` is the caller whose
 * request must be resent over a new connection. A reused connection that ends before the first byte of a
 * response is not yet a failure, because the destination may have closed it before the request arrived. See
 * docs/decisions/0047.
 */
export type ConnectionOwner = {
  onFree(connection: HttpConnection): void;
  onGone(connection: HttpConnection, unanswered: RequestCaller | null): void;
};

/**
 * After a read of at least this many bytes, a connection waits for its turn before it reads more. Most
 * responses are smaller.
 */
const largeReadBytes = 16 * 1024;

/**
 * A read smaller than `smallReadBytes` is taken at once. A larger one is taken in turns of at
 * most `maxPieces` pieces of a body; a piece costs 0.1 µs.
 */
const smallReadBytes = 2 * 1024;
const maxPieces = 1_000;

/** The read buffer of all sockets. Sharing is safe, because each read is processed before the next one. */
const readBuffer = Buffer.allocUnsafeSlow(64 * 1024);

const readEvent = "waypost read";

/**
 * Options for opening the socket of an `HttpConnection`. The socket reports reads by its own event, without
 * allocating a buffer.
 */
export const socketReadOptions = {
  onread: {
    buffer: readBuffer,
    callback(this: Socket, count: number): boolean {
      this.emit(readEvent, readBuffer.subarray(0, count));
      return true;
    },
  },
};

/** Lets a socket that ignores `socketReadOptions` report its reads in the same way. */
export const reportReads = (socket: Socket): void =>
  void socket.on("data", (bytes: Buffer) => socket.emit(readEvent, bytes));

/**
 * Calls `take` for each read of a socket that was opened with `socketReadOptions`. Returns a function that
 * stops.
 */
export function onSocketRead(socket: Socket, take: (bytes: Buffer) => void): () => void {
  socket.on(readEvent, take);
  return () => void socket.off(readEvent, take);
}

type ConnectionOptions = {
  host: string;
  owner: ConnectionOwner;
  longWork: LongWork;
  opening?: OpeningTiming | null;
};

/**
 * One connection to a destination. It carries one request at a time, so that aborting an attempt does not
 * affect another. It speaks HTTP/1.1 without a library: a request and its response cost a third of what they
 * cost with undici (docs/decisions/0035).
 */
export class HttpConnection {
  /** The time for which the connection may still be idle, in seconds. */
  idleSeconds = 0;
  /** How long it took to open the connection, until its first request was sent. Null: not known. */
  opening: OpeningTiming | null;
  readonly #socket: Socket;
  readonly #host: string;
  readonly #owner: ConnectionOwner;
  #caller: RequestCaller | null = null;
  #reader: ResponseReader | null = null;
  #isGone = false;
  #isPaused = false;
  /** Whether the connection waits for its turn to read more. */
  #isWaitingForTurn = false;
  /** Bytes that have been read and wait for their turn. */
  readonly #unread: Buffer[] = [];
  readonly #longWork: LongWork;
  /** Whether the connection has carried a request before. */
  #isReused = false;
  /**
   * Whether the running request must be resent if the connection ends: the connection was reused, and no byte
   * of the response has arrived.
   */
  #mayBeStale = false;

  constructor(socket: Socket, { host, owner, longWork, opening = null }: ConnectionOptions) {
    this.#socket = socket;
    this.opening = opening;
    this.#host = host;
    this.#owner = owner;
    this.#longWork = longWork;
    onSocketRead(socket, (bytes) => this.#read(bytes));
    socket.on("error", (error) => this.#handleLost(error));
    socket.on("end", () => this.#handleEnd());
    socket.on("close", () => this.#handleEnd());
  }

  /** Sends a request. The connection must be free. */
  send(caller: RequestCaller): void {
    this.#caller = caller;
    this.#reader = new ResponseReader(caller.request.method, caller);
    this.#mayBeStale = this.#isReused;
    this.#isReused = true;
    caller.onSent(this);
    this.opening = null;
    if (this.#caller !== null) this.#write(caller.request);
  }

  /** Stops reading until `resume`, except for bytes that the socket has already received. */
  pause(): void {
    this.#socket.pause();
    this.#isPaused = true;
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (!this.#isWaitingForTurn) this.#socket.resume();
  }

  /** Closes the connection at once. Its running request fails with this error. */
  close(error: unknown): void {
    if (this.#isGone) return;
    this.#destroy()?.onFailure(error);
    this.#owner.onGone(this, null);
  }

  /** Handles the end of a connection that the other side closed or that broke. */
  #handleLost(error: unknown): void {
    this.#takeUnread();
    if (this.#isGone) return;
    if (!this.#mayBeStale) return this.close(error);
    this.#owner.onGone(this, this.#destroy());
  }

  /** Destroys the socket and returns the caller whose request was running. */
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
    let length = 0;
    for (const part of body) length += part.length;
    head += length > 0 || !bodilessMethods.has(method) ? `Content-Length: ${length}\r\n\r\n` : "\r\n";
    // One text is copied once, on its way into the system, and leaves no buffer for the garbage collector.
    if (length <= maxTextBytes) {
      for (const part of body) head += toLatin1Text(part);
      return void this.#socket.write(head, "latin1");
    }
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    for (const part of body) this.#socket.write(part);
    this.#socket.uncork();
  }

  /**
   * Takes the bytes that were read. Connections with much to read take turns, so that other work is done in
   * between. A read of many small pieces is taken in several turns.
   */
  #read(bytes: Buffer): void {
    // TLS delivers what it has decrypted even if the socket is paused.
    if (this.#isWaitingForTurn || this.#unread.length > 0) this.#unread.push(Buffer.from(bytes));
    else if (bytes.length < smallReadBytes) this.#take(bytes);
    else this.#readSome(bytes, (rest) => Buffer.from(rest));
  }

  /**
   * Takes some of the bytes and schedules a turn for the rest. `copy` copies the rest, so that it can be kept
   * until its turn.
   */
  #readSome(bytes: Buffer, copy: (rest: Buffer) => Buffer): void {
    const account = this.#caller?.account ?? "";
    let taken = bytes.length;
    const elapsed = this.#longWork.timed(() => (taken = this.#take(bytes, maxPieces)));
    if (taken < bytes.length) this.#unread.unshift(copy(bytes.subarray(taken)));
    if (this.#isGone || this.#caller === null || (this.#unread.length === 0 && bytes.length < largeReadBytes))
      return;
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

  /** Takes the bytes that wait for their turn, because the connection has ended. */
  #takeUnread(): void {
    for (const bytes of this.#unread.splice(0)) if (!this.#isGone) this.#take(bytes);
  }

  /** Returns how many of the bytes were taken. */
  #take(bytes: Buffer, maxPieces = Infinity): number {
    const reader = this.#reader;
    let taken = bytes.length;
    // Bytes arrived although no request is running, so the destination is not trusted with another request.
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
    // If the response ended before its request was written, the destination will not read the rest.
    if (reuse === null || this.#unread.length > 0 || this.#socket.writableLength > 0) this.close(null);
    caller?.onEnd();
    if (this.#isGone || reuse === null) return;
    this.resume();
    this.idleSeconds = reuse.seconds;
    this.#owner.onFree(this);
  }
}

/** Methods that send no Content-Length if they have no body (RFC 9110, 8.6). */
const bodilessMethods: ReadonlySet<string> = new Set([
  "GET",
  "HEAD",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "CONNECT",
]);

const maxTextBytes = 8 * 1024;

const toLatin1Text = (bytes: Bytes): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
