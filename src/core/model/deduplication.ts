import { spans } from "../values/limits.ts";
import type { AccountId, MessageInput, MessageId, Millis } from "./message.ts";

/**
 * Same key until `expiresAt`: one message, or one schedule. `made`: when it was taken, and its URL if it is a message; for the key of a
 * signature, the topics that came with it.
 */
export type Deduplication = {
  account: AccountId;
  key: string;
  messageId: MessageId;
  expiresAt: Millis;
  made: { at: Millis; url?: string; topics?: readonly string[] };
};

/** Returns when the deduplication key of a message that is taken now is free again. */
export const deduplicationEnd = (now: Millis, { deduplicationWindow }: Pick<MessageInput, "deduplicationWindow">): Millis =>
  now + (deduplicationWindow ?? spans.deduplication);
