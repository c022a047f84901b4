import { spans } from "../values/limits.ts";
import type { AccountId, MessageId, Millis } from "../values/basics.ts";
import type { MessageInput } from "./message.ts";

/**
 * A deduplication key, which belongs to one message or one schedule until `expiresAt`. `made` has the time of
 * acceptance and, for a message, its URL. For the key of a signature, `made` has the topics that came with
 * the signature. For the key of a reported attempt, `made` has the report.
 */
export type Deduplication = {
  account: AccountId;
  key: string;
  messageId: MessageId;
  expiresAt: Millis;
  made: { at: Millis; url?: string; topics?: readonly string[]; report?: ReportedAttempt };
};

/** The hash of the report of an attempt, and what the message became. */
export type ReportedAttempt = { digest: string; became: "delivered" | "retry" | "failed" };

/** Returns when the deduplication key of a message that is accepted now becomes free again. */
export const deduplicationEnd = (
  now: Millis,
  { deduplicationWindow }: Pick<MessageInput, "deduplicationWindow">,
): Millis => now + (deduplicationWindow ?? spans.deduplication);
