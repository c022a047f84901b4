import type { Server } from "node:http";
import { STATUS_CODES, validateHeaderValue } from "node:http";
import type { Socket } from "node:net";
import type { Millis } from "../../engine/core/values/basics.ts";
import { findAddress } from "../http/address.ts";
import type { Begun, PacedSocket } from "../route/pipelining.ts";
import type { PlainHead } from "./parse.ts";
import { parsePlainHead } from "./parse.ts";

/**
 * The response to a plain request. `onSent` is called when the response has been sent or can no longer be
 * sent.
 */
export type PlainResponse = {
  status: number;
  headers: Readonly<Record<string, string>>;
  text: string;
  onSent?: () => void;
};

/**
 * An admitted plain request. `release` is called instead of `respond` if the request is not answered.
 * `respond` calls `answered` once; with null if there is no response, so that the connection must be closed.
 */
export type AdmittedBody = {
  respond(body: Buffer, answered: (response: PlainResponse | null) => void): void;
  release(): void;
};

/**
 * Gives a connection to Node's parser. `isSilent`: it was opened `headersTimeout` ago, and nothing has
 * arrived on it.
 */
export type HandOver = (begun: Begun & { isSilent: boolean }) => void;

/** The server and the functions that a plain connection uses. */
export type PlainService = {
  server: Server;
  /**
   * Admits a request before its body has arrived. Returns null if Node's parser must read the request.
   * Returns a promise if the caller must wait for it and then call `admit` again; the second call decides at
   * once. `callerIp` is the other end of the connection.
   */
  admit(head: PlainHead, callerIp: string | null): AdmittedBody | null | Promise<unknown>;
  now(): Millis;
  /** Calls `wake` each time a socket was idle for `after`, until the returned function is called. */
  wakeWhenIdle(socket: Socket | PacedSocket, after: Millis, wake: () => void): () => void;
  /** Called when the connection has ended or was handed over. */
  forget(socket: PlainSocket): void;
};

/**
 * A connection stays open this much longer than its response headers announce, so that no request is sent
 * while it closes.
 */
const keepAliveMargin: Millis = 1_000;

/**
 * The maximum number of pieces of a body. A body in more pieces goes to Node's parser, which limits the time
 * that a body may take to arrive.
 */
const maxPieces = 4;

/** A request whose body is incomplete. `missing`: the bytes that have not arrived. */
type Incomplete = { head: PlainHead; admitted: AdmittedBody; pieces: Buffer[]; missing: number };

/** A connection on which all requests so far are plain. */
export class PlainSocket {
  readonly #socket: Socket;
  readonly #service: PlainService;
  readonly #giveAway: HandOver;
  readonly #callerIp: string | null;
  #pending: Incomplete | null = null;
  /** Whether a request is being looked up or answered. */
  #isBusy = false;
  #isSecondTry = false;
  #hasEnded = false;
  /** Whether nothing has arrived yet. */
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

  /** Stops reading. Responses that were written are still sent. */
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
   * Puts bytes back, so that they are read again later. Nothing more is read until then, so that all bytes
   * can still be handed over.
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
      this.#readBody(
        (this.#pending = {
          head,
          admitted,
          pieces: [bytes],
          missing: head.headBytes + head.length - bytes.length,
        }),
      );
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
    // The next request is read after this one has its response.
    if (missing < 0) this.#unread(bytes.subarray(end));
    // The body is copied, so that the rest of the request is not kept in memory.
    const body = Buffer.from(bytes.subarray(head.headBytes, end));
    admitted.respond(body, (response) => this.#trySending(response, head));
  }

  #trySending(response: PlainResponse | null, head: PlainHead): void {
    if (response === null) return this.close();
    try {
      this.#send(response, head);
    } catch {
      response.onSent?.();
      this.close();
    }
  }

  #send({ status, headers, text, onSent }: PlainResponse, { keepsAlive }: PlainHead): void {
    const { server, now } = this.#service;
    // A server that stops refuses requests that have arrived in the meantime, instead of leaving them
    // unanswered.
    const isLast = !keepsAlive || this.#hasEnded || !(server.listening || this.#socket.isPaused());
    const isFlushed = this.#write(
      this.#formatHead({ status, headers, text }, { isLast, now: now() }),
      text,
      onSent,
    );
    this.#isBusy = false;
    if (isLast) this.#finish();
    else if (isFlushed) this.#resumeReading();
    // Nothing is read from a client that does not read its responses.
    else this.#socket.pause().once("drain", () => this.#resumeReading());
  }

  /**
   * Reads the bytes that have already arrived in another turn of the event loop, so that other connections
   * are read in between.
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
    for (const name in headers) {
      const value = headers[name] ?? "";
      validateHeaderValue(name, value);
      head += `${name}: ${value}\r\n`;
    }
    const connectionHeaders = isLast
      ? "Connection: close"
      : `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(keepAliveTimeout / 1000)}`;
    return `${head}Date: ${formatDate(now)}\r\n${connectionHeaders}\r\n\r\n`;
  }

  /** Writes a response. Returns false if the write buffer of the socket is full. */
  #write(head: string, text: string, gone: (() => void) | undefined): boolean {
    const socket = this.#socket;
    if (Buffer.byteLength(text) === text.length) return socket.write(head + text, "latin1", gone);
    return socket.write(Buffer.concat([Buffer.from(head, "latin1"), Buffer.from(text)]), gone);
  }

  /** Handles the end of the connection: the other side sends no more. */
  #handleEnd(): void {
    this.#hasEnded = true;
    // Node's parser refuses a body that ends early.
    if (this.#pending) this.#handOver(this.#pending.pieces);
    else if (!this.#isBusy) this.#socket.end();
  }

  /** Handles a connection that was idle for its timeout. */
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

/** Returns a time as the header Date has it. The text is formatted at most once a second. */
function formatDate(now: Millis): string {
  const second = Math.floor(now / 1000);
  if (second !== date.second) date = { second, text: new Date(second * 1000).toUTCString() };
  return date.text;
}
