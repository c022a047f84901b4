/**
 * A `Map` that drops its oldest entry when it has `most` entries and another one is added. A lookup does not make an entry newer, so a
 * lookup costs as much as in a `Map`. The bound is a count: where entries differ in size, the caller bounds the size of an entry.
 */
export class BoundedMap<Key, Value> {
  readonly #most: number;
  readonly #entries = new Map<Key, Value>();

  /** `most`: the largest number of entries, at least 1. */
  constructor(most: number) {
    this.#most = most;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key);
  }

  /** Adds an entry as the newest one. An entry that is there gets the value, and stays as old as it is. */
  set(key: Key, value: Value): void {
    if (this.#entries.size >= this.#most && !this.#entries.has(key)) this.#dropOldest();
    this.#entries.set(key, value);
  }

  /** Adds an entry as the newest one, also if it is there already. Not for what every message does: see docs/decisions/0034. */
  renew(key: Key, value: Value): void {
    this.#entries.delete(key);
    this.set(key, value);
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
  }

  #dropOldest(): void {
    for (const oldest of this.#entries.keys()) {
      this.#entries.delete(oldest);
      return;
    }
  }
}
