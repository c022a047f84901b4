import type { Hands } from "../core/hands.ts";
import { hasHand, isNewcomer } from "../core/hands.ts";

/** The hands of a node that a batch has promised to deliveries so far. */
export class TakenHands {
  readonly #hands: Hands;
  readonly #byLane = new Map<string, Counted>();
  readonly #inAll: Counted = { all: 0, bytes: 0 };

  constructor(hands: Hands) {
    this.#hands = hands;
  }

  isOneFree(lane: string): boolean {
    const { all, bytes } = this.#inAll;
    const ofLane = this.#byLane.get(lane);
    return hasHand(this.#hands, { all, bytes, lane: ofLane?.all ?? 0, laneBytes: ofLane?.bytes ?? 0 }, lane);
  }

  isNewcomer(lane: string): boolean {
    return isNewcomer(this.#hands, { all: this.#inAll.all, lane: this.#byLane.get(lane)?.all ?? 0 }, lane);
  }

  /** Promises one. Answers how to take it back. */
  take(lane: string, size: number): () => void {
    const ofLane = this.#ofLane(lane);
    count([this.#inAll, ofLane], 1, size);
    return () => count([this.#inAll, ofLane], -1, -size);
  }

  #ofLane(lane: string): Counted {
    let found = this.#byLane.get(lane);
    if (found === undefined) this.#byLane.set(lane, (found = { all: 0, bytes: 0 }));
    return found;
  }
}

type Counted = { all: number; bytes: number };

function count(counts: readonly Counted[], all: number, bytes: number): void {
  for (const one of counts) {
    one.all += all;
    one.bytes += bytes;
  }
}
