import { Transform } from "node:stream";
import type { Readable } from "node:stream";
import { Refusal } from "../core/errors.ts";

/** How many bytes of request bodies may be in the server at once, until they are answered. */
const intakeBytes = 512 * 1024 * 1024;

/** A body that says it is no longer than this takes its room at once: counting it on its way would cost more than it keeps. */
const atOnce = 64 * 1024;

/**
 * Keeps the bodies of requests that are under way within the memory there is: many large ones at once, or a disk that
 * has become slow, must not be able to bring the server down. What finds no room is refused at once, and may come again.
 * Who announces much and sends little holds little.
 */
export class Intake {
  readonly #room: number;
  #taken = 0;

  constructor(room = intakeBytes) {
    this.#room = room;
  }

  /** Takes room for so many bytes, to be given back once. Throws a `Refusal` when there is none. */
  take(bytes: number): void {
    if (bytes > 0 && this.#taken + bytes > this.#room) {
      throw new Refusal("busy", "the server has as many request bodies under way as it can hold; ask again");
    }
    this.#taken += bytes;
  }

  give(bytes: number): void {
    this.#taken -= bytes;
  }

  /** The body, which takes room as it arrives until it has ended. It fails with a `Refusal` when there is no more. `took` is told of each piece. */
  counted(body: Readable, took: (bytes: number) => void): Readable {
    const counter = new Transform({
      transform: (chunk: Buffer, _encoding, pass) => {
        try {
          this.take(chunk.length);
        } catch (error) {
          return pass(error instanceof Error ? error : new Error(String(error)));
        }
        took(chunk.length);
        pass(null, chunk);
      },
    });
    // A pipe does not tell of a body that breaks off.
    body.once("error", (error) => counter.destroy(error));
    return body.pipe(counter);
  }
}

/** The bytes of a body that take their room at once. Null: it is large, or does not say, and is counted as it arrives. */
export function bytesAtOnce(headers: { "content-length"?: string | undefined; "transfer-encoding"?: string | undefined }): number | null {
  if (headers["transfer-encoding"] !== undefined) return null;
  const declared = Number(headers["content-length"] ?? 0) || 0;
  return declared <= atOnce ? declared : null;
}
