import { isDeepStrictEqual } from "node:util";
import type { LogRow } from "../../../src/engine/core/model/logRow.ts";
import type { Retention } from "../../../src/engine/core/accounts/retention.ts";
import type { ObservedBatch, AssertHolds } from "./observedBatch.ts";
import { isNamedByJob } from "../../operations/simulated.ts";
import { isNamedByBulk } from "./bulkOutcomes.ts";
import type { MessageHistory } from "./messageHistory.ts";
import type { Tables } from "../storage/changes.ts";

type RemovalCheckContext = {
  messageHistories: ReadonlyMap<string, MessageHistory>;
  assertHolds: AssertHolds;
  tables: Tables;
  now: number;
  retention: Retention;
  cover: (what: string) => unknown;
};

/** Checks that only the oldest rows beyond an account's limit are removed. */
function checkTrimmed(
  table: "log" | "deadLetters",
  removed: { account: string; id: string },
  of: Pick<RemovalCheckContext, "assertHolds" | "tables"> & Pick<ObservedBatch, "changes">,
): void {
  const { account, id } = removed;
  const before = of.changes.accounts.find((one) => one.before?.id === account)?.before;
  // If the limit was changed in the same batch, rows may have been trimmed before.
  const limits = [of.tables.accounts.get(account), before].map(
    (row) => row?.limits?.[table === "log" ? "logEntries" : "deadLetters"],
  );
  const max = Math.min(...limits.map((limit) => limit ?? Infinity));
  const left = [...of.tables[table].values()].filter((row) => row.account === account);
  of.assertHolds(
    left.length >= max,
    `only rows beyond the limit are removed: ${left.length} of ${table} are left of ${max} after ${id}`,
  );
  of.assertHolds(
    left.every((row) => row.id > id),
    `the oldest rows are removed first: ${id} of ${table}`,
  );
}

/**
 * Checks that the log of a message is removed as a whole, after the message has ended and has no dead letter.
 * A log that outlives its retention is kept unchanged.
 */
function checkWhole(
  { changes, isTrimmed }: Pick<ObservedBatch, "changes"> & { isTrimmed: boolean },
  {
    messageHistories,
    assertHolds,
    tables,
    cover,
  }: Pick<RemovalCheckContext, "messageHistories" | "assertHolds" | "tables" | "cover">,
): void {
  const gone: LogRow[] = [];
  for (const { before, after } of changes.log) {
    if (!before || after) continue;
    const kept = tables.keptLog.get(`${before.account}\n${before.id}`);
    if (!kept) gone.push(before);
    else if (isDeepStrictEqual(kept, before)) cover("log kept");
    else assertHolds(false, `a kept log is not rewritten: ${before.id}`);
  }
  for (const { before, after } of changes.keptLog) {
    assertHolds(before === undefined || after === undefined, `a kept log is not rewritten: ${before?.id}`);
    // After trimming, these may be the last rows that remain to be removed.
    if (before && !after && !isTrimmed) gone.push(before);
  }
  const ids = new Set(gone.map(({ messageId }) => messageId));
  if (ids.size === 0) return;
  const left = [...tables.log.values(), ...tables.keptLog.values()].find(({ messageId }) =>
    ids.has(messageId),
  );
  assertHolds(
    left === undefined,
    `the log of a message is removed as a whole: ${left?.messageId} has ${left?.states.join(" ")}`,
  );
  const dead = [...tables.deadLetters.values()].find(({ messageId }) => ids.has(messageId));
  assertHolds(dead === undefined, `the log of a dead letter is kept: ${dead?.id}`);
  for (const { account, messageId } of gone) {
    assertHolds(
      messageHistories.get(messageId)?.ended !== null,
      `the log of an unfinished message is kept: ${messageId}`,
    );
    assertHolds(
      !tables.storedMessages.has(`${account}\n${messageId}`),
      `a stored message is removed with its log: ${messageId}`,
    );
  }
}

/** Checks that nothing is removed before its retention ends, or while it is needed. */
export function checkRemovals(
  { calls, changes }: ObservedBatch,
  { messageHistories, assertHolds, tables, now, retention, cover }: RemovalCheckContext,
): void {
  const asked = new Set(calls.map(({ name }) => name));
  for (const { before, after } of changes.log) {
    assertHolds(before === undefined || after === undefined, `the log is not rewritten: ${before?.id}`);
    if (!before || after) continue;
    // Another command of the batch may have removed it.
    if (asked.has("expire") && before.time < now - retention.log) continue;
    assertHolds(asked.has("trim"), `the log is kept for its time: ${before.id}`);
    checkTrimmed("log", before, { assertHolds, tables, changes });
    if (!tables.keptLog.has(`${before.account}\n${before.id}`)) cover("log trimmed");
  }
  checkWhole({ changes, isTrimmed: asked.has("trim") }, { messageHistories, assertHolds, tables, cover });
  for (const { before, after } of changes.deadLetters) {
    if (!before || after) continue;
    const expired =
      asked.has("expire") &&
      (messageHistories.get(before.messageId)?.endedAt ?? 0) < now - retention.deadLetters;
    const removed =
      asked.has("retryDeadLetters") ||
      asked.has("resumeRun") ||
      isNamedByBulk({ calls }, before.id) ||
      isNamedByJob({ calls }, before.id);
    if (expired || removed) continue;
    assertHolds(asked.has("trim"), `dead letters are kept for their time: ${before.id}`);
    checkTrimmed("deadLetters", before, { assertHolds, tables, changes });
    cover("dead letter trimmed");
  }
  const shown = new Set(
    changes.storedMessages.some(({ after }) => !after)
      ? [...tables.deadLetters.values()].map(({ messageId }) => messageId)
      : [],
  );
  for (const { before, after } of changes.storedMessages) {
    if (!before || after) continue;
    const messageHistory = messageHistories.get(before.id);
    const isTrimmed = tables.accounts.get(before.account)?.dropped !== undefined;
    const old =
      messageHistory?.ended !== null && ((messageHistory?.endedAt ?? 0) < now - retention.log || isTrimmed);
    assertHolds(
      old && !shown.has(before.id),
      `a stored message is kept as long as it is needed: ${before.id}`,
    );
  }
  for (const { before, after } of changes.deduplications) {
    if (!before || after) continue;
    const freedAt = messageHistories.get(before.messageId)?.freedAt ?? null;
    assertHolds(
      freedAt !== null || before.expiresAt < now,
      `a deduplication id is kept for its window: ${before.key}`,
    );
  }
}

/** Checks that nothing is left of what happened, once everything is past its retention. */
export function checkEmpty(all: Tables, assertHolds: AssertHolds): void {
  const { accounts: _accounts, dayCounts: _dayCounts, ...tables } = all;
  for (const [name, rows] of Object.entries(tables)) {
    assertHolds(
      rows.size === 0,
      `history is removed: ${rows.size} ${name} are left, the first is ` +
        String([...rows.keys()][0]?.replace("\n", " ")),
    );
  }
}
