import type { Server } from "node:http";
import { STATUS_CODES, validateHeaderValue } from "node:http";
import type { Socket } from "node:net";
import type { Millis } from "../../core/model/message.ts";
import { findAddress } from "../http/address.ts";
import type { Begun, PacedSocket } from "../route/pipelining.ts";
import type { PlainHead } from "./parse.ts";
import { parsePlainHead } from "./parse.ts";

/**
 * What is answered to a plain request. `gone`: to be called as soon as the answer has left, or cannot any
 * more.
 */
export type PlainResponse = { status: number; headers: Readonly<Record<string, string>>; text: string; onSent?: () => void };

/** A plain request that was let in. If it is not answered after all, `leave` is called instead. */
export type AdmittedBody = { respond(body: Buffer): Promise<PlainResponse>; release(): void };

/**
 * Gives a connection to Node's parser. `isSilent`: it was connected long ago, and nothing has come over it.
 */
export type HandOver = (begun: Begun & { isSilent: boolean }) => void;

export type PlainService = {
  server: Server;
  /**
   * Lets a request in before its body is there. Null: it goes to Node's parser. A promise: this is to be
   * called again when it has resolved, and then answers at once. `callerIp`: the other end of its
   * connection.
   */
  admit(head: PlainHead, callerIp: string | null): AdmittedBody | null | Promise<unknown>;
  now(): Millis;
  /**
   * Rings whenever nothing has come or gone over a socket for so long, until it is silenced by calling what
   * it returns.
   */
  wakeWhenIdle(socket: Socket | PacedSocket, after: Millis, wake: () => void): () => void;
  /** Is called when the connection has ended or was handed over. */
  forget(socket: PlainSocket): void;
};

/**
 * A connection is kept for longer than its sender is told by this, so that none sends a request as it is
 * closed.
 */
const keepAliveMargin: Millis = 1_000;

/**
 * A body comes in no more pieces than this, or is given to the usual way, which knows how long it may take.
 */
const maxPieces = 4;

/** A request whose body has not come whole. `missing`: its bytes. */
type Incomplete = { head: PlainHead; admitted: AdmittedBody; pieces: Buffer[]; missing: number };

/** One connection, for as long as all that comes over it is plain. */
export class PlainSocket {
  readonly #socket: Socket;
  readonly #service: PlainService;
  readonly #giveAway: HandOver;
  readonly #callerIp: string | null;
  #pending: Incomplete | null = null;
  /** A request is looked at, or answered. */
  #isBusy = false;
  #isSecondTry = false;
  #hasEnded = false;
  /** Whether nothing has come over it yet. */
  #isSilent = true;
  #stopIdleTimer: () => void;
  readonly #onData = (bytes: Buffer): void => this.#read(bytes);
  readonly #onEnd = (): void => this.#handleEnd();
  readonly #onClose = (): void => this.#detach();

  constructor(socket: Socket, service: PlainService, handOver: HandOver) {
    this.#socket = socket;
    this.#service = service;
    this.#giveAway = handOver;
    this.#callerIp = findAddress(socket.remoteAddress);
    this.#stopIdleTimer = this.#ringAfter(service.server.headersTimeout);
    socket.on("data", this.#onData).on("end", this.#onEnd).on("close", this.#onClose);
    socket.on("error", destroy);
  }

  #ringAfter(time: Millis): () => void {
    return this.#service.wakeWhenIdle(this.#socket, time, () => this.#handleIdle());
  }

  closeIfIdle(): void {
    if (this.#pending === null && !this.#isBusy && this.#socket.readableLength === 0) this.#finish();
  }

  /** Nothing more is read; what was answered still leaves. */
  #finish(): void {
    this.#socket.pause().destroySoon();
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    const pending = this.#pending;
    if (this.#isSilent) this.#breakSilence();
    if (this.#isBusy) return this.#unread(bytes);
    if (pending === null) return this.#readHead(bytes);
    pending.pieces.push(bytes);
    pending.missing -= bytes.length;
    this.#readBody(pending);
  }

  #breakSilence(): void {
    this.#isSilent = false;
    this.#stopIdleTimer();
    this.#stopIdleTimer = this.#ringAfter(this.#service.server.keepAliveTimeout + keepAliveMargin);
  }

  /**
   * It comes once more when this goes on. Nothing behind it is heard of before, so that all of it can still
   * be given away.
   */
  #unread(bytes: Buffer): void {
    this.#socket.pause().unshift(bytes);
  }

  #readHead(bytes: Buffer): void {
    const head = parsePlainHead(bytes);
    const admitted = head && this.#service.admit(head, this.#callerIp);
    const isSecondTry = this.#isSecondTry;
    this.#isSecondTry = false;
    if (head === null || admitted === null) this.#handOver([bytes]);
    else if (!(admitted instanceof Promise))
      this.#readBody((this.#pending = { head, admitted, pieces: [bytes], missing: head.headBytes + head.length - bytes.length }));
    else if (isSecondTry) this.#handOver([bytes]);
    else {
      this.#isBusy = true;
      this.#unread(bytes);
      void admitted.then(() => this.#tryAgain());
    }
  }

  #tryAgain(): void {
    this.#isBusy = false;
    this.#isSecondTry = true;
    this.#socket.resume();
  }

  #readBody({ head, admitted, pieces, missing }: Incomplete): void {
    if (missing > 0 && pieces.length === maxPieces) return this.#handOver(pieces);
    if (missing > 0) return;
    const [first, ...others] = pieces;
    const bytes = first && others.length === 0 ? first : Buffer.concat(pieces);
    this.#pending = null;
    this.#isBusy = true;
    const end = head.headBytes + head.length;
    // The next one has its turn when this is answered.
    if (missing < 0) this.#unread(bytes.subarray(end));
    // A copy, so that what is kept of the request is its body alone.
    const response = admitted.respond(Buffer.from(bytes.subarray(head.headBytes, end)));
    void response.then((plainResponse) => this.#trySending(plainResponse, head)).catch(() => this.close());
  }

  #trySending(response: PlainResponse, head: PlainHead): void {
    try {
      this.#send(response, head);
    } catch (error) {
      response.onSent?.();
      throw error;
    }
  }

  #send({ status, headers, text, onSent }: PlainResponse, { keepsAlive }: PlainHead): void {
    const { server, now } = this.#service;
    // What came meanwhile is refused by a server that stops, and not left without an answer.
    const isLast = !keepsAlive || this.#hasEnded || !(server.listening || this.#socket.isPaused());
    const isFlushed = this.#write(this.#formatHead({ status, headers, text }, { isLast, now: now() }), text, onSent);
    this.#isBusy = false;
    if (isLast) this.#finish();
    else if (isFlushed) this.#resumeReading();
    // Whoever does not read what it is answered is not listened to.
    else this.#socket.pause().once("drain", () => this.#resumeReading());
  }

  /**
   * Reads the bytes at hand in another turn of the event loop, so that other connections are read in
   * between.
   */
  #resumeReading(): void {
    const socket = this.#socket;
    if (!socket.isPaused()) return;
    if (socket.readableLength > 0) setImmediate(() => socket.resume());
    else socket.resume();
  }

  #formatHead({ status, headers }: PlainResponse, { isLast, now }: { isLast: boolean; now: Millis }): string {
    const { keepAliveTimeout } = this.#service.server;
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n`;
    for (const [name, value] of Object.entries(headers)) {
      validateHeaderValue(name, value);
      head += `${name}: ${value}\r\n`;
    }
    const connectionHeaders = isLast
      ? "Connection: close"
      : `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(keepAliveTimeout / 1000)}`;
    return `${head}Date: ${formatDate(now)}\r\n${connectionHeaders}\r\n\r\n`;
  }

  /** Answers whether no more waits to be sent than should. */
  #write(head: string, text: string, gone: (() => void) | undefined): boolean {
    const socket = this.#socket;
    if (Buffer.byteLength(text) === text.length) return socket.write(head + text, "latin1", gone);
    return socket.write(Buffer.concat([Buffer.from(head, "latin1"), Buffer.from(text)]), gone);
  }

  /** The other side sends no more. */
  #handleEnd(): void {
    this.#hasEnded = true;
    // A body that breaks off is refused as any other.
    if (this.#pending) this.#handOver(this.#pending.pieces);
    else if (!this.#isBusy) this.#socket.end();
  }

  /** Nothing has come or gone for long. */
  #handleIdle(): void {
    if (this.#pending) this.#handOver(this.#pending.pieces);
    else if (this.#isSilent) this.#handOver([]);
    else if (!this.#isBusy) this.close();
  }

  #handOver(pieces: readonly Buffer[]): void {
    const socket = this.#socket;
    this.#detach();
    this.#stopIdleTimer();
    socket.pause();
    socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
    socket.off("error", destroy);
    this.#giveAway({ bytes: Buffer.concat(pieces), hasEnded: this.#hasEnded, isSilent: this.#isSilent });
  }

  #detach(): void {
    this.#service.forget(this);
    this.#pending?.admitted.release();
    this.#pending = null;
  }
}

function destroy(this: Socket): void {
  this.destroy();
}

let date = { second: Number.NaN, text: "" };

/** As a header says it. Made once a second. */
function formatDate(now: Millis): string {
  const second = Math.floor(now / 1000);
  if (second !== date.second) date = { second, text: new Date(second * 1000).toUTCString() };
  return date.text;
}
