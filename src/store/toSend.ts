import type { Key } from "../core/command.ts";
import type { MessageState } from "../core/message.ts";
import { KeyMap } from "./keyMap.ts";

/** Which messages a batch loads, to be sent: as many as its bytes go. */
export class ToSend {
  readonly #perBatch: number;
  #bytes: number | "full" = 0;

  constructor(perBatch: number) {
    this.#perBatch = perBatch;
  }

  /** Keys of the envelopes that are not here yet, until the bytes of the batch are used up. */
  within(states: Iterable<MessageState>, isHere: (key: Key) => boolean): Key[] {
    const keys = new KeyMap<Key>();
    for (const { account, id, size } of states) {
      const key = [account, id] as const;
      if (this.#bytes === "full" || isHere(key) || keys.has(key)) continue;
      const isFirst = this.#bytes === 0;
      if (!isFirst && this.#bytes + size > this.#perBatch) this.#bytes = "full";
      else {
        // The first one counts even if it is empty.
        this.#bytes += Math.max(1, size);
        keys.set(key, key);
      }
    }
    return [...keys.values()];
  }
}
