import type { Decision, Draft } from "../decision/command.ts";
import { capacityGate, formatGate } from "../admission/gate.ts";
import { giveUp } from "../admission/waitlist.ts";
import type { StoredMessage, WithoutBody } from "../model/message.ts";
import type { MessageState } from "../model/messageState.ts";
import { noBytes } from "../values/basics.ts";
import { belongsToRun } from "../workflows/runOutcome.ts";
import { skipFiring } from "../sending/firing.ts";
import { failMessage } from "../deadLetters/failMessage.ts";
import type { DueRow } from "../model/dueRow.ts";

/** How the error of a quarantined message begins. */
export const quarantineError = "could not be stored: ";

/**
 * A description of what was quarantined: a message, or a firing of a schedule. Null: the row is no longer
 * due, or its waitlist is empty.
 */
export type Quarantined = { description: string | null };

/**
 * Quarantines a due row that cannot be claimed because the storage refuses the changes that follow from it,
 * so that it does not block other rows.
 *
 * - A message goes to the dead letter queue without its callbacks, which may be the reason.
 * - A message of a run fails the run, or counts as a request to a third party without a response.
 * - For a waitlist, this applies to its first message.
 * - A schedule skips this firing.
 * - A waiter stays as it is.
 */
export const quarantine: Decision<{ row: DueRow; reason: string }, Quarantined> = {
  decide: ({ row, reason }, draft, moment) => {
    const { table, account: id } = row;
    if (table === "schedules") {
      const schedule = draft.inspect("schedules", id, row.id);
      if (!schedule || schedule.dueAt === null || schedule.dueAt > moment.now) return { description: null };
      const skipReason = { message: "its messages could not be stored" };
      skipFiring(draft, moment, { schedule, skipReason });
      draft.record("quarantined");
      return { description: `a firing of schedule ${schedule.id} of account ${id}` };
    }
    // A wait cannot end without a message to its run, so it is tried again.
    if (table === "waiters") return { description: null };
    const [state] = listSuspects(draft, row);
    if (!state || (state.dueAt !== null && state.dueAt > moment.now)) return { description: null };
    const account = draft.get("accounts", id);
    const message = draft.inspectWithoutBody("storedMessages", id, state.id);
    const outcome = { ...refusedResponse, error: quarantineError + toStorableText(reason) };
    if (account && message)
      failMessage(draft, moment, { account, message: withoutCallbacks(message), state, outcome });
    else giveUp(draft, moment, state);
    draft.record("quarantined");
    return { description: `message ${state.id} of account ${id}` };
  },
};

/**
 * Removes the callbacks of a message. A message of a run keeps them: the callback of a request to a third
 * party brings the response that the run waits for.
 */
const withoutCallbacks = (message: WithoutBody<StoredMessage>): WithoutBody<StoredMessage> =>
  belongsToRun(message) ? message : { ...message, callback: null, failureCallback: null };

const refusedResponse = { status: null, headers: [], body: noBytes, error: null };

const isWaitlist = ({ table }: DueRow): boolean => table === "hostWaitlists" || table === "limiters";

const toWaitlist = ({ table, id }: DueRow): string =>
  table === "hostWaitlists" ? formatGate(capacityGate(id)) : id;

function listSuspects(draft: Draft, row: DueRow): MessageState[] {
  const { table, account, id } = row;
  if (table === "messages") return [draft.get("messages", account, id) ?? []].flat();
  return isWaitlist(row) ? takeFirst(draft.waitlist({ account, waitlist: toWaitlist(row), limit: 1 })) : [];
}

/**
 * Returns the first line of a reason in printable ASCII, at most 500 characters. The error text of a refused
 * row may contain the very characters that the storage refuses.
 */
const toStorableText = (reason: string): string =>
  reason
    .replace(/\n.*/s, "")
    .replace(/[^!-~]+/g, " ")
    .slice(0, 500);

function takeFirst<Item>(items: Iterable<Item>): Item[] {
  for (const item of items) return [item];
  return [];
}
