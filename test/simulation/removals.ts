import type { Retention } from "../../src/core/retention.ts";
import type { Case, Judge } from "./judge.ts";
import type { Tables } from "./storage.ts";

type Court = { judge: Judge; tables: Tables; now: number; retention: Retention };

/** Nothing is removed before its time, or while something else needs it. */
export function checkRemovals({ calls, changes }: Case, { judge, tables, now, retention }: Court): void {
  const asked = new Set(calls.map(({ name }) => name));
  for (const { before, after } of changes.log) {
    judge.demand(before === undefined || after === undefined, `the log is not rewritten: ${before?.id}`);
    if (before && !after) judge.demand(asked.has("expire") && before.time < now - retention.log, `the log is kept for its time: ${before.id}`);
  }
  for (const { before, after } of changes.deadLetters) {
    if (!before || after) continue;
    const expired = asked.has("expire") && (judge.lives.get(before.messageId)?.endedAt ?? 0) < now - retention.deadLetters;
    const removed = asked.has("retryDeadLetters") || asked.has("deleteDeadLetters");
    judge.demand(expired || removed, `dead letters are kept for their time: ${before.id}`);
  }
  const shown = new Set(changes.envelopes.some(({ after }) => !after) ? [...tables.deadLetters.values()].map(({ messageId }) => messageId) : []);
  for (const { before, after } of changes.envelopes) {
    if (!before || after) continue;
    const life = judge.lives.get(before.id);
    const old = life?.ended !== null && (life?.endedAt ?? 0) < now - retention.log;
    judge.demand(old && !shown.has(before.id), `an envelope is kept as long as it is needed: ${before.id}`);
  }
  for (const { before, after } of changes.deduplications) {
    if (!before || after) continue;
    const ended = judge.lives.get(before.messageId)?.ended;
    const released = ended === "failed" || ended === "cancelled";
    judge.demand(released || before.expiresAt < now, `a deduplication id holds for its window: ${before.key}`);
  }
}
