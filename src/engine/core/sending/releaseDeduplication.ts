import type { Draft } from "../decision/command.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";

/**
 * Removes the deduplication row of a message that will never be delivered, so that the next message with this
 * key is not dropped as a duplicate.
 */
export function releaseDeduplication(draft: Draft, message: WithoutBody<StoredMessage>): void {
  if (message.deduplication === null) return;
  const row = draft.get("deduplications", message.account, message.deduplication);
  if (row?.messageId === message.id) draft.drop("deduplications", message.account, message.deduplication);
}
