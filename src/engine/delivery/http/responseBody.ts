import { smallResponse } from "../../core/node/responseRoom.ts";
import { type Bytes, noBytes } from "../../core/values/basics.ts";
import type { ArrivingBody, ResponseRoom } from "./bodyBytes.ts";

/** The size of the pieces of a body whose length is unknown. */
const pieceBytes = 64 * 1024;

/**
 * Returns memory that is not filled with zeros, which would take 1 ms per MiB. Every byte is written before
 * it is read.
 */
const allocate = (bytes: number): Uint8Array => new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);

/** How much of a body is read, and where its memory comes from. */
export type ResponseBodyOptions = {
  room: ResponseRoom;
  /** The length that the destination announced, or null. */
  length: number | null;
  /** Bytes that are always read, if necessary after a pause. */
  keptBytes: number;
  /** Bytes that are read if there is room for them at once. */
  maxBytes: number;
  /** Stops reading from the destination until `resume`. */
  pause(): void;
  resume(): void;
  /** Ends the attempt, because the body arrives too slowly while others wait for memory. */
  stall(): void;
};

/**
 * The body of one response. A small body takes its memory as it arrives. Before more is read, the body waits
 * for room for its announced length, or for its maximum length. It takes that room as a whole, so that two
 * bodies never wait for each other. While others wait, it must then arrive without a long pause. Bytes that
 * have arrived are accepted up to `keptBytes`, even if there is no room for them.
 */
export class ResponseBody implements ArrivingBody {
  readonly #options: ResponseBodyOptions;
  readonly #expected: number;
  readonly #pieces: Uint8Array[] = [];
  /** The last piece. `#usedInLast` is how many of its bytes are used. */
  #lastPiece: Uint8Array = noBytes;
  #usedInLast = 0;
  #size = 0;
  /** Bytes of memory that the body has taken. */
  #taken = 0;
  #stopWaiting: (() => void) | null = null;

  constructor(options: ResponseBodyOptions) {
    this.#options = options;
    this.#expected = Math.min(options.length ?? options.maxBytes, options.maxBytes);
    options.room.watch(this);
  }

  get size(): number {
    return this.#size;
  }

  /** Whether reading is paused for lack of memory. */
  get isWaiting(): boolean {
    return this.#stopWaiting !== null;
  }

  stall(): void {
    this.#options.stall();
  }

  /** Adds bytes and returns how many were accepted. If fewer than given, the body ends there. */
  add(bytes: Uint8Array): number {
    const { keptBytes } = this.#options;
    const end = Math.min(this.#size + bytes.length, this.#expected);
    const taken =
      (end <= keptBytes || this.#tryTakeAll() ? end : Math.max(keptBytes, this.#size)) - this.#size;
    this.#ensureRoom(this.#size + taken);
    this.#append(bytes.subarray(0, taken));
    return taken;
  }

  /** Returns the whole body in memory of exactly its size. Everything else is released. */
  finish(): Bytes {
    this.#release();
    const [first] = this.#pieces;
    let whole: Uint8Array = noBytes;
    if (first?.length === this.#size) whole = first;
    else if (this.#size > 0) {
      whole = allocate(this.#size);
      let at = 0;
      for (const piece of this.#pieces) {
        const some = piece.subarray(0, Math.min(piece.length, this.#size - at));
        whole.set(some, at);
        at += some.length;
      }
    }
    this.#pieces.length = 0;
    this.#options.room.shrinkTo(this.#size);
    return whole;
  }

  /** Discards the body and releases its memory. */
  drop(): void {
    this.#release();
    this.#pieces.length = 0;
    this.#options.room.shrinkTo(0);
  }

  #release(): void {
    this.#options.room.watch(null);
    this.#stopWaiting?.();
    this.#stopWaiting = null;
  }

  /** Tries to take memory for all bytes that the body may have. Returns whether it has them. */
  #tryTakeAll(): boolean {
    if (this.#taken >= this.#expected) return true;
    if (!this.#options.room.take(this.#expected - this.#taken)) return false;
    this.#stopWaiting?.();
    this.#handleGranted(this.#expected - this.#taken);
    return true;
  }

  #ensureRoom(bytes: number): void {
    const { room, keptBytes, pause } = this.#options;
    if (this.#taken === 0) this.#addTaken(Math.min(this.#expected, smallResponse));
    if (bytes <= this.#taken) return;
    if (this.#expected > keptBytes && this.#stopWaiting === null && this.#tryTakeAll()) return;
    this.#addTaken(bytes - this.#taken);
    const missingBytes = Math.min(this.#expected, keptBytes) - this.#taken;
    if (this.#stopWaiting !== null || missingBytes <= 0) return;
    let isTaken = false;
    const stop = room.wait(missingBytes, () => {
      isTaken = true;
      this.#handleGranted(missingBytes);
    });
    if (isTaken) return;
    this.#stopWaiting = stop;
    pause();
  }

  #addTaken(bytes: number): void {
    this.#options.room.add(bytes);
    this.#taken += bytes;
  }

  #handleGranted(bytes: number): void {
    this.#taken += bytes;
    if (this.#stopWaiting === null) return;
    this.#stopWaiting = null;
    this.#options.resume();
  }

  #append(bytes: Uint8Array): void {
    for (let from = 0; from < bytes.length;) {
      if (this.#usedInLast === this.#lastPiece.length) this.#beginPiece(bytes.length - from);
      const some = bytes.subarray(from, from + this.#lastPiece.length - this.#usedInLast);
      this.#lastPiece.set(some, this.#usedInLast);
      this.#usedInLast += some.length;
      this.#size += some.length;
      from += some.length;
    }
  }

  /**
   * Starts a new piece. If the length of the body is known, it gets a single piece as soon as it has room.
   * The first piece of any other body is as large as the bytes that have arrived.
   */
  #beginPiece(coming: number): void {
    const left = this.#expected - this.#size;
    const isWhole = this.#options.length !== null && this.#taken >= this.#expected;
    const pieceSize =
      this.#size === 0 ? coming : Math.max(coming, this.#taken > smallResponse ? pieceBytes : smallResponse);
    this.#lastPiece = allocate(isWhole ? left : Math.min(left, pieceSize));
    this.#usedInLast = 0;
    this.#pieces.push(this.#lastPiece);
  }
}
