import type { Decision, Draft, Key } from "../decision/command.ts";
import { capacityGate, formatGate } from "../admission/gate.ts";
import { admissionNeeds } from "../admission/needs.ts";
import { giveUp } from "../admission/waitlist.ts";
import type { AccountId, StoredMessage, MessageState, WithoutBody } from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { mergeNeeds } from "../decision/needs.ts";
import { belongsToRun, runOutcomeNeeds } from "../workflows/outcome.ts";
import { skipFiring } from "./schedule.ts";
import { failMessage, consequenceNeeds } from "./settle.ts";

/** A due row. `id` identifies it in its account. */
export type DueRow = {
  table: "messages" | "hostWaitlists" | "limiters" | "schedules" | "waiters";
  account: AccountId;
  id: string;
};

/** Returns a text that is unique to the row. */
export const toRowKey = ({ table, account, id }: DueRow): string => `${table} ${account}\n${id}`;

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
  needs: ({ row }) => {
    const { table, account, id } = row;
    const waitlistHeads = isWaitlist(row) ? [{ account, waitlist: toWaitlist(row), limit: 1 }] : [];
    return { accounts: [[account]], [table]: [[account, id]], waitlistHeads };
  },
  further: ({ row }, draft) => {
    const states = listSuspects(draft, row);
    const keys = states.map(({ account, id }): Key => [account, id]);
    const messages = keys.flatMap((key) => draft.getWithoutBody("storedMessages", ...key) ?? []);
    return mergeNeeds([
      { withoutBodies: { storedMessages: keys }, ...admissionNeeds(draft, states) },
      consequenceNeeds(messages),
      ...messages
        .filter(belongsToRun)
        .map((message) => runOutcomeNeeds(draft, { message, outcome: refusedResponse })),
    ]);
  },
  decide: ({ row, reason }, draft, moment) => {
    const { table, account: id } = row;
    if (table === "schedules") {
      const schedule = draft.get("schedules", id, row.id);
      if (!schedule || schedule.dueAt === null || schedule.dueAt > moment.now) return { description: null };
      skipFiring(draft, moment, { schedule, skipReason: "its messages could not be stored" });
      return { description: `a firing of schedule ${schedule.id} of account ${id}` };
    }
    // A wait cannot end without a message to its run, so it is tried again.
    if (table === "waiters") return { description: null };
    const [state] = listSuspects(draft, row);
    if (!state || (state.dueAt !== null && state.dueAt > moment.now)) return { description: null };
    const account = draft.get("accounts", id);
    const message = draft.getWithoutBody("storedMessages", id, state.id);
    const outcome = { ...refusedResponse, error: `could not be stored: ${toStorableText(reason)}` };
    if (account && message)
      failMessage(draft, moment, { account, message: withoutCallbacks(message), state, outcome });
    else giveUp(draft, moment, state);
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
  return isWaitlist(row) ? [...draft.waitlistHead(account, toWaitlist(row))] : [];
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
