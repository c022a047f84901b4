import type { Draft } from "../decision/command.ts";
import { removeDeadLetter } from "./dlq.ts";
import { forgetMessage } from "../search/tags.ts";
import { recordsEnd } from "../explain/listedState.ts";
import type { LogRow } from "../model/logRow.ts";

/** The result of a removal. `removed` is the number of rows. `more`: more rows may be left to remove. */
export type ExpiryResult = { removed: number; more: boolean };

/** Removes a dead letter that has expired or exceeds a limit. See `removeDeadLetter`. */
export const dropOldDeadLetter: typeof removeDeadLetter = (draft, deadLetter, logBefore) => {
  removeDeadLetter(draft, deadLetter, logBefore);
  draft.record("dead letter expired");
};

/**
 * Removes the oldest entries of the log. If the entry that ended a message is among them and the message has
 * no dead letter, the whole log of the message is removed. Entries of other messages move to the kept log.
 * They are removed later, with the entry that ends their message, or with its dead letter. Returns the number
 * of removed entries.
 */
export function removeLogEntries(draft: Draft, rows: readonly LogRow[]): number {
  const endsByMessage = new Map(
    rows.filter((row) => recordsEnd(row) && !isDeadLetter(draft, row)).map((row) => [row.messageId, row]),
  );
  let removed = 0;
  for (const row of rows) {
    if (!endsByMessage.has(row.messageId)) {
      draft.moveToKeptLog(row);
      continue;
    }
    draft.drop("log", row.account, row.id);
    removed++;
  }
  for (const row of endsByMessage.values()) removed += forgetMessage(draft, row);
  return removed;
}

const isDeadLetter = (draft: Draft, row: LogRow): boolean =>
  row.dlqId !== null && draft.inspectWithoutBody("deadLetters", row.account, row.dlqId) !== undefined;
