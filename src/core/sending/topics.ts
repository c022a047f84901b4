import type { Draft } from "../decision/command.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import type { AccountId, MessageInput, Millis } from "../model/message.ts";

/** One signed body may come under as many topics. The topic is not signed, so more than that is taken for a replay. */
const maxTopics = 16;

/**
 * Notes the topic of a signed call, until the key of the call is free again. Returns why the call cannot be taken if its signature came
 * under too many other topics, otherwise null.
 */
export function findTopicRefusal(
  draft: Draft,
  now: Millis,
  account: AccountId,
  { signed, deduplicationWindow }: Pick<MessageInput, "signed" | "deduplicationWindow">,
): { refused: "invalid"; message: string } | null {
  if (!signed) return null;
  const { key, topic } = signed;
  const known = draft.get("deduplications", account, key);
  const topics = known && known.expiresAt > now ? (known.made.topics ?? []) : [];
  if (!topics.includes(topic) && topics.length >= maxTopics)
    return {
      refused: "invalid",
      message: `topic: the same signed body came under ${maxTopics} others, so this one is taken for a replay`,
    };
  const all = topics.includes(topic) ? topics : [...topics, topic];
  const expiresAt = Math.max(known?.expiresAt ?? 0, deduplicationEnd(now, { deduplicationWindow: deduplicationWindow ?? null }));
  draft.put("deduplications", { account, key, messageId: "", expiresAt, made: { at: now, topics: all } });
  return null;
}
