import { spans } from "../../src/core/values/limits.ts";
import type { Letter } from "../../src/core/model/message.ts";
import type { Scope } from "../../src/core/model/rights.ts";
import type { Published, PublishResult } from "../../src/core/commands/publish.ts";
import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";

type Court = { lives: ReadonlyMap<string, Life>; now: number; demand: Demand };

/** Whose publish it is, and whether its token has the verb read. */
type Asker = { account: string; mayRead: boolean };

/** Deduplication: the same key within the window makes one message, unless that was cancelled or failed. */
export class Keys {
  /** The last message of a key, where it goes, and until when a repetition is known: its own window counts. */
  readonly #first = new Map<string, { messageId: string; url: string; until: number }>();

  judge({ calls, result }: Case, court: Court): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "publish" || !reply || !("answer" in reply)) return;
      const { account, letters, scope } = input as { account: string; letters: Letter[]; scope?: Scope };
      const mayRead = scope === undefined || scope.verbs.includes("read");
      (reply.answer as PublishResult[]).forEach((one, at) => {
        const letter = letters[at];
        if ("messageId" in one && letter && letter.deduplication !== null) this.#judgeOne({ account, mayRead }, letter, one, court);
      });
    });
  }

  #judgeOne({ account, mayRead }: Asker, letter: Letter, { messageId, deduplicated, url }: Published, { lives, now, demand }: Court): void {
    const key = `${account} ${letter.deduplication}`;
    const first = this.#first.get(key);
    const life = first && lives.get(first.messageId);
    const within = first !== undefined && now < first.until;
    // What ended in this very batch may have ended before or after.
    const isOpen = life === undefined || (life.freedAt ?? now) < now;
    const mayBeOpen = isOpen || life.freedAt !== null;
    if (deduplicated) {
      demand(within && !isOpen && first.messageId === messageId, `only what is a double is swallowed: ${key} answered with ${messageId}`);
      const shown = mayRead || first?.url === letter.url ? first?.url : undefined;
      demand(url === shown, `a repetition is answered with where the message goes, if the token may know: ${key} to ${url}`);
    } else {
      demand(!within || mayBeOpen, `a double is swallowed: ${key} made ${messageId} beside ${first?.messageId}`);
      this.#first.set(key, { messageId, url: letter.url, until: now + (letter.deduplicationWindow ?? spans.deduplication) });
    }
  }
}
