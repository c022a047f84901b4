import { createHash, type Hash } from "node:crypto";
import type { CarriedHistory } from "../../core/model/attempt.ts";
import type { MessageId } from "../../core/values/basics.ts";
import type { SentStep } from "../../core/model/run.ts";
import { formatHistoryEntry } from "../../core/model/run.ts";

/** The bytes of a history before it grows. Most histories are shorter. */
const firstBytes = 1_024;

/** The approximate memory of a history besides its bytes, and of the end of one entry. */
const objectBytes = { history: 1_200, entry: 8 } as const;

const closing: Uint8Array = Buffer.from("]");

/**
 * The history of one run as it is sent to its endpoint. It is only added to, and bytes that were added never
 * change. Deliveries that are being sent therefore share them, and each entry is encoded and hashed once.
 */
export class SentHistory {
  #bytes = noBuffer;
  #length = 0;
  /** The length of the history with each entry, without the closing bracket. */
  readonly #ends: number[] = [];
  #firstMessage: MessageId | null = null;
  #hash: Hash | null = null;
  /** The number of bytes that `#hash` has received. */
  #hashed = 0;

  /** The number of entries. The position of the next entry equals it. */
  get count(): number {
    return this.#ends.length;
  }

  /** The message of the first entry, or null if there are no entries. */
  get firstMessage(): MessageId | null {
    return this.#firstMessage;
  }

  /** The bytes of the history as it is sent. */
  get byteLength(): number {
    return this.#length + closing.length;
  }

  /** The approximate memory of the history in bytes. */
  get memory(): number {
    return this.#bytes.length + this.#ends.length * objectBytes.entry + objectBytes.history;
  }

  /** Adds steps, which are in order. Skips those that it has, and stops at a gap. */
  append(steps: readonly SentStep[]): void {
    for (const step of steps) {
      if (step.position < this.count) continue;
      if (step.position > this.count) return;
      this.#firstMessage ??= step.messageId;
      // Entries contain only ASCII, so characters are bytes.
      const entry = (this.count === 0 ? "[" : ",") + formatHistoryEntry(step);
      this.#reserve(this.#length + entry.length);
      this.#length += this.#bytes.write(entry, this.#length, "latin1");
      this.#ends.push(this.#length);
    }
  }

  /** Returns the history up to and including a position, or undefined if it has no such entry. */
  upTo(position: number): CarriedHistory | undefined {
    const end = this.#ends[position];
    if (end === undefined) return undefined;
    const bytes = this.#bytes.subarray(0, end);
    return {
      parts: [bytes, closing],
      byteLength: end + closing.length,
      hash: () => this.#startedHash(bytes).update(closing).digest("base64url"),
    };
  }

  /** Returns a hash that has received these first bytes of the history. */
  #startedHash(bytes: Uint8Array): Hash {
    if (this.#hashed > bytes.length) return createHash("sha256").update(bytes);
    this.#hash ??= createHash("sha256");
    this.#hash.update(bytes.subarray(this.#hashed));
    this.#hashed = bytes.length;
    return this.#hash.copy();
  }

  /**
   * Makes room for this many bytes. Bytes that are being sent stay where they are. The buffer does not come
   * from Node's pool, because each small part of a pool keeps 64 KiB from being freed.
   */
  #reserve(length: number): void {
    if (length <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(firstBytes, length, 2 * this.#bytes.length));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}

const noBuffer = Buffer.alloc(0);
