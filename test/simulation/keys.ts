import { spans } from "../../src/core/limits.ts";
import type { Letter } from "../../src/core/message.ts";
import type { Published, PublishResult } from "../../src/core/publish.ts";
import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";

type Court = { lives: ReadonlyMap<string, Life>; now: number; demand: Demand };

/** Deduplication: the same key within the window makes one message, unless that was cancelled or failed. */
export class Keys {
  /** The last message of a key, where it goes, and until when a repetition is known: its own window counts. */
  readonly #first = new Map<string, { messageId: string; url: string; until: number }>();

  judge({ calls, result }: Case, court: Court): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "publish" || !reply || !("answer" in reply)) return;
      const { account, letters } = input as { account: string; letters: Letter[] };
      (reply.answer as PublishResult[]).forEach((one, at) => {
        const letter = letters[at];
        if ("messageId" in one && letter && letter.deduplication !== null) this.#judgeOne(account, letter, one, court);
      });
    });
  }

  #judgeOne(account: string, letter: Letter, { messageId, deduplicated, url }: Published, { lives, now, demand }: Court): void {
    const key = `${account} ${letter.deduplication}`;
    const first = this.#first.get(key);
    const life = first && lives.get(first.messageId);
    const within = first !== undefined && now < first.until;
    // What ended in this very batch may have ended before or after.
    const isOpen = life === undefined || (life.freedAt ?? now) < now;
    const mayBeOpen = isOpen || life.freedAt !== null;
    if (deduplicated) {
      demand(within && !isOpen && first.messageId === messageId, `only what is a double is swallowed: ${key} answered with ${messageId}`);
      demand(url === first?.url, `a repetition is told where the message goes: ${key} to ${url}`);
    } else {
      demand(!within || mayBeOpen, `a double is swallowed: ${key} made ${messageId} beside ${first?.messageId}`);
      this.#first.set(key, { messageId, url: letter.url, until: now + (letter.deduplicationWindow ?? spans.deduplication) });
    }
  }
}
