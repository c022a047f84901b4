import type { Draft, Moment } from "../decision/command.ts";
import { countStates } from "../accounts/usage.ts";
import type { AttemptTiming } from "../model/attempt.ts";
import type { LogRow } from "../model/logRow.ts";
import { recordsEnd } from "../model/logRow.ts";
import type { MessageState } from "../model/messageState.ts";
import { forgetMessage } from "../search/tags.ts";
import { noBytes } from "../values/basics.ts";

/** An event in the life of a message. Fields of the log row that are not given are empty. */
export type LogEvent = {
  message: Pick<MessageState, "account" | "id" | "tags" | "run" | "timeKeys" | "host">;
  row: Pick<LogRow, "states"> & Partial<LogRow>;
  /** The times of the attempt that ended, if one did. */
  timing?: AttemptTiming | undefined;
};

/** Appends a log row, counts its states as usage, and returns its id. */
export function log(draft: Draft, moment: Moment, { message, row, timing }: LogEvent): string {
  const id = moment.newId("log");
  countStates(draft, message, row.states);
  draft.indexTime(message.account, id, message.timeKeys);
  draft.put("log", {
    account: message.account,
    id,
    messageId: message.id,
    time: moment.now,
    error: null,
    nextDueAt: null,
    status: null,
    headers: [],
    body: noBytes,
    dlqId: null,
    tags: message.tags,
    ...row,
    ...(timing && { attempt: { ...timing, node: moment.node, host: message.host } }),
  });
  return id;
}

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
