import { spans } from "../../src/core/limits.ts";
import type { Letter } from "../../src/core/message.ts";
import type { PublishResult } from "../../src/core/publish.ts";
import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";

type Court = { lives: ReadonlyMap<string, Life>; now: number; demand: Demand };

/** Deduplication: the same key within the window makes one message, unless that was cancelled or failed. */
export class Keys {
  /** The last message of a key, and when it came. */
  readonly #first = new Map<string, { messageId: string; at: number }>();

  judge({ calls, result }: Case, court: Court): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "publish" || !reply || !("answer" in reply)) return;
      const { account, letters } = input as { account: string; letters: Letter[] };
      (reply.answer as PublishResult[]).forEach((one, at) => {
        const key = letters[at]?.deduplication ?? null;
        if ("messageId" in one && key !== null) this.#judgeOne(`${account} ${key}`, one, court);
      });
    });
  }

  #judgeOne(key: string, { messageId, deduplicated }: { messageId: string; deduplicated: boolean }, { lives, now, demand }: Court): void {
    const first = this.#first.get(key);
    const life = first && lives.get(first.messageId);
    const within = first !== undefined && now < first.at + spans.deduplication;
    // What ended in this very batch may have ended before or after.
    const isOpen = life === undefined || (life.freedAt ?? now) < now;
    const mayBeOpen = isOpen || life.freedAt !== null;
    if (deduplicated) {
      demand(within && !isOpen && first.messageId === messageId, `only what is a double is swallowed: ${key} answered with ${messageId}`);
    } else {
      demand(!within || mayBeOpen, `a double is swallowed: ${key} made ${messageId} beside ${first?.messageId}`);
      this.#first.set(key, { messageId, at: now });
    }
  }
}
