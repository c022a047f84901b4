import type { Draft } from "../decision/command.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { Refused } from "../values/errors.ts";

/**
 * The maximum number of topics with which one signed body may arrive. The topic is not signed, so more topics
 * indicate a replay.
 */
const maxTopics = 16;

type SignedCall = {
  now: Millis;
  account: AccountId;
  input: Pick<MessageInput, "signed" | "deduplicationWindow">;
};

/**
 * Records the topic of a signed call until the key of the call becomes free. Returns a refusal if the same
 * signature came with too many other topics before; otherwise null.
 */
export function findTopicRefusal(draft: Draft, { now, account, input }: SignedCall): Refused | null {
  const { signed, deduplicationWindow } = input;
  if (!signed) return null;
  const { key, topic } = signed;
  const known = draft.get("deduplications", account, key);
  const topics = known && known.expiresAt > now ? (known.made.topics ?? []) : [];
  if (!topics.includes(topic) && topics.length >= maxTopics)
    return {
      refused: "invalid",
      message: `topic: the same signed body was sent under ${maxTopics} other topics; rejected as a replay`,
    };
  const all = topics.includes(topic) ? topics : [...topics, topic];
  const expiresAt = Math.max(
    known?.expiresAt ?? 0,
    deduplicationEnd(now, { deduplicationWindow: deduplicationWindow ?? null }),
  );
  draft.put("deduplications", { account, key, messageId: "", expiresAt, made: { at: now, topics: all } });
  return null;
}
