/**
 * Waiting items by owner. Owners take turns: each has one item taken before any of them has another one
 * taken. The items of one owner keep their order.
 */
export class OwnerTurns<Item> {
  readonly #waiting = new Map<string, Item[]>();

  /** Reports whether no item waits. */
  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  add(owner: string, item: Item): void {
    const items = this.#waiting.get(owner);
    if (items) items.push(item);
    else this.#waiting.set(owner, [item]);
  }

  /** Removes the next item and returns it, or returns null if none waits. */
  take(): Item | null {
    const [first] = this.#waiting;
    if (first === undefined) return null;
    const [owner, items] = first;
    const item = items.shift() ?? null;
    this.#waiting.delete(owner);
    if (items.length > 0) this.#waiting.set(owner, items);
    return item;
  }
}
