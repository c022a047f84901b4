import type { Hands } from "../core/hands.ts";
import { hasHand, isNewcomer } from "../core/hands.ts";

/** The hands of a node that a batch has promised to deliveries so far. */
export class TakenHands {
  readonly #hands: Hands;
  readonly #byLane = new Map<string, { all: number; bytes: number }>();
  #inAll = { all: 0, bytes: 0 };

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
    this.#count(lane, { all: 1, bytes: size });
    return () => this.#count(lane, { all: -1, bytes: -size });
  }

  #count(lane: string, by: { all: number; bytes: number }): void {
    const { all, bytes } = this.#byLane.get(lane) ?? { all: 0, bytes: 0 };
    this.#byLane.set(lane, { all: all + by.all, bytes: bytes + by.bytes });
    this.#inAll = { all: this.#inAll.all + by.all, bytes: this.#inAll.bytes + by.bytes };
  }
}
