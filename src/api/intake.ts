import { Transform } from "node:stream";
import type { Readable } from "node:stream";
import { Refusal } from "../core/errors.ts";
import type { AccountId } from "../core/message.ts";

/** How many bytes of request bodies may be in the server at once, until they are answered. */
const intakeBytes = 512 * 1024 * 1024;

/** A body that says it is no longer than this takes its room at once: counting it on its way would cost more than it keeps. */
export const mostAtOnce = 64 * 1024;

/** Whose bodies they are: an account; or "", all together who are none and may send any. */
export type Sender = AccountId;

/**
 * Keeps the bodies of requests that are under way within the memory there is: many large ones at once, or a disk that
 * has become slow, must not be able to bring the server down. What finds no room is refused at once, and may come again.
 * Who announces much and sends little holds little; and whoever has bodies under way takes no more room for others than is left
 * besides, so that the slow ones of one account do not keep all others out.
 */
export class Intake {
  readonly #room: number;
  #taken = 0;
  readonly #bySender = new Map<Sender, number>();

  constructor(room = intakeBytes) {
    this.#room = room;
  }

  /** Takes room for a body of so many bytes. Answers what is to be called as soon as the body is gone. Throws a `Refusal` when there is none. */
  take(sender: Sender, bytes: number): () => void {
    this.#take(sender, bytes, 0);
    return () => this.#give(sender, bytes);
  }

  /** The body, which takes room as it arrives. It fails with a `Refusal` when there is no more. `give` is to be called as soon as it is gone. */
  counted(sender: Sender, body: Readable): { body: Readable; give(): void } {
    let taken = 0;
    const counter = new Transform({
      transform: (chunk: Buffer, _encoding, pass) => {
        try {
          this.#take(sender, chunk.length, taken);
        } catch (error) {
          return pass(error instanceof Error ? error : new Error(String(error)));
        }
        taken += chunk.length;
        pass(null, chunk);
      },
    });
    // A pipe does not tell of a body that breaks off.
    body.once("error", (error) => counter.destroy(error));
    return { body: body.pipe(counter), give: () => this.#give(sender, taken) };
  }

  /** `before`: what the same body has taken already. */
  #take(sender: Sender, bytes: number, before: number): void {
    if (bytes === 0) return;
    const [free, own] = [this.#room - this.#taken, this.#bySender.get(sender) ?? 0];
    if (bytes > free) throw new Refusal("busy", "the server has as many request bodies under way as it can hold; ask again");
    if (own - before + bytes > free)
      throw new Refusal("busy", "the account has as many request bodies under way as the server can hold for one; ask again");
    this.#taken += bytes;
    this.#bySender.set(sender, own + bytes);
  }

  #give(sender: Sender, bytes: number): void {
    if (bytes === 0) return;
    const left = (this.#bySender.get(sender) ?? 0) - bytes;
    this.#taken -= bytes;
    if (left > 0) this.#bySender.set(sender, left);
    else this.#bySender.delete(sender);
  }
}

/** The bytes of a body that take their room at once. Null: it is large, or does not say, and is counted as it arrives. */
export function bytesAtOnce(headers: { "content-length"?: string | undefined; "transfer-encoding"?: string | undefined }): number | null {
  if (headers["transfer-encoding"] !== undefined) return null;
  const declared = Number(headers["content-length"] ?? 0) || 0;
  return declared <= mostAtOnce ? declared : null;
}
