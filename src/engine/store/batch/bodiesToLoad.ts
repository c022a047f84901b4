import type { BodyAdmission, Key } from "../../core/decision/command.ts";
import { laneName } from "../../core/admission/capacity.ts";
import { damagedMessage } from "../../core/model/damagedRows.ts";
import type { MessageState } from "../../core/model/messageState.ts";
import type { StoredMessage } from "../../core/model/message.ts";
import { KeyMap } from "./keyMap.ts";
import type { Overlay } from "./overlay.ts";
import type { UndoLog } from "./undoLog.ts";

/**
 * The share of a batch's bytes that one destination may use, as long as other destinations might need the
 * rest.
 */
const maxDestinationShare = 1 / 4;

/**
 * Selects the messages whose bodies a batch loads to send them, as many as its bytes allow. One destination
 * gets no more than its share, so that many large messages do not block all others.
 *
 * The selection depends only on the order of the calls, not on which bodies are loaded already.
 */
export class BodiesToLoad {
  readonly #maxBytes: number;
  readonly #undo: UndoLog;
  #bytes: number | "full" = 0;
  readonly #byLane = new Map<string, number>();
  /** Destinations that have used up their share. */
  readonly #overShare = new Set<string>();
  readonly #selected = new KeyMap<true>();
  /** The selected messages of this round that are not loaded. */
  #missing = new KeyMap<true>();
  #expectsDamage = false;

  constructor(maxBytes: number, undo: UndoLog) {
    this.#maxBytes = maxBytes;
    this.#undo = undo;
  }

  /** Selects a message, if its body fits. A message that was selected before is not counted again. */
  select({ account, id, host, size }: MessageState): BodyAdmission {
    const key = [account, id] as const;
    if (this.#selected.has(key)) return "loaded";
    const lane = laneName(account, host);
    if (this.#overShare.has(lane)) return "overShare";
    if (this.#bytes === "full") return "full";
    const ofLane = this.#byLane.get(lane);
    if (ofLane !== undefined && ofLane + size > this.#maxBytes * maxDestinationShare) {
      this.#overShare.add(lane);
      this.#undo.pushSilently(() => this.#overShare.delete(lane));
      return "overShare";
    }
    const bytes = this.#bytes;
    this.#undo.pushSilently(() => (this.#bytes = bytes));
    if (bytes > 0 && bytes + size > this.#maxBytes) {
      this.#bytes = "full";
      return "full";
    }
    this.#count(key, { lane, ofLane, size });
    return "loaded";
  }

  addMissing(key: Key): void {
    this.#missing.set(key, true);
  }

  isMissing(key: Key): boolean {
    return this.#missing.has(key);
  }

  /**
   * Returns what a missing message may be, which is only used to find out what else is read. If the last ones
   * turned out to be damaged, the next ones may be as well, and then it matters what is sent instead of them.
   */
  expect(key: Key): StoredMessage | undefined {
    if (this.#expectsDamage) return undefined;
    const { damaged: _damaged, ...message } = damagedMessage({ account: key[0], id: key[1] ?? "" });
    return message;
  }

  /** Begins the next round. `loaded`: the stored messages that this round has loaded. */
  endRound(loaded: readonly Key[], rows: Pick<Overlay, "get">): void {
    this.#expectsDamage = loaded.some((key) => {
      const message = rows.get("storedMessages", key);
      return this.isMissing(key) && (!message || message.damaged === true);
    });
    this.#missing = new KeyMap();
  }

  #count(key: Key, { lane, ofLane, size }: { lane: string; ofLane: number | undefined; size: number }): void {
    // A message counts even if its body is empty.
    const counted = Math.max(1, size);
    this.#bytes = Number(this.#bytes) + counted;
    this.#byLane.set(lane, (ofLane ?? 0) + counted);
    this.#selected.set(key, true);
    this.#undo.pushSilently(() => {
      this.#selected.delete(key);
      if (ofLane === undefined) this.#byLane.delete(lane);
      else this.#byLane.set(lane, ofLane);
    });
  }
}
