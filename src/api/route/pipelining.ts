import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { Millis } from "../../engine/core/values/basics.ts";
import { type RefusedBodies, strangerBytes } from "./refusedBodies.ts";
import type { RouteContext } from "./route.ts";

/** How the reading of connections is paced: the queue of long work, timers, and what reads refused bodies. */
export type Pacing = Pick<RouteContext, "longWork" | "wakeAfter"> & { refusedBodies: RefusedBodies };

/**
 * A request of a connection, and the function that begins it in its turn. `request` is null for an action
 * after the last request.
 */
type PipelinedRequest = { request: IncomingMessage | null; begin(): void };

/** The unanswered requests of each connection, in order. The first one has its turn. */
const pendingBySocket = new WeakMap<Duplex, PipelinedRequest[]>();

function getPending(socket: Duplex): PipelinedRequest[] {
  const pending = pendingBySocket.get(socket) ?? [];
  pendingBySocket.set(socket, pending);
  return pending;
}

/**
 * Runs an action on a connection as soon as all earlier requests on it are answered. If the last of these
 * requests broke off, it is no longer answered.
 */
export function afterResponses(socket: Duplex, act: () => void): void {
  const pending = getPending(socket);
  if (pending.at(-1)?.request?.complete === false) pending.pop();
  if (pending.push({ request: null, begin: act }) === 1) act();
}

/**
 * Returns a listener that begins a request when all earlier requests on its connection are answered. This is
 * necessary because the end of a body and the next head may arrive in one piece.
 */
export function inTurn(listener: RequestListener): RequestListener {
  return (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    if (socket instanceof PacedSocket) socket.begin(request);
    const line = getPending(socket);
    const begin = (): void => {
      response.once("close", () => endTurn(line, socket));
      listener(request, response);
    };
    if (line.push({ request, begin }) === 1) begin();
  };
}

/**
 * Starts the next request when the first one is answered or its connection has ended. If more is waiting, the
 * next request begins in another turn of the event loop. Otherwise, requests that are answered at once could
 * follow each other without end, and no other connection would be read.
 */
function endTurn(pending: PipelinedRequest[], socket: Duplex): void {
  const startNext = (): void => {
    if (socket.destroyed) pending.length = 0;
    pending.shift();
    pending[0]?.begin();
    if (socket instanceof PacedSocket) socket.resumeReading();
  };
  if (pending.length > 1 || (socket instanceof PacedSocket && socket.hasUnread)) setImmediate(startNext);
  else startNext();
}

/** The end of the head of every request. These bytes may also occur in a body. */
const headEnd = "\r\n\r\n";

/**
 * The minimum length of a piece of a body, in bytes. Without it, a body full of `headEnd` would cost 100
 * times as much as other bodies.
 */
const minBodyPiece = 1024;

/**
 * The maximum number of lines in one piece of a chunked body. Node's parser takes 1 µs for each chunk, which
 * is two lines.
 */
const maxLines = 512;

/** Pieces of at least this many bytes are passed on when the connection has its turn. */
const largePiece = 16 * 1024;

/**
 * A body that arrives a few bytes at a time costs about 20 µs for each read. After `maxSmallReads` reads of
 * fewer than `smallReadBytes` bytes, the connection pauses before it reads on. The pause is 10 ms at first
 * and doubles each time, up to 1 s. During the pause the system joins the bytes that arrive.
 */
const smallReadBytes = 256;
const maxSmallReads = 16;
const minPause: Millis = 10;
const maxPause: Millis = 1_000;

/**
 * Bytes that another reader has read from a connection. `hasEnded` means that the end of the connection
 * followed them.
 */
export type Begun = { bytes: Buffer; hasEnded: boolean };

/**
 * A connection that passes its bytes on in pieces, each with about one request head, and passes on nothing
 * while a request is being answered. Without this, Node's parser would begin all requests that have arrived
 * and hold only their responses back. A few connections that never wait for a response would then
 * fill the memory.
 */
export class PacedSocket extends Duplex {
  readonly #socket: Socket;
  #unread: Buffer | null = null;
  /** The latest request. Its body may still be arriving when it is answered. */
  latest: IncomingMessage | null = null;
  /** The bytes that are read and dropped if the latest request is refused before its body has arrived. */
  droppedBytes = strangerBytes;
  /** The known sender of the latest request, or null. */
  sender: string | null = null;
  #isDropping = false;
  #isReadRequested = false;
  /** Whether a piece waits for its turn. */
  #isQueued = false;
  #hasEnded = false;
  #destroysAtEnd = false;
  /** Small reads of the latest body. */
  #smallReads = 0;
  /** Ends the pause after a small read. */
  #endPause: (() => void) | null = null;
  readonly #pacing: Pacing;

  constructor(socket: Socket, pacing: Pacing, begun: Begun | null = null) {
    super({ readableHighWaterMark: 0 });
    if (begun?.bytes.length) this.#unread = begun.bytes;
    this.#hasEnded = begun?.hasEnded ?? false;
    this.#socket = socket;
    this.#pacing = pacing;
    socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    socket.on("end", () => this.#end());
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy());
    socket.on("timeout", () => this.emit("timeout"));
    socket.pause();
  }

  /** Notes the request that begins. Nothing is known of its sender yet. */
  begin(request: IncomingMessage): void {
    this.latest = request;
    this.sender = null;
    this.droppedBytes = awaitsContinue(request) ? 0 : strangerBytes;
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  /**
   * Reads on while a response without an end is being sent, and destroys the connection when the client ends
   * it. Otherwise nothing is read until the response has ended. A next request that arrives ends this.
   */
  watchForEnd(): void {
    this.#destroysAtEnd = true;
    if (this.#hasEnded) this.destroy();
    else if (this.#unread === null) this.#socket.resume();
  }

  setTimeout(after: number): this {
    this.#socket.setTimeout(after);
    return this;
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.#isDropping || this.#dropBody()) return;
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  /** Reads and drops the rest of a body whose request has its response. Returns false if there is none. */
  #dropBody(): boolean {
    if (this.latest?.complete !== false || this.#hasEnded || this.#socket.destroyed) return false;
    const unreadBytes = this.#unread?.length ?? 0;
    this.#isDropping = this.#pacing.refusedBodies.drop({
      socket: this.#socket,
      sender: this.sender,
      maxBytes: this.droppedBytes - unreadBytes,
      end: () => this.destroy(),
    });
    if (!this.#isDropping) return false;
    this.#endPause?.();
    this.#unread = null;
    return true;
  }

  /** Reports whether bytes have arrived that were not passed on. */
  get hasUnread(): boolean {
    return this.#unread !== null;
  }

  /** Passes on more bytes after a request was answered, so that the next one gets its turn. */
  resumeReading(): void {
    this.#endPause?.();
    this.#endPause = null;
    if (this.#isReadRequested) this.#pushNext();
  }

  override _read(): void {
    this.#isReadRequested = true;
    this.#pushNext();
  }

  #receive(bytes: Buffer): void {
    if (this.#isDropping) return;
    this.#socket.pause();
    this.#unread = bytes;
    if (this.latest?.complete !== false) this.#smallReads = 0;
    else if (bytes.length < smallReadBytes && ++this.#smallReads > maxSmallReads) this.#pauseReading();
    this.#pushNext();
  }

  #pauseReading(): void {
    const pause = Math.min(maxPause, minPause * 2 ** (this.#smallReads - maxSmallReads - 1));
    this.#endPause?.();
    this.#endPause = this.#pacing.wakeAfter(pause, () => {
      this.#endPause = null;
      // All bytes that arrived during the pause are one read.
      if (this.#unread !== null || this.#socket.read() === null) this.#pushNext();
    });
  }

  #end(): void {
    this.#hasEnded = true;
    if (this.#destroysAtEnd) this.destroy();
    this.#pushNext();
  }

  /** Reports whether more bytes may be read: only those of the current request, and none of a later one. */
  #mayRead(): boolean {
    const [first, ...behind] = pendingBySocket.get(this) ?? [];
    return first === undefined || (behind.length === 0 && first.request?.complete === false);
  }

  #pushNext(): void {
    if (!this.#isReadRequested || this.#isQueued || this.#isDropping || !this.#mayRead()) return;
    const bytes = this.#unread;
    if (bytes === null) return this.#readMore();
    const { end, isLong } = this.#measurePiece(bytes);
    this.#unread = end < bytes.length ? bytes.subarray(end) : null;
    this.#isReadRequested = false;
    if (isLong) this.#pushInTurn(bytes.subarray(0, end));
    else this.push(bytes.subarray(0, end));
  }

  #readMore(): void {
    if (this.#hasEnded) this.push(null);
    else if (this.#endPause === null) this.#socket.resume();
  }

  #pushInTurn(piece: Buffer): void {
    this.#isQueued = true;
    this.#pacing.longWork.next(this.remoteAddress ?? "", () => {
      this.#isQueued = false;
      if (!this.destroyed) this.push(piece);
    });
  }

  /** Returns the end of the next piece, and whether the piece takes long to read. */
  #measurePiece(bytes: Buffer): { end: number; isLong: boolean } {
    const isBody = this.latest?.complete === false;
    const isInChunks = isBody && this.latest?.headers["transfer-encoding"] !== undefined;
    const limit = isInChunks ? findLinesEnd(bytes, maxLines) : bytes.length;
    const found = bytes.subarray(0, limit).indexOf(headEnd, isBody ? minBodyPiece : 0);
    if (found >= 0) return { end: found + headEnd.length, isLong: found >= largePiece };
    return { end: limit, isLong: limit < bytes.length || limit >= largePiece };
  }

  override _write(bytes: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#socket.write(bytes, encoding, done);
  }

  override _writev(
    chunks: { chunk: Buffer; encoding: BufferEncoding }[],
    done: (error?: Error | null) => void,
  ): void {
    this.#socket.cork();
    for (const [at, { chunk, encoding }] of chunks.entries())
      this.#socket.write(chunk, encoding, at === chunks.length - 1 ? done : undefined);
    this.#socket.uncork();
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#endPause?.();
    this.#socket.destroy();
    done(error);
  }
}

/** Reports whether the sender of a request waits for 100 Continue before it sends the body. */
export const awaitsContinue = ({ headers, httpVersion }: IncomingMessage): boolean =>
  httpVersion !== "1.0" && /\b100-continue\b/i.test(headers.expect ?? "");

/** Returns the end of the given number of lines, or the end of the bytes if there are fewer lines. */
function findLinesEnd(bytes: Buffer, lines: number): number {
  let end = 0;
  for (let line = 0; line < lines; line++) {
    const next = bytes.indexOf(lineFeed, end);
    if (next < 0) return bytes.length;
    end = next + 1;
  }
  return end;
}

const lineFeed = 0x0a;
