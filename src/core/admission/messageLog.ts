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
  message: Pick<MessageState, "account" | "id" | "marks" | "run" | "sights">,
  fields: Pick<LogRow, "states"> & Partial<LogRow>,
): string {
  const id = moment.newId("log");
  countStates(draft, message, fields.states);
  draft.sight(message.account, id, message.sights);
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
    marks: message.marks,
    ...fields,
  });
  return id;
}
