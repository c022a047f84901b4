/**
 * A `Map` that drops its oldest entry if an entry is added while it has `most` entries. A lookup does not
 * make an entry newer, so a lookup costs as much as in a `Map`. Only the number of entries is bounded. If
 * entries differ in size, the caller must bound the size of an entry.
 */
export class BoundedMap<Key, Value> {
  readonly #most: number;
  readonly #entries = new Map<Key, Value>();

  /** `most` is the largest number of entries. It must be at least 1. */
  constructor(most: number) {
    this.#most = most;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key);
  }

  /** Adds an entry as the newest one. An existing entry gets the new value and keeps its age. */
  set(key: Key, value: Value): void {
    if (this.#entries.size >= this.#most && !this.#entries.has(key)) this.#dropOldest();
    this.#entries.set(key, value);
  }

  /**
   * Adds an entry as the newest one, even if it exists already. It is too slow to call for every message: see
   * docs/decisions/0034.
   */
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
