import type { Key } from "../../core/decision/command.ts";
import { laneOf } from "../../core/admission/capacity.ts";
import type { MessageState } from "../../core/model/message.ts";
import { KeyMap } from "./keyMap.ts";

/** What one destination may have of the bytes of a batch, as long as others might want them. */
const shareOfOne = 1 / 4;

/**
 * Which messages a batch loads, to be sent: as many as its bytes go, and of one destination no more than its share, so
 * that a crowd of large messages does not stand before all others.
 */
export class ToSend {
  readonly #perBatch: number;
  #bytes: number | "full" = 0;
  readonly #byLane = new Map<string, number>();
  /** Destinations that have had their share. */
  readonly #crowded = new Set<string>();

  constructor(perBatch: number) {
    this.#perBatch = perBatch;
  }

  /** Keys of the envelopes that are not here yet, until the bytes of the batch are used up. */
  within(states: Iterable<MessageState>, isHere: (key: Key) => boolean): Key[] {
    const taken = new KeyMap<true>();
    const keys: Key[] = [];
    for (const state of states) {
      const key = [state.account, state.id] as const;
      if (this.#bytes === "full" || isHere(key) || taken.has(key) || !this.#hasShare(state)) continue;
      const isFirst = this.#bytes === 0;
      if (!isFirst && this.#bytes + state.size > this.#perBatch) this.#bytes = "full";
      else {
        // The first one counts even if it is empty.
        this.#bytes += Math.max(1, state.size);
        taken.set(key, true);
        keys.push(key);
      }
    }
    return keys;
  }

  /** Whether a message is left because its destination has had its share. */
  isCrowded({ account, host }: Pick<MessageState, "account" | "host">): boolean {
    return this.#crowded.size > 0 && this.#crowded.has(laneOf(account, host));
  }

  /** Small messages come to no share, and cost no more than this question. */
  #hasShare(state: MessageState): boolean {
    if (this.isCrowded(state)) return false;
    const lane = laneOf(state.account, state.host);
    const before = this.#byLane.get(lane) ?? 0;
    const fits = before === 0 || before + state.size <= this.#perBatch * shareOfOne;
    if (fits) this.#byLane.set(lane, before + Math.max(1, state.size));
    else this.#crowded.add(lane);
    return fits;
  }
}
