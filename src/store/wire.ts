import type { Hands } from "../core/hands.ts";
import type { Bytes, Delivery, Envelope, Letter } from "../core/message.ts";
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
  const all = calls.map(({ name, input }) => lift(name, input, packer));
  return { text: JSON.stringify({ calls: all, hands: { ...hands, busy: [...hands.busy] } }), bytes: packer.bytes() };
}

function lift(name: Call["name"], input: unknown, packer: Packer): Lifted {
  if (typeof input !== "object" || input === null) return { name };
  if ("letters" in input && Array.isArray(input.letters)) {
    const { letters, ...rest } = input;
    return { name, input: rest, letters: letters.map((letter: WithBody<Bytes>) => lifted(letter, packer)) };
  }
  if ("body" in input && input.body instanceof Uint8Array) return { name, outcome: { ...input, body: packer.leave(input.body) } };
  return { name, input };
}

/** Spread out, because `Object.assign` takes several times as long for so many fields. */
const lifted = (one: WithBody<Bytes>, packer: Packer): WithBody<number> => ({ ...one, body: packer.leave(one.body) });

export function unpackBatch({ text, bytes }: Parcel): { calls: Call[]; hands: Hands } {
  const unpacker = new Unpacker(bytes);
  const { calls, hands } = JSON.parse(text) as { calls: Lifted[]; hands: Omit<Hands, "busy"> & { busy: [string, number][] } };
  return { calls: calls.map((call) => lower(call, unpacker)), hands: { ...hands, busy: new Map(hands.busy) } };
}

function lower({ name, input, letters, outcome }: Lifted, unpacker: Unpacker): Call {
  if (letters)
    return { name, input: { ...input, letters: letters.map((letter) => Object.assign(letter, { body: unpacker.take(letter.body) })) } };
  if (outcome) return { name, input: { ...outcome, body: unpacker.take(outcome.body) } };
  return { name, input };
}

/** Where the letter stands that a delivery was made of: the number of its call, and its number there. */
type Origin = readonly [call: number, letter: number];
type LiftedDelivery = Omit<Delivery, "message"> & ({ message: WithBody<number> } | { of: Origin; message: Partial<Envelope> });
type LiftedResult = Omit<BatchResult, "deliveries"> & { deliveries: LiftedDelivery[] };

/** What came of `calls`. A message that goes out at once is mostly the letter it came in as, which the other side still has. */
export function packResult({ deliveries, ...rest }: BatchResult, calls: readonly Call[]): Parcel {
  const packer = new Packer();
  const origins = deliveries.length === 0 ? new Map<Bytes, Origin>() : originsOf(calls);
  const all = deliveries.map(({ message, ...delivery }): LiftedDelivery => {
    const of = origins.get(message.body);
    if (!of) return Object.assign(delivery, { message: lifted(message, packer) });
    return Object.assign(delivery, { of, message: difference(message, letterAt(calls, of)) });
  });
  return { text: JSON.stringify({ ...rest, deliveries: all }), bytes: packer.bytes() };
}

/** A body is handed on as it is, so it tells of which letter a message was made. */
function originsOf(calls: readonly Call[]): Map<Bytes, Origin> {
  const origins = new Map<Bytes, Origin>();
  calls.forEach(({ input }, call) => lettersOf(input).forEach(({ body }, letter) => origins.set(body, [call, letter])));
  return origins;
}

const lettersOf = (input: unknown): readonly Letter[] =>
  typeof input === "object" && input !== null && "letters" in input && Array.isArray(input.letters) ? (input.letters as Letter[]) : [];

function letterAt(calls: readonly Call[], [call, letter]: Origin): Letter {
  const found = lettersOf(calls[call]?.input)[letter];
  if (!found) throw new Error(`call ${call} has no letter ${letter}`);
  return found;
}

function difference(message: Envelope, letter: Letter): Partial<Envelope> {
  const own: Record<string, unknown> = {};
  const [ours, theirs]: Readonly<Record<string, unknown>>[] = [message, letter];
  for (const name in ours) if (ours[name] !== theirs?.[name]) own[name] = ours[name];
  return own;
}

export function unpackResult({ text, bytes }: Parcel, calls: readonly Call[]): BatchResult {
  const unpacker = new Unpacker(bytes);
  const { deliveries, ...rest } = JSON.parse(text) as LiftedResult;
  return { ...rest, deliveries: deliveries.map((delivery) => lowerDelivery(delivery, calls, unpacker)) };
}

function lowerDelivery(delivery: LiftedDelivery, calls: readonly Call[], unpacker: Unpacker): Delivery {
  if (!("of" in delivery)) {
    const message: unknown = Object.assign(delivery.message, { body: unpacker.take(delivery.message.body) });
    return Object.assign(delivery, { message: message as Envelope });
  }
  const { of, message, ...own } = delivery;
  const { delay: _, ...letter } = letterAt(calls, of);
  // The text has whatever an envelope has and its letter has not.
  return { ...own, message: { ...letter, ...message } as Envelope };
}
