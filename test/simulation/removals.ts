import type { Retention } from "../../src/core/retention.ts";
import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";
import type { Tables } from "./storage.ts";

type Court = { lives: ReadonlyMap<string, Life>; demand: Demand; tables: Tables; now: number; retention: Retention };

/** Nothing is removed before its time, or while something else needs it. */
export function checkRemovals({ calls, changes }: Case, { lives, demand, tables, now, retention }: Court): void {
  const asked = new Set(calls.map(({ name }) => name));
  for (const { before, after } of changes.log) {
    demand(before === undefined || after === undefined, `the log is not rewritten: ${before?.id}`);
    if (before && !after) demand(asked.has("expire") && before.time < now - retention.log, `the log is kept for its time: ${before.id}`);
  }
  for (const { before, after } of changes.deadLetters) {
    if (!before || after) continue;
    const expired = asked.has("expire") && (lives.get(before.messageId)?.endedAt ?? 0) < now - retention.deadLetters;
    const removed = ["retryDeadLetters", "deleteDeadLetters", "resumeRun"].some((name) => asked.has(name as "resumeRun"));
    demand(expired || removed, `dead letters are kept for their time: ${before.id}`);
  }
  const shown = new Set(
    changes.envelopes.some(({ after }) => !after) ? [...tables.deadLetters.values()].map(({ messageId }) => messageId) : [],
  );
  for (const { before, after } of changes.envelopes) {
    if (!before || after) continue;
    const life = lives.get(before.id);
    const old = life?.ended !== null && (life?.endedAt ?? 0) < now - retention.log;
    demand(old && !shown.has(before.id), `an envelope is kept as long as it is needed: ${before.id}`);
  }
  for (const { before, after } of changes.deduplications) {
    if (!before || after) continue;
    const freedAt = lives.get(before.messageId)?.freedAt ?? null;
    demand(freedAt !== null || before.expiresAt < now, `a deduplication id holds for its window: ${before.key}`);
  }
}
