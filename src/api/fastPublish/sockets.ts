import type { Server } from "node:http";
import { STATUS_CODES, validateHeaderValue } from "node:http";
import type { Socket } from "node:net";
import type { Millis } from "../../core/model/message.ts";
import { addressIn } from "../http/address.ts";
import type { Begun, Piecemeal } from "../route/oneAtATime.ts";
import type { PlainHead } from "./parse.ts";
import { plainHead } from "./parse.ts";

/**
 * What is answered to a plain request. `gone`: to be called as soon as the answer has left, or cannot any
 * more.
 */
export type PlainAnswer = { status: number; headers: Readonly<Record<string, string>>; text: string; gone?: () => void };

/** A plain request that was let in. If it is not answered after all, `leave` is called instead. */
export type Admitted = { answer(body: Buffer): Promise<PlainAnswer>; leave(): void };

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
  admit(head: PlainHead, callerIp: string | null): Admitted | null | Promise<unknown>;
  now(): Millis;
  /**
   * Rings whenever nothing has come or gone over a socket for so long, until it is silenced by calling what
   * it returns.
   */
  idleAlarm(socket: Socket | Piecemeal, after: Millis, ring: () => void): () => void;
  /** Is called when the connection has ended or was handed over. */
  forget(socket: PlainSocket): void;
};

/**
 * A connection is kept for longer than its sender is told by this, so that none sends a request as it is
 * closed.
 */
const onItsWay: Millis = 1_000;

/**
 * A body comes in no more pieces than this, or is given to the usual way, which knows how long it may take.
 */
const mostPieces = 4;

/** A request whose body has not come whole. `missing`: its bytes. */
type Incomplete = { head: PlainHead; admitted: Admitted; pieces: Buffer[]; missing: number };

/** One connection, for as long as all that comes over it is plain. */
export class PlainSocket {
  readonly #socket: Socket;
  readonly #service: PlainService;
  readonly #giveAway: HandOver;
  readonly #callerIp: string | null;
  #begun: Incomplete | null = null;
  /** A request is looked at, or answered. */
  #isBusy = false;
  #isSecondTry = false;
  #hasEnded = false;
  /** Whether nothing has come over it yet. */
  #isSilent = true;
  #silence: () => void;
  readonly #onData = (bytes: Buffer): void => this.#read(bytes);
  readonly #onEnd = (): void => this.#end();
  readonly #onClose = (): void => this.#forget();

  constructor(socket: Socket, service: PlainService, handOver: HandOver) {
    this.#socket = socket;
    this.#service = service;
    this.#giveAway = handOver;
    this.#callerIp = addressIn(socket.remoteAddress);
    this.#silence = this.#ringAfter(service.server.headersTimeout);
    socket.on("data", this.#onData).on("end", this.#onEnd).on("close", this.#onClose);
    socket.on("error", destroy);
  }

  #ringAfter(time: Millis): () => void {
    return this.#service.idleAlarm(this.#socket, time, () => this.#rest());
  }

  closeIfIdle(): void {
    if (this.#begun === null && !this.#isBusy && this.#socket.readableLength === 0) this.#finish();
  }

  /** Nothing more is read; what was answered still leaves. */
  #finish(): void {
    this.#socket.pause().destroySoon();
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    const begun = this.#begun;
    if (this.#isSilent) this.#breakSilence();
    if (this.#isBusy) return this.#putBack(bytes);
    if (begun === null) return this.#begin(bytes);
    begun.pieces.push(bytes);
    begun.missing -= bytes.length;
    this.#goOn(begun);
  }

  #breakSilence(): void {
    this.#isSilent = false;
    this.#silence();
    this.#silence = this.#ringAfter(this.#service.server.keepAliveTimeout + onItsWay);
  }

  /**
   * It comes once more when this goes on. Nothing behind it is heard of before, so that all of it can still
   * be given away.
   */
  #putBack(bytes: Buffer): void {
    this.#socket.pause().unshift(bytes);
  }

  #begin(bytes: Buffer): void {
    const head = plainHead(bytes);
    const admitted = head && this.#service.admit(head, this.#callerIp);
    const isSecondTry = this.#isSecondTry;
    this.#isSecondTry = false;
    if (head === null || admitted === null) this.#handOver([bytes]);
    else if (!(admitted instanceof Promise))
      this.#goOn((this.#begun = { head, admitted, pieces: [bytes], missing: head.headBytes + head.length - bytes.length }));
    else if (isSecondTry) this.#handOver([bytes]);
    else {
      this.#isBusy = true;
      this.#putBack(bytes);
      void admitted.then(() => this.#tryAgain());
    }
  }

  #tryAgain(): void {
    this.#isBusy = false;
    this.#isSecondTry = true;
    this.#socket.resume();
  }

  #goOn({ head, admitted, pieces, missing }: Incomplete): void {
    if (missing > 0 && pieces.length === mostPieces) return this.#handOver(pieces);
    if (missing > 0) return;
    const [first, ...others] = pieces;
    const bytes = first && others.length === 0 ? first : Buffer.concat(pieces);
    this.#begun = null;
    this.#isBusy = true;
    const end = head.headBytes + head.length;
    // The next one has its turn when this is answered.
    if (missing < 0) this.#putBack(bytes.subarray(end));
    // A copy, so that what is kept of the request is its body alone.
    const answer = admitted.answer(Buffer.from(bytes.subarray(head.headBytes, end)));
    void answer.then((given) => this.#trySending(given, head)).catch(() => this.close());
  }

  #trySending(answer: PlainAnswer, head: PlainHead): void {
    try {
      this.#send(answer, head);
    } catch (error) {
      answer.gone?.();
      throw error;
    }
  }

  #send({ status, headers, text, gone }: PlainAnswer, { isKept }: PlainHead): void {
    const { server, now } = this.#service;
    // What came meanwhile is refused by a server that stops, and not left without an answer.
    const isLast = !isKept || this.#hasEnded || !(server.listening || this.#socket.isPaused());
    const hasGone = this.#write(this.#head({ status, headers, text }, { isLast, now: now() }), text, gone);
    this.#isBusy = false;
    if (isLast) this.#finish();
    else if (hasGone) this.#readOn();
    // Whoever does not read what it is answered is not listened to.
    else this.#socket.pause().once("drain", () => this.#readOn());
  }

  /**
   * Reads the bytes at hand in another turn of the event loop, so that other connections are read in
   * between.
   */
  #readOn(): void {
    const socket = this.#socket;
    if (!socket.isPaused()) return;
    if (socket.readableLength > 0) setImmediate(() => socket.resume());
    else socket.resume();
  }

  #head({ status, headers }: PlainAnswer, { isLast, now }: { isLast: boolean; now: Millis }): string {
    const { keepAliveTimeout } = this.#service.server;
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n`;
    for (const [name, value] of Object.entries(headers)) {
      validateHeaderValue(name, value);
      head += `${name}: ${value}\r\n`;
    }
    const keeping = isLast ? "Connection: close" : `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(keepAliveTimeout / 1000)}`;
    return `${head}Date: ${dateAt(now)}\r\n${keeping}\r\n\r\n`;
  }

  /** Answers whether no more waits to be sent than should. */
  #write(head: string, text: string, gone: (() => void) | undefined): boolean {
    const socket = this.#socket;
    if (Buffer.byteLength(text) === text.length) return socket.write(head + text, "latin1", gone);
    return socket.write(Buffer.concat([Buffer.from(head, "latin1"), Buffer.from(text)]), gone);
  }

  /** The other side sends no more. */
  #end(): void {
    this.#hasEnded = true;
    // A body that breaks off is refused as any other.
    if (this.#begun) this.#handOver(this.#begun.pieces);
    else if (!this.#isBusy) this.#socket.end();
  }

  /** Nothing has come or gone for long. */
  #rest(): void {
    if (this.#begun) this.#handOver(this.#begun.pieces);
    else if (this.#isSilent) this.#handOver([]);
    else if (!this.#isBusy) this.close();
  }

  #handOver(pieces: readonly Buffer[]): void {
    const socket = this.#socket;
    this.#forget();
    this.#silence();
    socket.pause();
    socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
    socket.off("error", destroy);
    this.#giveAway({ bytes: Buffer.concat(pieces), hasEnded: this.#hasEnded, isSilent: this.#isSilent });
  }

  #forget(): void {
    this.#service.forget(this);
    this.#begun?.admitted.leave();
    this.#begun = null;
  }
}

function destroy(this: Socket): void {
  this.destroy();
}

let date = { second: Number.NaN, text: "" };

/** As a header says it. Made once a second. */
function dateAt(now: Millis): string {
  const second = Math.floor(now / 1000);
  if (second !== date.second) date = { second, text: new Date(second * 1000).toUTCString() };
  return date.text;
}
