import { Refusal } from "../core/errors.ts";

/** How many bytes of request bodies may be in the server at once, from their first byte until they are answered. */
const intakeBytes = 512 * 1024 * 1024;

/**
 * Keeps the bodies of requests that are under way within the memory there is: many large ones at once, or a disk that
 * has become slow, must not be able to bring the server down. What finds no room is refused at once, and may come again.
 */
export class Intake {
  readonly #room: number;
  #taken = 0;

  constructor(room = intakeBytes) {
    this.#room = room;
  }

  /**
   * Takes room for a body, as long as it says it is, or as it may be. Returns what was taken, to be given back once.
   * Throws a `Refusal` when there is no room.
   */
  take({ declared, chunked, most }: { declared: string | undefined; chunked: boolean; most: number }): number {
    const bytes = chunked ? most : Math.min(Number(declared ?? 0) || 0, most);
    if (bytes > 0 && this.#taken + bytes > this.#room) {
      throw new Refusal("busy", "the server has as many request bodies under way as it can hold; ask again");
    }
    this.#taken += bytes;
    return bytes;
  }

  give(bytes: number): void {
    this.#taken -= bytes;
  }
}
