import type { Hands } from "../core/hands.ts";
import type { Bytes, Delivery } from "../core/message.ts";
import type { BatchResult, Call } from "./store.ts";

/**
 * How a batch crosses to the storage thread and back: one text and one piece of bytes for all of it. The structured
 * clone of so many small objects and buffers costs four times as much.
 */
export type Parcel = { text: string; bytes: Bytes };

/** Everything but the bodies goes into the text; a body leaves its length there. */
class Packer {
  readonly #bodies: Bytes[] = [];
  #length = 0;

  leave(body: Bytes): number {
    this.#bodies.push(body);
    this.#length += body.byteLength;
    return body.byteLength;
  }

  bytes(): Bytes {
    const bytes = new Uint8Array(this.#length);
    let at = 0;
    for (const body of this.#bodies) {
      bytes.set(body, at);
      at += body.byteLength;
    }
    return bytes;
  }
}

/** A body that may outlive its batch must not keep a large one in memory. */
const sharedBytes = 64 * 1024;

/** Gives the bodies back in the order in which they were left. */
class Unpacker {
  readonly #bytes: Bytes;
  #at = 0;

  constructor(bytes: Bytes) {
    this.#bytes = bytes;
  }

  take(length: number): Bytes {
    const [start, end] = [this.#at, (this.#at += length)];
    return this.#bytes.byteLength > sharedBytes ? this.#bytes.slice(start, end) : this.#bytes.subarray(start, end);
  }
}

type WithBody<T> = { body: T };
type Lifted = { name: Call["name"]; letters?: WithBody<number>[]; outcome?: WithBody<number>; input?: object };

export function packBatch(calls: readonly Call[], hands: Hands): Parcel {
  const packer = new Packer();
  const lifted = calls.map(({ name, input }) => lift(name, input, packer));
  return { text: JSON.stringify({ calls: lifted, hands: { ...hands, busy: [...hands.busy] } }), bytes: packer.bytes() };
}

function lift(name: Call["name"], input: unknown, packer: Packer): Lifted {
  if (typeof input !== "object" || input === null) return { name };
  if ("letters" in input && Array.isArray(input.letters)) {
    const { letters, ...rest } = input;
    return { name, input: rest, letters: letters.map((letter: WithBody<Bytes>) => ({ ...letter, body: packer.leave(letter.body) })) };
  }
  if ("body" in input && input.body instanceof Uint8Array) return { name, outcome: { ...input, body: packer.leave(input.body) } };
  return { name, input };
}

export function unpackBatch({ text, bytes }: Parcel): { calls: Call[]; hands: Hands } {
  const unpacker = new Unpacker(bytes);
  const { calls, hands } = JSON.parse(text) as { calls: Lifted[]; hands: Omit<Hands, "busy"> & { busy: [string, number][] } };
  return { calls: calls.map((call) => lower(call, unpacker)), hands: { ...hands, busy: new Map(hands.busy) } };
}

function lower({ name, input, letters, outcome }: Lifted, unpacker: Unpacker): Call {
  if (letters) return { name, input: { ...input, letters: letters.map((letter) => ({ ...letter, body: unpacker.take(letter.body) })) } };
  if (outcome) return { name, input: { ...outcome, body: unpacker.take(outcome.body) } };
  return { name, input };
}

export function packResult({ deliveries, ...rest }: BatchResult): Parcel {
  const packer = new Packer();
  const lifted = deliveries.map(({ message, ...delivery }) => ({ ...delivery, message: { ...message, body: packer.leave(message.body) } }));
  return { text: JSON.stringify({ ...rest, deliveries: lifted }), bytes: packer.bytes() };
}

type LiftedResult = Omit<BatchResult, "deliveries"> & { deliveries: (Omit<Delivery, "message"> & { message: WithBody<number> })[] };

export function unpackResult({ text, bytes }: Parcel): BatchResult {
  const unpacker = new Unpacker(bytes);
  const { deliveries, ...rest } = JSON.parse(text) as LiftedResult;
  const lowered = deliveries.map(({ message, ...delivery }) => ({
    ...delivery,
    message: { ...message, body: unpacker.take(message.body) },
  }));
  return { ...rest, deliveries: lowered as unknown as Delivery[] };
}
