import type { Draft, Moment } from "../decision/command.ts";
import { countStates } from "../accounts/usage.ts";
import type { LogRow, MessageState } from "../model/message.ts";
import { noBytes } from "../model/message.ts";

/**
 * Appends a log row of a message, counts its states as usage, and returns its id. Fields that are not given
 * are empty.
 */
export function log(
  draft: Draft,
  moment: Moment,
  message: Pick<MessageState, "account" | "id" | "tags" | "run" | "timeKeys">,
  fields: Pick<LogRow, "states"> & Partial<LogRow>,
): string {
  const id = moment.newId("log");
  countStates(draft, message, fields.states);
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
    ...fields,
  });
  return id;
}
