import { spans } from "../../../src/engine/core/values/limits.ts";
import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { Scope } from "../../../src/engine/core/model/rights.ts";
import type { Published, PublishResult } from "../../../src/engine/core/commands/publish.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { MessageHistory } from "./messageHistory.ts";

type DeduplicationCheckContext = {
  messageHistories: ReadonlyMap<string, MessageHistory>;
  now: number;
  assertHolds: AssertHolds;
};

/** The account of a publish, and whether its token has the verb `read`. */
type Publisher = { account: string; mayRead: boolean };

/**
 * Checks deduplication: one message per deduplication id within its window, unless the message was cancelled
 * or failed.
 */
export class DeduplicationChecker {
  /** The last message of each deduplication id, its URL, and when its window ends. */
  readonly #first = new Map<string, { messageId: string; url: string; until: number }>();

  check({ calls, result }: ObservedBatch, checkContext: DeduplicationCheckContext): void {
    calls.forEach(({ name, input }, index) => {
      const reply = result.replies[index];
      if (name !== "publish" || !reply || !("answer" in reply)) return;
      const { account, inputs, scope } = input as { account: string; inputs: MessageInput[]; scope?: Scope };
      const mayRead = scope === undefined || scope.verbs.includes("read");
      (reply.answer as PublishResult[]).forEach((one, at) => {
        const input = inputs[at];
        if ("messageId" in one && input && input.deduplication !== null)
          this.#checkOne({ account, mayRead, input }, one, checkContext);
      });
    });
  }

  #checkOne(
    { account, mayRead, input }: Publisher & { input: MessageInput },
    { messageId, deduplicated, url }: Published,
    { messageHistories, now, assertHolds }: DeduplicationCheckContext,
  ): void {
    const key = `${account} ${input.deduplication}`;
    const first = this.#first.get(key);
    const messageHistory = first && messageHistories.get(first.messageId);
    const within = first !== undefined && now < first.until;
    // A message that ended in this batch may have ended before or after.
    const isOpen = messageHistory === undefined || (messageHistory.freedAt ?? now) < now;
    const mayBeOpen = isOpen || messageHistory.freedAt !== null;
    if (deduplicated) {
      assertHolds(
        within && !isOpen && first.messageId === messageId,
        `only what is a double is swallowed: ${key} answered with ${messageId}`,
      );
      const shown = mayRead || first?.url === input.url ? first?.url : undefined;
      assertHolds(
        url === shown,
        `a repetition is answered with where the message goes, if the token may know: ${key} to ${url}`,
      );
    } else {
      assertHolds(
        !within || mayBeOpen,
        `a double is swallowed: ${key} made ${messageId} beside ${first?.messageId}`,
      );
      this.#first.set(key, {
        messageId,
        url: input.url,
        until: now + (input.deduplicationWindow ?? spans.deduplication),
      });
    }
  }
}
