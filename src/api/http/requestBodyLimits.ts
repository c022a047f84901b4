import { Transform } from "node:stream";
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { Refusal } from "../../engine/core/values/errors.ts";
import type { AccountId } from "../../engine/core/values/basics.ts";

/**
 * The maximum size of all request bodies in the server together, in bytes. A body counts until it is
 * answered.
 */
const defaultBodyBytes = 512 * 1024 * 1024;

/**
 * A body of at most this declared length takes room for all of it at once. Counting such a body as it arrives
 * would cost more than it saves.
 */
export const maxReservedBytes = 64 * 1024;

/**
 * Chunks below this size are copied into pieces of this size. A chunk that is kept as received takes 450
 * bytes more than its content.
 */
const pieceBytes = 16 * 1024;
/** The first piece of a body is smaller, because most bodies are small. */
const firstPieceBytes = 4 * 1024;
/**
 * If a body has more chunks than this, the chunks must have a minimum average size. Each chunk costs as much
 * time as a few hundred bytes.
 */
const uncheckedChunks = 10_000;
const minAverageBytes = 16;

/** The owner of bodies: an account, or "" for all requests without an account together. */
export type BodyOwner = AccountId;

/**
 * Limits the memory of request bodies in flight. Many large bodies at once, or a slow disk, must not bring
 * the server down.
 *
 * A body that finds no room is refused at once and may be sent again. A body takes room only for the bytes
 * that have arrived. The bodies of one owner may take at most as much room as remains free. The slow bodies
 * of one account therefore cannot keep out all other accounts.
 */
export class RequestBodyLimits {
  readonly #limit: number;
  #taken = 0;
  readonly #byOwner = new Map<BodyOwner, number>();

  constructor(limit = defaultBodyBytes) {
    this.#limit = limit;
  }

  /**
   * Takes room for a body. Returns a function that releases it; call it as soon as the body is gone. Throws
   * `Refusal` if there is no room.
   */
  reserve(owner: BodyOwner, bytes: number): () => void {
    this.#reserve(owner, bytes, 0);
    return () => this.#release(owner, bytes);
  }

  /**
   * Returns the body with its small chunks joined. The body takes room as it arrives. It fails with a
   * `Refusal` if there is no more room, or if its chunks have only a few bytes. Call `release` as soon as the
   * body is gone.
   */
  countBody(owner: BodyOwner, body: Readable): { body: Readable; release(): void } {
    let taken = 0;
    const reserve = (bytes: number): void => {
      this.#reserve(owner, bytes, taken);
      taken += bytes;
    };
    const pieces = new PieceBuffer(reserve);
    const counter = new Transform({
      transform: (chunk: Buffer, _encoding, pass) => {
        try {
          for (const piece of pieces.add(chunk)) counter.push(piece);
        } catch (error) {
          return pass(error instanceof Error ? error : new Error(String(error)));
        }
        pass();
      },
      flush: (pass) => pass(null, pieces.takeRest()),
    });
    // A pipe does not report a body that ends early.
    body.once("error", (error) => counter.destroy(error));
    return { body: body.pipe(counter), release: () => this.#release(owner, taken) };
  }

  /** `reservedBefore`: the bytes that the same body has taken already. */
  #reserve(owner: BodyOwner, bytes: number, reservedBefore: number): void {
    if (bytes === 0) return;
    const free = this.#limit - this.#taken;
    const reserved = this.#byOwner.get(owner) ?? 0;
    if (bytes > free) throw new Refusal("busy", "server at capacity for request bodies; retry later");
    if (reserved - reservedBefore + bytes > free)
      throw new Refusal("busy", "account at capacity for request bodies; retry later");
    this.#taken += bytes;
    this.#byOwner.set(owner, reserved + bytes);
  }

  #release(owner: BodyOwner, bytes: number): void {
    if (bytes === 0) return;
    const left = (this.#byOwner.get(owner) ?? 0) - bytes;
    this.#taken -= bytes;
    if (left > 0) this.#byOwner.set(owner, left);
    else this.#byOwner.delete(owner);
  }
}

/**
 * Joins small chunks. `reserve` is called with the number of bytes that are kept, and throws if there is no
 * room.
 */
class PieceBuffer {
  readonly #reserve: (bytes: number) => void;
  /** The first chunk as received, because most bodies have one chunk. */
  #first: Buffer | null = null;
  #piece: Buffer | null = null;
  #used = 0;
  #chunks = 0;
  #bytes = 0;

  constructor(reserve: (bytes: number) => void) {
    this.#reserve = reserve;
  }

  /**
   * Returns the complete pieces. Throws `Refusal` if there is no room, or if the chunks have only a few
   * bytes.
   */
  add(chunk: Buffer): Buffer[] {
    this.#bytes += chunk.length;
    if (++this.#chunks > uncheckedChunks && this.#bytes < this.#chunks * minAverageBytes)
      throw new Refusal(
        "invalid",
        "body: comes in chunks of a few bytes each; send larger chunks, or Content-Length",
      );
    if (this.#chunks > 1 && chunk.length < pieceBytes) return this.#copyAll(chunk);
    this.#reserve(chunk.length);
    const before = this.takeRest();
    if (chunk.length < pieceBytes) this.#first = chunk;
    return [...(before ? [before] : []), ...(this.#first ? [] : [chunk])];
  }

  /** Returns the piece that is not full, or null if there is none. */
  takeRest(): Buffer | null {
    const rest = this.#first ?? (this.#piece && this.#piece.subarray(0, this.#used));
    this.#first = null;
    this.#piece = null;
    return rest;
  }

  #copyAll(chunk: Buffer): Buffer[] {
    const first = this.#first;
    this.#first = null;
    return first ? [...this.#copy(first), ...this.#copy(chunk)] : this.#copy(chunk);
  }

  #copy(chunk: Buffer): Buffer[] {
    const full: Buffer[] = [];
    for (let from = 0; from < chunk.length;) {
      this.#piece ??= this.#startPiece();
      const copied = chunk.copy(this.#piece, this.#used, from);
      from += copied;
      this.#used += copied;
      if (this.#used < this.#piece.length) continue;
      full.push(this.#piece);
      this.#piece = null;
    }
    return full;
  }

  #startPiece(): Buffer {
    const bytes = this.#bytes <= firstPieceBytes ? firstPieceBytes : pieceBytes;
    this.#reserve(bytes);
    this.#used = 0;
    return Buffer.allocUnsafeSlow(bytes);
  }
}

/**
 * Returns the bytes of a body that take their room at once. Returns null for a large body or one of unknown
 * length, which is counted as it arrives.
 */
export function readReservedBytes(headers: {
  "content-length"?: string | undefined;
  "transfer-encoding"?: string | undefined;
}): number | null {
  if (headers["transfer-encoding"] !== undefined) return null;
  const declared = Number(headers["content-length"] ?? 0) || 0;
  return declared <= maxReservedBytes ? declared : null;
}

/**
 * Reports whether a large body, or one of unknown length, is still arriving. The connection of such a request
 * closes after a refusal. A small body is read, so that its connection stays open.
 */
export const isLargeBodyComing = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && readReservedBytes(headers) === null;
