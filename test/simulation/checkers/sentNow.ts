import type { SentNow } from "../../../src/engine/core/commands/sendNow.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";
import type { MessageHistory } from "./messageHistory.ts";

type SentNowContext = {
  assertHolds: AssertHolds;
  now: number;
  messageHistories: ReadonlyMap<string, MessageHistory>;
  cover: (what: string) => unknown;
};

/**
 * Checks that a message that is sent now only becomes due. Whether it is then sent in its order, and within
 * pauses and limits, is checked at its lease like that of any other message.
 */
export function checkSentNow(
  { calls, result, changes }: ObservedBatch,
  { assertHolds, now, messageHistories, cover }: SentNowContext,
): void {
  calls.forEach(({ name, input }, at) => {
    const reply = result.replies[at];
    if (name !== "sendNow" || !reply || !("answer" in reply)) return;
    const { messageId } = input as { messageId: string };
    const answer = reply.answer as SentNow | null;
    const history = messageHistories.get(messageId);
    if (answer?.changed) {
      history?.sendNow(now);
      const was = changes.messages.find(({ before }) => before?.id === messageId)?.before;
      cover(was?.attempts ? "sent now before its retry" : "sent now before its delay ends");
      if (history?.message.queue) cover("sent now in a queue");
      if (history?.message.flowControl) cover("sent now with a key");
    }
    if (calls.length > 1) return;
    const { messages, audit: _audit, usage: _usage, ...others } = changes;
    assertHolds(
      Object.values(others).every((list) => list.length === 0) &&
        messages.length === (answer?.changed ? 1 : 0),
      `a message that is sent now changes nothing else: ${messageId}`,
    );
    for (const { before, after } of messages) {
      const isOnlyDue =
        before?.state === "pending" &&
        (before.dueAt ?? 0) > now &&
        JSON.stringify({ ...before, dueAt: now }) === JSON.stringify(after);
      assertHolds(isOnlyDue, `a message that is sent now becomes due, and no more: ${messageId}`);
    }
  });
}
