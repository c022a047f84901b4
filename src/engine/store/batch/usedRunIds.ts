import type { Key } from "../../core/decision/command.ts";
import { KeyMap } from "./keyMap.ts";
import type { Loader } from "./loader.ts";

/** Which run ids the stored runs have, as far as a batch has asked. */
export class UsedRunIds {
  readonly #known = new KeyMap<boolean>();

  /** Returns undefined if that is not known. */
  find(key: Key): boolean | undefined {
    return this.#known.get(key);
  }

  /** Loads those that are not known. */
  async load(keys: readonly Key[], loader: Loader): Promise<void> {
    const unknown = keys.filter((key) => !this.#known.has(key));
    for (const key of unknown) this.#known.set(key, false);
    if (unknown.length === 0) return;
    for (const key of await loader.usedRunIds(unknown)) this.#known.set(key, true);
  }
}
