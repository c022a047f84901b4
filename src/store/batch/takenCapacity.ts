import type { AccountId } from "../../core/model/message.ts";
import type { Hands, Taken } from "../../core/admission/capacity.ts";
import { accountOf, hasHand, isNewcomer, leavesOthers } from "../../core/admission/capacity.ts";

/** The hands of a node that a batch has promised to deliveries so far. */
export class TakenHands {
  readonly #hands: Hands;
  readonly #byLane = new Map<string, Counted>();
  readonly #byAccount = new Map<AccountId, Counted>();
  readonly #inAll: Counted = { all: 0, bytes: 0 };

  constructor(hands: Hands) {
    this.#hands = hands;
  }

  isOneFree(lane: string): boolean {
    const taken = this.#takenBy(lane);
    const isFree = hasHand(this.#hands, taken, lane);
    if (!isFree && !leavesOthers(this.#hands, taken, lane)) this.#hands.denied?.(lane);
    return isFree;
  }

  /** Reports whether the account of a destination gets no more because it holds its share of the node. */
  isDenied(lane: string): boolean {
    return !leavesOthers(this.#hands, this.#takenBy(lane), lane);
  }

  #takenBy(lane: string): Taken {
    const { all, bytes } = this.#inAll;
    const [ofLane, ofAccount] = [this.#byLane.get(lane), this.#byAccount.get(accountOf(lane))];
    return {
      ...{ all, lane: ofLane?.all ?? 0, account: ofAccount?.all ?? 0 },
      ...{ bytes, laneBytes: ofLane?.bytes ?? 0, accountBytes: ofAccount?.bytes ?? 0 },
    };
  }

  isNewcomer(lane: string): boolean {
    return isNewcomer(this.#hands, { all: this.#inAll.all, lane: this.#byLane.get(lane)?.all ?? 0 }, lane);
  }

  /** Promises one. Answers how to take it back. */
  take(lane: string, size: number): () => void {
    const all = [this.#inAll, countedOf(this.#byLane, lane), countedOf(this.#byAccount, accountOf(lane))];
    count(all, 1, size);
    return () => count(all, -1, -size);
  }
}

function countedOf(all: Map<string, Counted>, name: string): Counted {
  let found = all.get(name);
  if (found === undefined) all.set(name, (found = { all: 0, bytes: 0 }));
  return found;
}

type Counted = { all: number; bytes: number };

function count(counts: readonly Counted[], all: number, bytes: number): void {
  for (const one of counts) {
    one.all += all;
    one.bytes += bytes;
  }
}
