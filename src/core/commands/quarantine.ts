import type { Decision, Draft, Key } from "../decision/command.ts";
import { capacityGate, formatGate } from "../admission/gate.ts";
import { admissionNeeds } from "../admission/needs.ts";
import { giveUp } from "../admission/waitlist.ts";
import type { AccountId, Envelope, MessageState, Outline } from "../model/message.ts";
import { noBytes } from "../model/message.ts";
import { together } from "../decision/needs.ts";
import { isOfRun, needsOfRunOutcome } from "../workflows/outcome.ts";
import { passOver } from "./schedule.ts";
import { failForGood, needsOfConsequences } from "./settle.ts";

/** A row whose time has come. `id` is what names it in its account. */
export type DueRow = { table: "messages" | "lines" | "flows" | "schedules" | "waiters"; account: AccountId; id: string };

/** A text that no other row has. */
export const nameOfRow = ({ table, account, id }: DueRow): string => `${table} ${account}\n${id}`;

/** What was put aside: a message, or a firing of a schedule. Null: the row is not due any more, or nobody stands in the line that it is. */
export type PutAside = { what: string | null };

/**
 * Takes out of the way of the others what is due and cannot be claimed, because the storage refuses what follows from
 * it: a message goes to the dead letter queue, without its callbacks, which may be the reason; one of a run fails the run,
 * or is a request to a third party that has no answer; of a line, the first message that stands in it; a schedule passes
 * over this time.
 */
export const putAside: Decision<{ row: DueRow; reason: string }, PutAside> = {
  needs: ({ row }) => {
    const { table, account, id } = row;
    const heads = isLine(row) ? [{ account, line: lineIn(row), limit: 1 }] : [];
    return { accounts: [[account]], [table]: [[account, id]], heads };
  },
  further: ({ row }, draft) => {
    const states = suspectsOf(draft, row);
    const keys = states.map(({ account, id }): Key => [account, id]);
    const envelopes = keys.flatMap((key) => draft.outline("envelopes", ...key) ?? []);
    return together([
      { outlines: { envelopes: keys }, ...admissionNeeds(draft, states) },
      needsOfConsequences(envelopes),
      ...envelopes.filter(isOfRun).map((envelope) => needsOfRunOutcome(draft, envelope, refused)),
    ]);
  },
  decide: ({ row, reason }, draft, moment) => {
    const { table, account: id } = row;
    if (table === "schedules") {
      const schedule = draft.get("schedules", id, row.id);
      if (!schedule || schedule.dueAt === null || schedule.dueAt > moment.now) return { what: null };
      passOver(draft, moment, schedule, "what it is to publish could not be stored");
      return { what: `a firing of schedule ${schedule.id} of account ${id}` };
    }
    // A wait cannot end without a word to its run. It is looked at again.
    if (table === "waiters") return { what: null };
    const [state] = suspectsOf(draft, row);
    if (!state || (state.dueAt !== null && state.dueAt > moment.now)) return { what: null };
    const [account, envelope] = [draft.get("accounts", id), draft.outline("envelopes", id, state.id)];
    const outcome = { ...refused, error: `could not be stored: ${storable(reason)}` };
    if (account && envelope) failForGood(draft, moment, { account, envelope: silenced(envelope), state, outcome });
    else giveUp(draft, moment, state);
    return { what: `message ${state.id} of account ${id}` };
  },
};

/** Without its callbacks. The one of a request to a third party brings its run the answer that it waits for. */
const silenced = (envelope: Outline<Envelope>): Outline<Envelope> =>
  isOfRun(envelope) ? envelope : { ...envelope, callback: null, failureCallback: null };

const refused = { status: null, headers: [], body: noBytes, error: null };

const isLine = ({ table }: DueRow): boolean => table === "lines" || table === "flows";

const lineIn = ({ table, id }: DueRow): string => (table === "lines" ? formatGate(capacityGate(id)) : id);

function suspectsOf(draft: Draft, row: DueRow): MessageState[] {
  const { table, account, id } = row;
  if (table === "messages") return [draft.get("messages", account, id) ?? []].flat();
  return isLine(row) ? [...draft.head(account, lineIn(row))] : [];
}

/** The first line. What the storage says of a row that it refuses may hold what it refuses. */
const storable = (reason: string): string =>
  reason
    .replace(/\n.*/s, "")
    .replace(/[^!-~]+/g, " ")
    .slice(0, 500);
