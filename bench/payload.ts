/**
 * The fields of a bench message: its round, its number in the round, and when it was (or should have been)
 * sent, in microseconds.
 */
export type MessageStamp = { round: number; number: number; at: number };

/** The length of every body, in bytes. */
const bodyBytes = 200;

// Text fields of fixed width at fixed positions: a request is made by overwriting digits, and read without
// parsing JSON.
const roundAt = '{"round":"'.length;
const roundDigits = 4;
const numberAt = roundAt + roundDigits + '","number":"'.length;
const numberDigits = 8;
const timeAt = numberAt + numberDigits + '","at":"'.length;
const timeDigits = 16;

/** Returns a body of 200 bytes of JSON. */
export function body({ round, number, at }: MessageStamp): string {
  const stamp = `"number":"${digits(number, numberDigits)}","at":"${digits(at, timeDigits)}"`;
  const start = `{"round":"${digits(round, roundDigits)}",${stamp},"fill":"`;
  return `${start}${"x".repeat(bodyBytes - start.length - 2)}"}`;
}

/** Reads the stamp of a body. */
export function readStamp(text: string): MessageStamp {
  return {
    round: Number(text.slice(roundAt, roundAt + roundDigits)),
    number: Number(text.slice(numberAt, numberAt + numberDigits)),
    at: Number(text.slice(timeAt, timeAt + timeDigits)),
  };
}

/**
 * Returns the URL of the sink, or of the copies with this number. Copies have the same body and differ in
 * their path.
 */
export function sinkUrl(port: number, copy?: number): string {
  return `http://127.0.0.1:${port}/sink${copy === undefined ? "" : `/${copy}`}`;
}

const copyAt = "POST /sink/".length;

/** Returns the number in the path of such a request, or NaN if there is none. */
export function readCopy(head: string): number {
  return Number.parseInt(head.slice(copyAt, copyAt + 8), 10);
}

/**
 * The publish request of each message. In path and headers, `nameSlot` is replaced by a number of eight
 * digits for each message. It counts from 0 to `names` − 1 and starts over, so that `names` queues or keys
 * share the messages.
 */
export type PublishTarget = { path: string; headers: readonly string[]; names: number };

/** Marks the place of a number in a path or header. */
export const nameSlot = "########";

/** The bytes of one publish, written once and stamped again for each message. */
export class PreparedPublish {
  readonly bytes: Buffer;
  readonly #bodyAt: number;
  readonly #names: number;
  readonly #namesAt: readonly number[];

  constructor({
    port,
    target,
    token,
    round,
  }: {
    port: number;
    target: PublishTarget;
    token: string;
    round: number;
  }) {
    const head = [
      `POST ${target.path} HTTP/1.1`,
      `Host: 127.0.0.1:${port}`,
      `Authorization: Bearer ${token}`,
      "Content-Type: application/json",
      `Content-Length: ${bodyBytes}`,
      ...target.headers,
    ].join("\r\n");
    this.bytes = Buffer.from(`${head}\r\n\r\n${body({ round, number: 0, at: 0 })}`, "latin1");
    this.#bodyAt = this.bytes.length - bodyBytes;
    this.#names = target.names;
    this.#namesAt = [...head.matchAll(new RegExp(nameSlot, "g"))].map(({ index }) => index);
  }

  stamp(number: number, at: number): void {
    this.bytes.write(digits(number, numberDigits), this.#bodyAt + numberAt, "latin1");
    this.bytes.write(digits(at, timeDigits), this.#bodyAt + timeAt, "latin1");
    for (const place of this.#namesAt)
      this.bytes.write(digits(number % this.#names, nameSlot.length), place, "latin1");
  }
}

function digits(value: number, width: number): string {
  return String(value).padStart(width, "0");
}
