import type { Key } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { MessageState } from "../../core/model/message.ts";
import { KeyMap } from "./keyMap.ts";

/** What one destination may have of the bytes of a batch, as long as others might want them. */
const maxDestinationShare = 1 / 4;

/**
 * Which messages a batch loads, to be sent: as many as its bytes go, and of one destination no more than its share, so
 * that a crowd of large messages does not stand before all others.
 */
export class BodiesToLoad {
  readonly #maxBytes: number;
  #bytes: number | "full" = 0;
  readonly #byLane = new Map<string, number>();
  /** Destinations that have had their share. */
  readonly #overShare = new Set<string>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Keys of the envelopes that are not here yet, until the bytes of the batch are used up. */
  selectKeys(states: Iterable<MessageState>, isLoaded: (key: Key) => boolean): Key[] {
    const selected = new KeyMap<true>();
    const keys: Key[] = [];
    for (const state of states) {
      const key = [state.account, state.id] as const;
      if (this.#bytes === "full" || isLoaded(key) || selected.has(key) || !this.#takeShare(state)) continue;
      const isFirst = this.#bytes === 0;
      if (!isFirst && this.#bytes + state.size > this.#maxBytes) this.#bytes = "full";
      else {
        // The first one counts even if it is empty.
        this.#bytes += Math.max(1, state.size);
        selected.set(key, true);
        keys.push(key);
      }
    }
    return keys;
  }

  /** Whether a message is left because its destination has had its share. */
  isOverByteShare({ account, host }: Pick<MessageState, "account" | "host">): boolean {
    return this.#overShare.size > 0 && this.#overShare.has(laneName(account, host));
  }

  /** Small messages come to no share, and cost no more than this question. */
  #takeShare(state: MessageState): boolean {
    if (this.isOverByteShare(state)) return false;
    const lane = laneName(state.account, state.host);
    const bytesBefore = this.#byLane.get(lane) ?? 0;
    const fits = bytesBefore === 0 || bytesBefore + state.size <= this.#maxBytes * maxDestinationShare;
    if (fits) this.#byLane.set(lane, bytesBefore + Math.max(1, state.size));
    else this.#overShare.add(lane);
    return fits;
  }
}
