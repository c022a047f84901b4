import { assertWithinBudget } from "../limits/budget.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import type { Decision } from "../decision/command.ts";
import type { AccountId, MessageId } from "../values/basics.ts";
import { Refusal } from "../values/errors.ts";
import { requireSchedule } from "../sending/scheduleChecks.ts";
import { explainEmptyFiring, publishScheduled } from "../sending/firing.ts";

/** The messages that a run of a schedule by hand published. */
export type ScheduleRun = { scheduleId: string; messages: readonly { messageId: MessageId; url: string }[] };

/**
 * Publishes the messages of a schedule now, as a firing would. The schedule does not change: its next time
 * and its last firing stay, and a paused schedule stays paused. Throws `Refusal` if the schedule does not
 * exist, or if nothing can be published.
 */
export const runSchedule: Decision<{ account: AccountId; id: string }, ScheduleRun> = {
  decide: ({ account: owner, id }, draft, moment) => {
    const account = requireActiveAccount(draft.get("accounts", owner));
    const schedule = requireSchedule(draft, owner, id);
    assertWithinBudget(account, moment.now);
    assertStorageAvailable(account, { continuesRun: false, isDiskLow: moment.isDiskLow });
    const messages = publishScheduled(draft, moment, { account, schedule });
    if (messages.length === 0)
      throw new Refusal("invalid", `scheduleId: nothing was published: ${explainEmptyFiring(schedule)}`);
    return { scheduleId: id, messages: messages.map((one) => ({ messageId: one.id, url: one.url })) };
  },
};
