import { Transform } from "node:stream";
import type { Readable } from "node:stream";
import { Refusal } from "../../core/values/errors.ts";
import type { AccountId } from "../../core/model/message.ts";

/** How many bytes of request bodies may be in the server at once, until they are answered. */
const defaultBodyBytes = 512 * 1024 * 1024;

/** A body that says it is no longer than this takes its room at once: counting it on its way would cost more than it keeps. */
export const maxReservedBytes = 64 * 1024;

/** Chunks that are smaller are copied into pieces of this size: a chunk that is kept as it came costs 450 bytes more than it has. */
const pieceBytes = 16 * 1024;
/** The first piece of a body is smaller, as most bodies are. */
const firstPieceBytes = 4 * 1024;
/** Of so many chunks of a body on, they must have so many bytes on the average: each costs the time of a few hundred bytes. */
const uncheckedChunks = 10_000;
const minAverageBytes = 16;

/** Whose bodies they are: an account; or "", all together who are none and may send any. */
export type BodyOwner = AccountId;

/**
 * Keeps the bodies of requests that are under way within the memory there is: many large ones at once, or a disk that
 * has become slow, must not be able to bring the server down. What finds no room is refused at once, and may come again.
 * Who announces much and sends little holds little; and whoever has bodies under way takes no more room for others than is left
 * besides, so that the slow ones of one account do not keep all others out.
 */
export class RequestBodyLimits {
  readonly #limit: number;
  #taken = 0;
  readonly #byOwner = new Map<BodyOwner, number>();

  constructor(limit = defaultBodyBytes) {
    this.#limit = limit;
  }

  /** Takes room for a body of so many bytes. Answers what is to be called as soon as the body is gone. Throws a `Refusal` when there is none. */
  reserve(owner: BodyOwner, bytes: number): () => void {
    this.#reserve(owner, bytes, 0);
    return () => this.#release(owner, bytes);
  }

  /**
   * The body, which takes room as it arrives, in pieces that are not small. It fails with a `Refusal` when there is no more room, or when it
   * comes in chunks of a few bytes. `give` is to be called as soon as it is gone.
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
    // A pipe does not tell of a body that breaks off.
    body.once("error", (error) => counter.destroy(error));
    return { body: body.pipe(counter), release: () => this.#release(owner, taken) };
  }

  /** `before`: what the same body has taken already. */
  #reserve(owner: BodyOwner, bytes: number, reservedBefore: number): void {
    if (bytes === 0) return;
    const free = this.#limit - this.#taken;
    const reserved = this.#byOwner.get(owner) ?? 0;
    if (bytes > free) throw new Refusal("busy", "the server has as many request bodies under way as it can hold; ask again");
    if (reserved - reservedBefore + bytes > free)
      throw new Refusal("busy", "the account has as many request bodies under way as the server can hold for one; ask again");
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

/** Puts small chunks together. `take` is called with the bytes of whatever is kept, and throws if there is no room. */
class PieceBuffer {
  readonly #reserve: (bytes: number) => void;
  /** The first chunk as it came: most bodies have one. */
  #first: Buffer | null = null;
  #piece: Buffer | null = null;
  #used = 0;
  #chunks = 0;
  #bytes = 0;

  constructor(reserve: (bytes: number) => void) {
    this.#reserve = reserve;
  }

  /** Returns what is complete. Throws `Refusal`: no room, or chunks of a few bytes. */
  add(chunk: Buffer): Buffer[] {
    this.#bytes += chunk.length;
    if (++this.#chunks > uncheckedChunks && this.#bytes < this.#chunks * minAverageBytes)
      throw new Refusal("invalid", "body: comes in chunks of a few bytes each; send larger chunks, or Content-Length");
    if (this.#chunks > 1 && chunk.length < pieceBytes) return this.#copyAll(chunk);
    this.#reserve(chunk.length);
    const before = this.takeRest();
    if (chunk.length < pieceBytes) this.#first = chunk;
    return [...(before ? [before] : []), ...(this.#first ? [] : [chunk])];
  }

  /** Returns the piece that is not full. Null: there is none. */
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

/** The bytes of a body that take their room at once. Null: it is large, or does not say, and is counted as it arrives. */
export function readReservedBytes(headers: {
  "content-length"?: string | undefined;
  "transfer-encoding"?: string | undefined;
}): number | null {
  if (headers["transfer-encoding"] !== undefined) return null;
  const declared = Number(headers["content-length"] ?? 0) || 0;
  return declared <= maxReservedBytes ? declared : null;
}
