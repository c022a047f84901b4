import { findBudgetRefusal } from "../limits/budget.ts";
import type { Decision, Draft, Moment } from "../decision/command.ts";
import { nextCronTime, parseCron } from "../values/cron.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import { Refusal } from "../values/errors.ts";
import { listRecipients } from "./urlGroup.ts";
import { accept } from "../sending/createMessage.ts";
import { limits, memory } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Bytes, Millis } from "../values/basics.ts";
import type { MessageInput, StoredMessage } from "../model/message.ts";
import type { Schedule } from "../model/schedule.ts";
import { isName } from "../values/name.ts";
import { takeQuota } from "../limits/rowLimits.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import { mustHaveVerb, findScopeRefusal } from "../model/rights.ts";
import { findContentRefusal } from "../workflows/contentScope.ts";
import { findBodyRefusal, findSendingRefusal } from "../limits/sendingLimits.ts";
import { mustHaveStorage, findStorageRefusal } from "../limits/storageQuota.ts";

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
    checkSchedule(owner, input, moment);
    if (input.scope) mustBeInScope(input.scope, input, draft);
    const duplicate = findDeduplication(draft, input);
    if (duplicate && duplicate.expiresAt > moment.now && isUnreplaced(draft, duplicate, parseCron(cron)))
      return { scheduleId: duplicate.messageId, deduplicated: true };
    mustHaveStorage(owner, { continuesRun: false, isDiskLow: moment.isDiskLow });
    if (input.id === null || !draft.get("schedules", account, input.id))
      takeQuota(draft, owner, { name: "schedules" });
    const id = input.id ?? moment.newId("scd");
    const { deduplicationWindow: _window, ...keptInput } = input.messageInput;
    const messageInput = { ...keptInput, deduplication: null, scheduleId: id };
    const dueAt = firstTime(draft.get("schedules", account, id), parseCron(cron), moment.now);
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
  const schedule = draft.get("schedules", account, messageId);
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
 * Throws `Refusal` for a setting that the account may not use, or that no schedule can have. Without `body`,
 * the schedule keeps its body, which may be larger than what is accepted now.
 */
export function checkSchedule(
  account: Account,
  { id, messageInput, body }: Pick<ScheduleInput, "id" | "messageInput"> & { body: Bytes | undefined },
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
  const refusal =
    findSendingRefusal(account, messageInput, moment.now) ?? (body && findBodyRefusal(account, body, moment));
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/**
 * Throws `Refusal` if the token may not create this schedule. A group may get other endpoints before the
 * schedule fires, so the token must name the group itself. A token that may only publish cannot replace an
 * existing schedule.
 */
function mustBeInScope(scope: Scope, { account, id, messageInput }: ScheduleInput, draft: Draft): void {
  const refusal =
    findScopeRefusal(scope, messageInput) ??
    findContentRefusal(draft, { scope, account, input: messageInput });
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
  if (id !== null && draft.get("schedules", account, id)) mustHaveVerb(scope, "manage");
}

function firstTime(replaced: Schedule | undefined, cron: string, now: Millis): Millis | null {
  const isOverdue = replaced && replaced.cron === cron && replaced.dueAt !== null && replaced.dueAt <= now;
  return isOverdue ? now : nextCronTime(cron, now);
}

/** Removes a schedule if it exists. Messages that it has published are not affected. */
export const deleteSchedule: Decision<Named, { deleted: boolean }> = {
  decide: ({ account, id }, draft) => {
    const deleted = draft.get("schedules", account, id) !== undefined;
    if (deleted) draft.drop("schedules", account, id);
    return { deleted };
  },
};

/** Pauses a schedule: it skips its times until it is resumed. A firing that is due is skipped as well. */
export const pauseSchedule: Decision<Named, { scheduleId: string }> = {
  decide: ({ account, id }, draft) => {
    const schedule = mustFindSchedule(draft, account, id);
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
    const schedule = mustFindSchedule(draft, account, id);
    if (schedule.damaged) throw damagedScheduleRefusal(id);
    const dueAt = schedule.paused
      ? nextCronTime(schedule.cron, Math.max(moment.now, schedule.lastAt ?? 0))
      : schedule.dueAt;
    if (schedule.paused) draft.put("schedules", { ...schedule, paused: false, dueAt });
    return { scheduleId: id };
  },
};

/** Returns the refusal of an action that a damaged schedule does not allow. */
export const damagedScheduleRefusal = (id: string): Refusal =>
  new Refusal(
    "invalid",
    `scheduleId: the schedule ${id} is damaged in the store; ` +
      "create it again with Svc-Schedule-Id, delete it, or restore a backup",
  );

/** Returns a schedule of the account. Throws `Refusal` if it does not exist. */
export function mustFindSchedule(draft: Draft, account: AccountId, id: string): Schedule {
  const schedule = draft.get("schedules", account, id);
  if (!schedule) throw noSchedule(id);
  return schedule;
}

/** Returns the refusal of an id that no schedule has. */
export const noSchedule = (id: string): Refusal =>
  new Refusal("not-found", `scheduleId: schedule ${JSON.stringify(id.slice(0, 200))} does not exist`);

/**
 * The maximum number of messages, and of bytes of their bodies, that the schedules of one claim create
 * together. A schedule creates one message for every endpoint of its group.
 */
const maxFired = { messages: 1_000, bytes: memory.batch };

/**
 * Fires these schedules in order, up to the limits of `maxFired`, but at least one. Returns false if some of
 * them are still due.
 */
export function fireSchedules(draft: Draft, moment: Moment, schedules: readonly Schedule[]): boolean {
  let messages = 0;
  let bytes = 0;
  for (const [at, schedule] of schedules.entries()) {
    const { account, messageInput, body } = schedule;
    const count = listRecipients(draft, account, messageInput).length;
    messages += count;
    bytes += count * body.byteLength;
    if (at > 0 && (messages > maxFired.messages || bytes > maxFired.bytes)) return false;
    fire(draft, moment, schedule);
  }
  return true;
}

/**
 * Publishes the messages of a schedule once, even if the firing is late or several firings were missed. Sets
 * the next firing to a time after now. A problem with one schedule does not stop the others.
 *
 * In these cases a schedule publishes nothing now, and fires again at its next time:
 *
 * - Its group is gone or empty.
 * - All copies of the body together exceed `limits.fanOutBytes`.
 * - Its account may publish nothing.
 */
function fire(draft: Draft, moment: Moment, schedule: Schedule): void {
  const { account: id, messageInput } = schedule;
  const account = draft.get("accounts", id);
  if (!account) {
    draft.fault(`schedule ${schedule.id} belongs to account ${id}, which does not exist; it is removed`);
    return draft.drop("schedules", id, schedule.id);
  }
  if (schedule.damaged) return pauseDamaged(draft, schedule);
  const skipReason = findSkipReason(account, moment.now);
  if (skipReason !== null) return skipFiring(draft, moment, { schedule, skipReason });
  const recipientCount = listRecipients(draft, id, messageInput).length;
  if (listSendable(draft, id, messageInput).length < recipientCount)
    draft.fault(
      `schedule ${schedule.id} of account ${id} has a destination that is not a URL; it is skipped`,
    );
  const next = findNextTime(draft, schedule, moment.now);
  draft.record("schedule fired", moment.now - (schedule.dueAt ?? moment.now));
  const lastMessages = publishScheduled(draft, moment, { account, schedule }).map((one) => one.id);
  const { passedOver: _, ...rest } = schedule;
  draft.put("schedules", { ...rest, ...next, lastAt: moment.now, lastMessages });
}

/** Publishes the messages of one firing and returns them. `fire` says in which cases there are none. */
export function publishScheduled(
  draft: Draft,
  moment: Moment,
  { account, schedule: { messageInput, body } }: { account: Account; schedule: Schedule },
): StoredMessage[] {
  const inputs = listSendable(draft, account.id, messageInput);
  if (inputs.length * body.byteLength > limits.fanOutBytes) return [];
  return inputs.map((one) => accept(draft, moment, { account, input: { ...one, body } }));
}

/** Returns why a firing of this schedule publishes nothing, if its account may publish. */
export function explainEmptyFiring({ messageInput: input, body }: Pick<Schedule, "messageInput" | "body">) {
  if (input.group === null) return "the destination is not a URL that can be called";
  const maxEndpoints = Math.floor(limits.fanOutBytes / Math.max(1, body.byteLength));
  const tooMany =
    maxEndpoints < limits.endpoints
      ? `, or it has more than ${maxEndpoints} endpoints, too many for a body of this size`
      : "";
  return `there is no URL group ${input.group} with endpoints${tooMany}`;
}

/** Pauses a damaged schedule: what it publishes, or when, is no longer known. */
function pauseDamaged(draft: Draft, schedule: Schedule): void {
  draft.fault(
    `schedule ${schedule.id} of account ${schedule.account} is damaged in the store; it is paused: ` +
      "create it again, or restore a backup",
  );
  draft.put("schedules", { ...schedule, paused: true, dueAt: null });
}

/** A schedule was accepted while the disk had room, so a low disk does not stop its firings. */
const acceptedContent = { continuesRun: false, isDiskLow: false } as const;

/**
 * Returns why a schedule of the account skips a firing: the reason for which a publish request would be
 * refused now. Null: the schedule fires.
 */
const findSkipReason = (account: Account, now: Millis): string | null =>
  account.state === "passive"
    ? "the account was disabled"
    : ((findBudgetRefusal(account, now) ?? findStorageRefusal(account, acceptedContent))?.message ?? null);

/**
 * Sets the next time of a schedule and publishes nothing. The schedule fires again at that time if the reason
 * no longer applies.
 */
export function skipFiring(
  draft: Draft,
  moment: Moment,
  { schedule, skipReason }: { schedule: Schedule; skipReason: string },
): void {
  const next = findNextTime(draft, schedule, moment.now);
  draft.put("schedules", {
    ...schedule,
    ...next,
    lastAt: moment.now,
    lastMessages: [],
    passedOver: skipReason,
  });
}

/**
 * Returns the messages with a valid URL. The rules for URLs may have changed since the schedule was stored.
 */
const listSendable = <L extends Omit<MessageInput, "body">>(
  draft: Draft,
  account: AccountId,
  input: L,
): L[] => listRecipients(draft, account, input).filter(({ url }) => URL.canParse(url));

/**
 * Returns the next time of a schedule. If the time cannot be computed, for example because its time zone was
 * removed, returns a paused schedule.
 */
function findNextTime(
  draft: Draft,
  { account, id, cron }: Schedule,
  now: Millis,
): Pick<Schedule, "paused" | "dueAt"> {
  try {
    return { paused: false, dueAt: nextCronTime(cron, now) };
  } catch (error) {
    draft.fault(
      `cannot compute the next time of schedule ${id} of account ${account}; it is paused: ${String(error)}`,
    );
    return { paused: true, dueAt: null };
  }
}
