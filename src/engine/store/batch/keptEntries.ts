import type { Key } from "../../core/decision/command.ts";
import type { LogRow } from "../../core/model/logRow.ts";
import { KeyMap } from "./keyMap.ts";

/**
 * The entries of the kept log by message: those that were loaded for a batch, and those that the batch has
 * moved there.
 */
export class KeptEntries {
  readonly #ids = new KeyMap<Set<string>>();
  readonly #requested = new KeyMap<true>();

  /** Returns the messages that were not requested before, each once. */
  pickUnasked(messages: readonly Key[]): Key[] {
    const unasked: Key[] = [];
    for (const key of messages) {
      if (this.#requested.has(key)) continue;
      this.#requested.set(key, true);
      unasked.push(key);
    }
    return unasked;
  }

  wasAsked(message: Key): boolean {
    return this.#requested.has(message);
  }

  add({ account, messageId, id }: Pick<LogRow, "account" | "messageId" | "id">): void {
    const key = [account, messageId] as const;
    const ids = this.#ids.get(key);
    if (ids) ids.add(id);
    else this.#ids.set(key, new Set([id]));
  }

  /** Returns ids of entries. Some of the entries may no longer exist. */
  listIds(message: Key): readonly string[] {
    return [...(this.#ids.get(message) ?? [])];
  }
}
