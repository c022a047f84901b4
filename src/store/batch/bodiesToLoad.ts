import type { Key } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import type { MessageState } from "../../core/model/message.ts";
import { KeyMap } from "./keyMap.ts";

/**
 * The share of a batch's bytes that one destination may use, as long as other destinations might need the
 * rest.
 */
const maxDestinationShare = 1 / 4;

/**
 * Selects the messages whose bodies a batch loads to send them, as many as its bytes allow. One destination
 * gets no more than its share, so that many large messages do not block all others.
 */
export class BodiesToLoad {
  readonly #maxBytes: number;
  #bytes: number | "full" = 0;
  readonly #byLane = new Map<string, number>();
  /** Destinations that have used up their share. */
  readonly #overShare = new Set<string>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Returns the keys of stored messages that are not loaded yet, until the bytes of the batch are used up.
   */
  selectKeys(states: Iterable<MessageState>, isLoaded: (key: Key) => boolean): Key[] {
    const selected = new KeyMap<true>();
    const keys: Key[] = [];
    for (const state of states) {
      const key = [state.account, state.id] as const;
      if (this.#bytes === "full" || isLoaded(key) || selected.has(key) || !this.#takeShare(state)) continue;
      const isFirst = this.#bytes === 0;
      if (!isFirst && this.#bytes + state.size > this.#maxBytes) this.#bytes = "full";
      else {
        // The first message counts even if its body is empty.
        this.#bytes += Math.max(1, state.size);
        selected.set(key, true);
        keys.push(key);
      }
    }
    return keys;
  }

  /** Reports whether a message is left out because its destination has used up its share. */
  isOverByteShare({ account, host }: Pick<MessageState, "account" | "host">): boolean {
    return this.#overShare.size > 0 && this.#overShare.has(laneName(account, host));
  }

  /** Counts a message towards the share of its destination. Returns false if the message does not fit. */
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
