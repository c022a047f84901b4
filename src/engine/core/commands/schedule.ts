import type { Decision, Draft } from "../decision/command.ts";
import { nextCronTime, parseCron } from "../values/cron.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import type { AccountId, Bytes, Millis } from "../values/basics.ts";
import type { MessageInput } from "../model/message.ts";
import type { Schedule } from "../model/schedule.ts";
import { takeQuota } from "../limits/rowLimits.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import { assertVerb, findScopeRefusal } from "../model/rights.ts";
import { findContentRefusal } from "../workflows/contentScope.ts";
import { assertStorageAvailable } from "../limits/storageQuota.ts";
import { assertSchedule, requireSchedule, noSchedule } from "../sending/scheduleChecks.ts";
import { throwIfRefused } from "../values/errors.ts";

/** A schedule to create. `id` null: the schedule gets a new id. */
export type ScheduleInput = {
  account: AccountId;
  id: string | null;
  cron: string;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes;
  scope?: Scope;
};
/**
 * The id of the created schedule. `deduplicated`: nothing was created, and the id is that of an older
 * schedule with the same deduplication key.
 */
export type ScheduleCreated = { scheduleId: string; deduplicated: boolean };
type Named = { account: AccountId; id: string };

/**
 * Creates a schedule, which first fires at the next time of its expression after now. A schedule with the
 * same id is replaced as a whole, with its history. A limited token needs the verb `manage` to replace a
 * schedule. If the old schedule is due and the expression stays the same, the new schedule fires at once. A
 * program that creates its schedules at each start therefore misses no firing.
 *
 * Deduplication applies to the creation of schedules, not to what they publish, and only to schedules with
 * the same expression. Throws `Refusal`.
 */
export const createSchedule: Decision<ScheduleInput, ScheduleCreated> = {
  decide: (input, draft, moment) => {
    const { account, cron, body } = input;
    const owner = requireActiveAccount(draft.get("accounts", account));
    assertSchedule(owner, input, moment);
    if (input.scope) assertInScope(input.scope, input, draft);
    const duplicate = findDeduplication(draft, input);
    if (duplicate && duplicate.expiresAt > moment.now && isUnreplaced(draft, duplicate, parseCron(cron)))
      return { scheduleId: duplicate.messageId, deduplicated: true };
    assertStorageAvailable(owner, { continuesRun: false, isDiskLow: moment.isDiskLow });
    if (input.id === null || !draft.inspect("schedules", account, input.id))
      takeQuota(draft, owner, { name: "schedules" });
    const id = input.id ?? moment.newId("scd");
    const { deduplicationWindow: _window, deduplicationId: _id, ...keptInput } = input.messageInput;
    const messageInput = { ...keptInput, deduplication: null, scheduleId: id };
    const dueAt = firstTime(draft.inspect("schedules", account, id), parseCron(cron), moment.now);
    const schedule = { account, id, cron: parseCron(cron), createdAt: moment.now, dueAt, messageInput, body };
    draft.put("schedules", { ...schedule, paused: false, lastAt: null, lastMessages: [] });
    if (input.messageInput.deduplication !== null) {
      const key = deduplicationKey(input.messageInput.deduplication, cron);
      const expiresAt = deduplicationEnd(moment.now, input.messageInput);
      draft.put("deduplications", { account, key, messageId: id, expiresAt, made: { at: moment.now } });
    }
    return { scheduleId: id, deduplicated: false };
  },
};

/** The key distinguishes schedules from messages and from schedules with another expression. */
const deduplicationKey = (key: string, cron: string): string => `schedule ${key} ${parseCron(cron)}`;

/**
 * Reports whether the schedule that was created with the key still exists, has not been replaced, and has
 * this expression.
 */
function isUnreplaced(draft: Draft, { account, messageId, made }: Deduplication, cron: string): boolean {
  const schedule = draft.inspect("schedules", account, messageId);
  return schedule?.createdAt === made.at && schedule.cron === cron;
}

function findDeduplication(
  draft: Draft,
  { account, cron, messageInput: { deduplication } }: ScheduleInput,
): Deduplication | undefined {
  if (deduplication === null) return undefined;
  return draft.get("deduplications", account, deduplicationKey(deduplication, cron));
}

/**
 * Throws `Refusal` if the token may not create this schedule. A group may get other endpoints before the
 * schedule fires, so the token must name the group itself. A token that may only publish cannot replace an
 * existing schedule.
 */
function assertInScope(scope: Scope, { account, id, messageInput }: ScheduleInput, draft: Draft): void {
  throwIfRefused(
    findScopeRefusal(scope, messageInput) ??
      findContentRefusal(draft, { scope, account, input: messageInput }),
  );
  if (id !== null && draft.inspect("schedules", account, id)) assertVerb(scope, "manage");
}

function firstTime(replaced: Schedule | undefined, cron: string, now: Millis): Millis | null {
  const isOverdue = replaced && replaced.cron === cron && replaced.dueAt !== null && replaced.dueAt <= now;
  return isOverdue ? now : nextCronTime(cron, now);
}

/** Removes a schedule if it exists. Messages that it has published are not affected. */
export const deleteSchedule: Decision<Named, { deleted: boolean }> = {
  decide: ({ account, id }, draft) => {
    const deleted = draft.inspect("schedules", account, id) !== undefined;
    if (deleted) draft.drop("schedules", account, id);
    return { deleted };
  },
};

/** Pauses a schedule: it skips its times until it is resumed. A firing that is due is skipped as well. */
export const pauseSchedule: Decision<Named, { scheduleId: string }> = {
  decide: ({ account, id }, draft) => {
    const schedule = draft.inspect("schedules", account, id);
    if (!schedule) throw noSchedule(id);
    if (!schedule.paused) draft.put("schedules", { ...schedule, paused: true, dueAt: null });
    return { scheduleId: id };
  },
};

/**
 * Resumes a paused schedule at its next time. If the clock went back, its next time is still after its last
 * firing.
 */
export const resumeSchedule: Decision<Named, { scheduleId: string }> = {
  decide: ({ account, id }, draft, moment) => {
    const schedule = requireSchedule(draft, account, id);
    const dueAt = schedule.paused
      ? nextCronTime(schedule.cron, Math.max(moment.now, schedule.lastAt ?? 0))
      : schedule.dueAt;
    if (schedule.paused) draft.put("schedules", { ...schedule, paused: false, dueAt });
    return { scheduleId: id };
  },
};
