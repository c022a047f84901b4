import type { MessageInput } from "../../../src/engine/core/model/message.ts";
import type { PublishResult } from "../../../src/engine/core/commands/publish.ts";
import { mapRetriedByRequests } from "./bulkOutcomes.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import type { Tables } from "../storage/changes.ts";
import { listPortions } from "../../operations/simulated.ts";
import type { Histories } from "../../operations/simulated.ts";

/** Returns the messages made by retrying dead letters, on request or by a job, with the dead letters. */
export function mapRetried(observed: ObservedBatch, histories: Histories): Map<string, string> {
  const byJobs = listPortions(observed, histories).flatMap(({ portion, effects }) =>
    portion.action === "dlq.retry" ? effects : [],
  );
  return new Map([
    ...mapRetriedByRequests(observed),
    ...byJobs.flatMap(({ became, id }) => (became === null ? [] : [[became, id] as const])),
  ]);
}

/**
 * Returns the inputs of the messages that a batch accepted. An input for a group makes a message for each
 * endpoint.
 */
export function mapInputs(
  { calls, result, changes }: ObservedBatch,
  { urlGroups }: Tables,
  assertHolds: AssertHolds,
): Map<string, MessageInput> {
  const inputs = new Map<string, MessageInput>();
  calls.forEach(({ name, input }, index) => {
    const reply = result.replies[index];
    if (name !== "publish" || !reply || !("answer" in reply)) return;
    const { account, inputs: inputsOfCall } = input as { account: string; inputs: MessageInput[] };
    (reply.answer as PublishResult[]).forEach((one, at) => {
      const messageInput = inputsOfCall[at];
      if (!messageInput || "refused" in one) return;
      const all = "each" in one ? one.each : [one];
      for (const { messageId, deduplicated } of all) if (!deduplicated) inputs.set(messageId, messageInput);
      const endpoints = urlGroups.get(`${account}\n${messageInput.group}`)?.endpoints ?? [];
      const isAll =
        !("each" in one) ||
        JSON.stringify(one.each.map(({ url }) => url)) === JSON.stringify(endpoints.map(({ url }) => url));
      assertHolds(
        isAll || changes.urlGroups.length > 0,
        `an input for a group makes a message per endpoint: ${JSON.stringify(one)}`,
      );
      assertHolds(
        (messageInput.group === null) === !("each" in one),
        `the response names the URLs of an input: ${JSON.stringify(one)}`,
      );
    });
  });
  return inputs;
}

/** Reports whether a refusal of one input is expected: for these reasons, a spent budget, or a quota. */
export const isExpectedRefusal = ({ refused, message }: { refused: string; message: string }): boolean =>
  ["not-found", "day-limit-exceeded", "storage-quota-exceeded", "forbidden"].includes(refused) ||
  message.startsWith("budget: ");
