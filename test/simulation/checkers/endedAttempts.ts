import type { RunningAttempt } from "../../../src/engine/core/commands/endAttempts.ts";
import type { AssertHolds, ObservedBatch } from "./observedBatch.ts";
import { isEndedByOperator } from "./observedBatch.ts";
import type { MessageHistory } from "./messageHistory.ts";

type EndedAttemptsContext = {
  assertHolds: AssertHolds;
  messageHistories: ReadonlyMap<string, MessageHistory>;
  cover: (what: string) => unknown;
};

/**
 * Checks attempts that an operator ends. The message keeps its lease until the request has ended, and then
 * waits for its retry, whatever the request came to. `MessageHistory` checks that each press names an
 * attempt, and ends it at most once.
 */
export function checkEndedAttempts(
  { calls, result, changes }: ObservedBatch,
  { assertHolds, messageHistories, cover }: EndedAttemptsContext,
): void {
  for (const { name, input } of calls)
    if (name === "endAttempts")
      for (const { messageId, attempt } of (input as { attempts: RunningAttempt[] }).attempts)
        messageHistories.get(messageId)?.endAttempt(attempt);
  for (const { before, after } of changes.messages) {
    const id = after?.id ?? before?.id ?? "";
    const queue = messageHistories.get(id)?.message.queue;
    if (after?.state === "ending") cover(`ended by an operator${queue ? " in a queue" : ""}`);
    if (before?.state !== "ending") continue;
    const rows = changes.log.flatMap((row) => (row.after?.messageId === id ? [row.after] : []));
    const isLeft = after?.state === "ending" && after.attempts === before.attempts;
    assertHolds(
      isLeft ||
        before.run !== null ||
        rows.some(
          (row) =>
            row.states.includes("RETRY") ||
            row.states.includes("CANCEL_REQUESTED") ||
            row.states.includes("FAILED"),
        ),
      `an attempt that an operator ended delivers nothing: ${id}`,
    );
    if (rows.some(isEndedByOperator)) cover("retried after an operator ended the attempt");
    else if (rows.some(({ error }) => error?.startsWith("no report: ")))
      cover("taken over while an operator ended it");
  }
  if (calls.length > 1 || calls[0]?.name !== "endAttempts") return;
  const reply = result.replies[0];
  const ended = reply && "answer" in reply ? (reply.answer as { ended: number }).ended : 0;
  // An attempt that its receiver holds ends at once.
  if (changes.messages.some(({ before }) => before?.state === "acknowledging")) return;
  const { messages, audit: _audit, usage: _usage, ...others } = changes;
  const touched = Object.entries(others).flatMap(([name, list]) => (list.length === 0 ? [] : name));
  assertHolds(
    messages.length === ended && touched.length === 0,
    `an operator who ends ${ended} attempts changes nothing else: ${messages.length} ${touched.join(" ")}`,
  );
}
