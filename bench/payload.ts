/** What a message of the bench carries: its round, its number in the round, and when it was (to be) sent, in microseconds. */
export type MessageStamp = { round: number; number: number; at: number };

/** Length of every body in bytes. */
const bodyBytes = 200;

// Fields of fixed width at fixed places, as text: a request is made by overwriting digits, and read without parsing JSON.
const roundAt = '{"round":"'.length;
const roundDigits = 4;
const numberAt = roundAt + roundDigits + '","number":"'.length;
const numberDigits = 8;
const timeAt = numberAt + numberDigits + '","at":"'.length;
const timeDigits = 16;

/** A body of 200 bytes of JSON. */
export function body({ round, number, at }: MessageStamp): string {
  const start = `{"round":"${digits(round, roundDigits)}","number":"${digits(number, numberDigits)}","at":"${digits(at, timeDigits)}","fill":"`;
  return `${start}${"x".repeat(bodyBytes - start.length - 2)}"}`;
}

export function readStamp(text: string): MessageStamp {
  return {
    round: Number(text.slice(roundAt, roundAt + roundDigits)),
    number: Number(text.slice(numberAt, numberAt + numberDigits)),
    at: Number(text.slice(timeAt, timeAt + timeDigits)),
  };
}

/** Where the sink is. With a number, where copies of that number go: they have the body in common, and differ in their path. */
export function sinkUrl(port: number, copy?: number): string {
  return `http://127.0.0.1:${port}/sink${copy === undefined ? "" : `/${copy}`}`;
}

const copyAt = "POST /sink/".length;

/** The number in the path of such a request; NaN when there is none. */
export function readCopy(head: string): number {
  return Number.parseInt(head.slice(copyAt, copyAt + 8), 10);
}

/**
 * What each message asks of the server. Where path and headers say `nameSlot`, a number of eight digits is put for each
 * message, which goes round from 0 to `names` − 1: so many queues or keys share the messages.
 */
export type PublishTarget = { path: string; headers: readonly string[]; names: number };

export const nameSlot = "########";

/** The bytes of one publish, written once and restamped for each message. */
export class PreparedPublish {
  readonly bytes: Buffer;
  readonly #bodyAt: number;
  readonly #names: number;
  readonly #namesAt: readonly number[];

  constructor({ port, target, token, round }: { port: number; target: PublishTarget; token: string; round: number }) {
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
    for (const place of this.#namesAt) this.bytes.write(digits(number % this.#names, nameSlot.length), place, "latin1");
  }
}

function digits(value: number, width: number): string {
  return String(value).padStart(width, "0");
}
