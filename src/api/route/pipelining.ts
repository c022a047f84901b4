import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { RouteContext } from "./route.ts";

export type Pacing = Pick<RouteContext, "longWork" | "wakeAfter">;

/** A request of a connection, and what begins with its turn. Null: what comes behind its last one. */
type PipelinedRequest = { request: IncomingMessage | null; begin(): void };

/** What was asked on a connection and is not answered. The first has its turn. */
const pendingBySocket = new WeakMap<Duplex, PipelinedRequest[]>();

function getPending(socket: Duplex): PipelinedRequest[] {
  const pending = pendingBySocket.get(socket) ?? [];
  pendingBySocket.set(socket, pending);
  return pending;
}

/**
 * Does something on a connection as soon as all that was asked on it before is answered; what broke off is
 * not answered any more.
 */
export function afterResponses(socket: Duplex, act: () => void): void {
  const pending = getPending(socket);
  if (pending.at(-1)?.request?.complete === false) pending.pop();
  if (pending.push({ request: null, begin: act }) === 1) act();
}

/**
 * Returns a listener that begins a request when those that came before it on its connection are answered:
 * the end of a body and the next head may be one piece.
 */
export function inTurn(listener: RequestListener): RequestListener {
  return (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    if (socket instanceof PacedSocket) socket.latest = request;
    const line = getPending(socket);
    const begin = (): void => {
      response.once("close", () => endTurn(line, socket));
      listener(request, response);
    };
    if (line.push({ request, begin }) === 1) begin();
  };
}

/**
 * The first of the line is answered, or its connection has ended. The next one begins in another turn of
 * the event loop: requests that are answered at once would otherwise follow each other without an end, and
 * no other connection would be read.
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

/** What ends the head of every request. It may be in a body as well. */
const headEnd = "\r\n\r\n";

/**
 * A piece of a body is not cut to less than this, or a body full of what ends a head would cost a hundred
 * times what it should.
 */
const minBodyPiece = 1024;

/**
 * A piece of a body in chunks has at most so many lines: Node's parser takes a microsecond for each chunk,
 * which is two lines.
 */
const maxLines = 512;

/** A piece of so many bytes is given on when the connection has its turn. */
const largePiece = 16 * 1024;

/**
 * A body whose bytes come a few at a time costs some 20 µs for each read. After so many small reads the
 * connection rests before it reads on: 10 ms at first, twice as long each time, up to a second. Meanwhile
 * the system puts together what arrives.
 */
const smallReadBytes = 256;
const maxSmallReads = 16;
const [minPause, maxPause] = [10, 1_000] as const;

/** What somebody else has read from a connection. `hasEnded`: its end came behind that. */
export type Begun = { bytes: Buffer; hasEnded: boolean };

/**
 * A connection whose bytes are given on in pieces with the head of hardly more than one request, and
 * nothing while one is answered. Node's parser by itself reads and begins all requests that have come,
 * whoever sends them, and only their answers wait for each other: a few connections that never wait for an
 * answer would fill the memory.
 */
export class PacedSocket extends Duplex {
  readonly #socket: Socket;
  #unread: Buffer | null = null;
  /** The request that came last. Its body may still be on its way when it is answered. */
  latest: IncomingMessage | null = null;
  #isReadRequested = false;
  /** Whether a piece waits for its turn. */
  #isQueued = false;
  #hasEnded = false;
  /** Small reads of the body that came last. */
  #smallReads = 0;
  /** Ends the rest after a small read. */
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

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  setTimeout(after: number): this {
    this.#socket.setTimeout(after);
    return this;
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  /** Reports whether bytes have come that were not given on. */
  get hasUnread(): boolean {
    return this.#unread !== null;
  }

  /** A request was answered, so that the next one has its turn. */
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
      // All that has come meanwhile is one read.
      if (this.#unread !== null || this.#socket.read() === null) this.#pushNext();
    });
  }

  #end(): void {
    this.#hasEnded = true;
    this.#pushNext();
  }

  /** Nothing behind the request that has its turn; of that, what has not come yet. */
  #mayRead(): boolean {
    const [first, ...behind] = pendingBySocket.get(this) ?? [];
    return first === undefined || (behind.length === 0 && first.request?.complete === false);
  }

  #pushNext(): void {
    if (!this.#isReadRequested || this.#isQueued || !this.#mayRead()) return;
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

  /** Where the next piece ends, and whether it takes long to read. */
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

  override _writev(chunks: { chunk: Buffer; encoding: BufferEncoding }[], done: (error?: Error | null) => void): void {
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

/** Returns where the last of so many lines ends, or the end of the bytes if there are fewer. */
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
