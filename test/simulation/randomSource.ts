/** A source of random numbers that depends only on its seed (mulberry32). */
export class RandomSource {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** Returns a number from 0 up to but not including 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns a whole number, both ends included. */
  integerBetween(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  isHit(probability: number): boolean {
    return this.next() < probability;
  }

  of<T>(list: readonly T[]): T {
    const one = list[Math.floor(this.next() * list.length)];
    if (one === undefined) throw new Error("there is nothing to choose from");
    return one;
  }

  /** Returns a random waiting time with this average. */
  gap(mean: number): number {
    return Math.ceil(-Math.log(1 - this.next()) * mean);
  }
}
