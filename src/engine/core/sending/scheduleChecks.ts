import type { Draft, Moment } from "../decision/command.ts";
import { Refusal, throwIfRefused } from "../values/errors.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Bytes } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { Schedule } from "../model/schedule.ts";
import { isName } from "../values/name.ts";
import { findBodyRefusal, findSendingRefusal } from "../limits/sendingLimits.ts";

type ScheduleSettings = {
  id: string | null;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes | undefined;
};

/**
 * Throws `Refusal` for a setting that the account may not use, or that no schedule can have. Without `body`,
 * the schedule keeps its body, which may be larger than what is accepted now.
 */
export function assertSchedule(
  account: Account,
  { id, messageInput, body }: ScheduleSettings,
  moment: Moment,
): void {
  if (id !== null && !isName(id)) {
    const problem = 'is not an id; use letters, digits, ".", "_" and "-", but not "." or ".." alone';
    throw new Refusal("invalid", `schedule-id: ${JSON.stringify(id.slice(0, 200))} ${problem}`);
  }
  if (messageInput.notBefore !== null) {
    throw new Refusal(
      "invalid",
      "not-before: not valid for a schedule, which publishes at the times of its cron; " +
        "use delay to send later",
    );
  }
  throwIfRefused(
    findSendingRefusal(account, messageInput, moment.now) ?? (body && findBodyRefusal(account, body, moment)),
  );
}

/** Returns a schedule of the account. Throws `Refusal` if it does not exist, or is damaged. */
export function requireSchedule(draft: Draft, account: AccountId, id: string): Schedule {
  const schedule = draft.get("schedules", account, id);
  if (!schedule) throw noSchedule(id);
  return schedule;
}

/** Returns the refusal of an id that no schedule has. */
export const noSchedule = (id: string): Refusal =>
  new Refusal("not-found", `scheduleId: schedule ${JSON.stringify(id.slice(0, 200))} does not exist`);
