import { isDeepStrictEqual } from "node:util";
import type { LogRow } from "../../src/core/model/message.ts";
import type { Retention } from "../../src/core/commands/retention.ts";
import type { Case, Demand } from "./batch.ts";
import type { Life } from "./life.ts";
import type { Tables } from "./changes.ts";

type Court = {
  lives: ReadonlyMap<string, Life>;
  demand: Demand;
  tables: Tables;
  now: number;
  retention: Retention;
  happens: (what: string) => unknown;
};

/** Of what an account may have so many of, the oldest leave, and as many as that stay. */
function checkTrimmed(
  table: "log" | "deadLetters",
  removed: { account: string; id: string },
  of: Pick<Court, "demand" | "tables"> & Pick<Case, "changes">,
): void {
  const { account, id } = removed;
  const before = of.changes.accounts.find((one) => one.before?.id === account)?.before;
  // Within a batch in which the limit was changed, it may have been trimmed before.
  const limits = [of.tables.accounts.get(account), before].map((row) => row?.limits?.[table === "log" ? "logEntries" : "deadLetters"]);
  const most = Math.min(...limits.map((limit) => limit ?? Infinity));
  const left = [...of.tables[table].values()].filter((row) => row.account === account);
  of.demand(left.length >= most, `no more leave than are too many: ${left.length} of ${table} are left of ${most} after ${id}`);
  of.demand(
    left.every((row) => row.id > id),
    `the oldest leave: ${id} of ${table}`,
  );
}

/** The log of a message goes as a whole, when it has ended and has no dead letter; what outlives its time is kept as it is. */
function checkWhole(
  { changes, isTrimmed }: Pick<Case, "changes"> & { isTrimmed: boolean },
  { lives, demand, tables, happens }: Pick<Court, "lives" | "demand" | "tables" | "happens">,
): void {
  const gone: LogRow[] = [];
  for (const { before, after } of changes.log) {
    if (!before || after) continue;
    const kept = tables.keptLog.get(`${before.account}\n${before.id}`);
    if (!kept) gone.push(before);
    else if (isDeepStrictEqual(kept, before)) happens("log kept");
    else demand(false, `what is kept of a log is not rewritten: ${before.id}`);
  }
  for (const { before, after } of changes.keptLog) {
    demand(before === undefined || after === undefined, `what is kept of a log is not rewritten: ${before?.id}`);
    // It is all that is left to remove when the others that are too many are gone.
    if (before && !after && !isTrimmed) gone.push(before);
  }
  const ids = new Set(gone.map(({ messageId }) => messageId));
  if (ids.size === 0) return;
  const left = [...tables.log.values(), ...tables.keptLog.values()].find(({ messageId }) => ids.has(messageId));
  demand(left === undefined, `the log of a message goes as a whole: ${left?.messageId} has ${left?.states.join(" ")}`);
  const dead = [...tables.deadLetters.values()].find(({ messageId }) => ids.has(messageId));
  demand(dead === undefined, `the log of a dead letter is kept: ${dead?.id}`);
  for (const { account, messageId } of gone) {
    demand(lives.get(messageId)?.ended !== null, `the log of what has not ended is kept: ${messageId}`);
    demand(!tables.envelopes.has(`${account}\n${messageId}`), `a message goes with its log: ${messageId}`);
  }
}

/** Nothing is removed before its time, or while something else needs it. */
export function checkRemovals({ calls, changes }: Case, { lives, demand, tables, now, retention, happens }: Court): void {
  const asked = new Set(calls.map(({ name }) => name));
  for (const { before, after } of changes.log) {
    demand(before === undefined || after === undefined, `the log is not rewritten: ${before?.id}`);
    if (!before || after) continue;
    // Another command of the batch may have removed it.
    if (asked.has("expire") && before.time < now - retention.log) continue;
    demand(asked.has("trim"), `the log is kept for its time: ${before.id}`);
    checkTrimmed("log", before, { demand, tables, changes });
    if (!tables.keptLog.has(`${before.account}\n${before.id}`)) happens("log trimmed");
  }
  checkWhole({ changes, isTrimmed: asked.has("trim") }, { lives, demand, tables, happens });
  for (const { before, after } of changes.deadLetters) {
    if (!before || after) continue;
    const expired = asked.has("expire") && (lives.get(before.messageId)?.endedAt ?? 0) < now - retention.deadLetters;
    const removed = ["retryDeadLetters", "deleteDeadLetters", "resumeRun"].some((name) => asked.has(name as "resumeRun"));
    if (expired || removed) continue;
    demand(asked.has("trim"), `dead letters are kept for their time: ${before.id}`);
    checkTrimmed("deadLetters", before, { demand, tables, changes });
    happens("dead letter trimmed");
  }
  const shown = new Set(
    changes.envelopes.some(({ after }) => !after) ? [...tables.deadLetters.values()].map(({ messageId }) => messageId) : [],
  );
  for (const { before, after } of changes.envelopes) {
    if (!before || after) continue;
    const life = lives.get(before.id);
    const isTrimmed = tables.accounts.get(before.account)?.dropped !== undefined;
    const old = life?.ended !== null && ((life?.endedAt ?? 0) < now - retention.log || isTrimmed);
    demand(old && !shown.has(before.id), `an envelope is kept as long as it is needed: ${before.id}`);
  }
  for (const { before, after } of changes.deduplications) {
    if (!before || after) continue;
    const freedAt = lives.get(before.messageId)?.freedAt ?? null;
    demand(freedAt !== null || before.expiresAt < now, `a deduplication id holds for its window: ${before.key}`);
  }
}
