import type { Retried } from "../../src/core/commands/dlq.ts";
import type { MessageInput } from "../../src/core/model/message.ts";
import type { PublishResult } from "../../src/core/commands/publish.ts";
import type { Batch, ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "./changes.ts";

/** Messages that were made of dead letters, with what they were made of. */
export function mapRetried({ calls, result }: Batch): Map<string, string> {
  const answers = calls.flatMap(({ name }, index) => {
    const reply = result.replies[index];
    return name === "retryDeadLetters" && reply && "answer" in reply ? (reply.answer as Retried[]) : [];
  });
  return new Map(answers.map(({ messageId, dlqId }) => [messageId, dlqId]));
}

/** The letters of the messages that a batch took in. One to a group makes a message for each endpoint. */
export function mapInputs(
  { calls, result, changes }: ObservedBatch,
  { urlGroups }: Tables,
  assertHolds: AssertHolds,
): Map<string, MessageInput> {
  const inputs = new Map<string, MessageInput>();
  calls.forEach(({ name, input }, index) => {
    const reply = result.replies[index];
    if (name !== "publish" || !reply || !("answer" in reply)) return;
    const { account, inputs: asked } = input as { account: string; inputs: MessageInput[] };
    (reply.answer as PublishResult[]).forEach((one, at) => {
      const letter = asked[at];
      if (!letter || "refused" in one) return;
      const all = "each" in one ? one.each : [one];
      for (const { messageId, deduplicated } of all) if (!deduplicated) inputs.set(messageId, letter);
      const endpoints = urlGroups.get(`${account}\n${letter.group}`)?.endpoints ?? [];
      const isAll = !("each" in one) || JSON.stringify(one.each.map(({ url }) => url)) === JSON.stringify(endpoints.map(({ url }) => url));
      assertHolds(isAll || changes.urlGroups.length > 0, `a letter to a group goes to all of it: ${JSON.stringify(one)}`);
      assertHolds((letter.group === null) === !("each" in one), `who is meant by a letter is answered: ${JSON.stringify(one)}`);
    });
  });
  return inputs;
}

/** One of several letters may be refused for these reasons, and for a budget that is spent, or a quota. */
export const isExpectedRefusal = ({ refused, message }: { refused: string; message: string }): boolean =>
  ["not-found", "day-limit-exceeded", "storage-quota-exceeded", "forbidden"].includes(refused) || message.startsWith("budget: ");
