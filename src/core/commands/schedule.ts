import { findBudgetRefusal } from "../accounts/budget.ts";
import type { Decision, Draft, Key, Moment } from "../decision/command.ts";
import { nextCronTime, parseCron } from "../values/cron.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { deduplicationEnd } from "../model/deduplication.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor, mergeDestinationNeeds } from "../admission/needs.ts";
import { listRecipients } from "./urlGroup.ts";
import { accept } from "../sending/createMessage.ts";
import { limits, memory } from "../values/limits.ts";
import type { Account, AccountId, Bytes, MessageInput, Millis, Schedule } from "../model/message.ts";
import { isName } from "../values/name.ts";
import { quotaNeeds, takeQuota } from "../sending/quotas.ts";
import { requireActiveAccount } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import { mustHaveVerb, findScopeRefusal } from "../model/rights.ts";
import { findContentRefusal } from "../workflows/contentScope.ts";
import { findBodyRefusal, findSendingRefusal } from "./publish.ts";
import { mustHaveStorage, findStorageRefusal } from "../accounts/storageQuota.ts";

/** What a schedule is to be. `id` null: it gets a new one. */
export type ScheduleInput = {
  account: AccountId;
  id: string | null;
  cron: string;
  messageInput: Omit<MessageInput, "body">;
  body: Bytes;
  scope?: Scope;
};
/** `deduplicated`: an older schedule is the same, nothing was made, and the id is that of the older one. */
export type ScheduleCreated = { scheduleId: string; deduplicated: boolean };
type Named = { account: AccountId; id: string };

/**
 * Makes a schedule, which fires at the next time after now. One with the same id is replaced as a whole, its history
 * included, by a token with rights of its own only if it has the verb manage; a time of the old one that is due and has not fired yet is kept when the expression stays the same, so that
 * whoever sets up schedules again at each start misses nothing. Deduplication holds for the making of schedules, not
 * for what they publish, and for those alone that are to fire at the same times. Throws `Refusal`.
 */
export const createSchedule: Decision<ScheduleInput, ScheduleCreated> = {
  needs: ({ account, id, cron, messageInput, scope }) => ({
    accounts: [[account]],
    schedules: id === null ? [] : [[account, id]],
    urlGroups: scope && messageInput.group !== null ? [[account, messageInput.group]] : [],
    deduplications: messageInput.deduplication === null ? [] : [[account, deduplicationKey(messageInput.deduplication, cron)]],
  }),
  further: ({ account, id, cron, messageInput }, draft) => {
    const duplicate = findDeduplication(draft, account, messageInput, cron);
    const isNew = id === null || !draft.get("schedules", account, id);
    const schedules: Key[] = duplicate ? [[account, duplicate.messageId]] : [];
    return { schedules, ...(isNew ? quotaNeeds(draft, account, { name: "schedules" }) : {}) };
  },
  decide: (input, draft, moment) => {
    const { account, cron, body } = input;
    const owner = requireActiveAccount(draft.get("accounts", account));
    checkSchedule(owner, input, moment.now);
    if (input.scope) mustBeInScope(input.scope, input, draft);
    const duplicate = findDeduplication(draft, account, input.messageInput, cron);
    if (duplicate && duplicate.expiresAt > moment.now && isUnreplaced(draft, duplicate))
      return { scheduleId: duplicate.messageId, deduplicated: true };
    mustHaveStorage(owner, { continuesRun: false });
    if (input.id === null || !draft.get("schedules", account, input.id)) takeQuota(draft, owner, { name: "schedules" });
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

/** Messages and schedules of the same key do not stand for each other, nor do schedules that are to fire at other times. */
const deduplicationKey = (key: string, cron: string): string => `schedule ${key} ${parseCron(cron)}`;

/** Whether the schedule is still the one that was made then, and not another that has replaced it since. */
const isUnreplaced = (draft: Draft, { account, messageId, made }: Deduplication): boolean =>
  draft.get("schedules", account, messageId)?.createdAt === made.at;

const findDeduplication = (
  draft: Draft,
  account: AccountId,
  { deduplication }: ScheduleInput["messageInput"],
  cron: string,
): Deduplication | undefined =>
  deduplication === null ? undefined : draft.get("deduplications", account, deduplicationKey(deduplication, cron));

function checkSchedule(account: Account, { id, messageInput, body }: ScheduleInput, now: Millis): void {
  if (id !== null && !isName(id)) {
    const problem = 'is no id; letters, digits, ".", "_" and "-" can be in it, and it is not "." or ".."';
    throw new Refusal("invalid", `schedule-id: ${JSON.stringify(id.slice(0, 200))} ${problem}`);
  }
  if (messageInput.notBefore !== null) {
    throw new Refusal(
      "invalid",
      "not-before: a schedule publishes again and again, at the times of its cron; use delay to send later than that",
    );
  }
  const refusal = findSendingRefusal(account, messageInput, now) ?? findBodyRefusal(account, body);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
}

/**
 * A group may have other endpoints whenever the schedule fires, so it must be named by the token itself. Whoever may
 * publish only cannot replace what somebody else has set up.
 */
function mustBeInScope(scope: Scope, { account, id, messageInput }: ScheduleInput, draft: Draft): void {
  const refusal = findScopeRefusal(scope, messageInput) ?? findContentRefusal(scope, draft, account, messageInput);
  if (refusal) throw new Refusal(refusal.refused, refusal.message);
  if (id !== null && draft.get("schedules", account, id)) mustHaveVerb(scope, "manage");
}

function firstTime(replaced: Schedule | undefined, cron: string, now: Millis): Millis | null {
  const isOverdue = replaced && replaced.cron === cron && replaced.dueAt !== null && replaced.dueAt <= now;
  // A claim in this batch has seen what the old one needs; the next one will see what the new one does.
  return isOverdue ? now + 1 : nextCronTime(cron, now);
}

/** Removes a schedule, if there is one. What it has published goes its way. */
export const deleteSchedule: Decision<Named, { deleted: boolean }> = {
  needs: ({ account, id }) => ({ schedules: [[account, id]] }),
  decide: ({ account, id }, draft) => {
    const deleted = draft.get("schedules", account, id) !== undefined;
    if (deleted) draft.drop("schedules", account, id);
    return { deleted };
  },
};

/** Lets a schedule pass over its times until it is resumed; one that is due and has not fired yet is passed over as well. */
export const pauseSchedule: Decision<Named, { scheduleId: string }> = {
  needs: deleteSchedule.needs,
  decide: ({ account, id }, draft) => {
    const schedule = mustFindSchedule(draft, account, id);
    if (!schedule.paused) draft.put("schedules", { ...schedule, paused: true, dueAt: null });
    return { scheduleId: id };
  },
};

/** Lets a paused schedule fire again, from the next time on: not one that it fired at before the clock was put back. */
export const resumeSchedule: Decision<Named, { scheduleId: string }> = {
  needs: deleteSchedule.needs,
  decide: ({ account, id }, draft, moment) => {
    const schedule = mustFindSchedule(draft, account, id);
    if (schedule.damaged) {
      const problem = `scheduleId: the schedule ${id} is damaged in the store; make it again with Svc-Schedule-Id, delete it, or restore a backup`;
      throw new Refusal("invalid", problem);
    }
    const dueAt = schedule.paused ? nextCronTime(schedule.cron, Math.max(moment.now, schedule.lastAt ?? 0)) : schedule.dueAt;
    if (schedule.paused) draft.put("schedules", { ...schedule, paused: false, dueAt });
    return { scheduleId: id };
  },
};

function mustFindSchedule(draft: Draft, account: AccountId, id: string): Schedule {
  const schedule = draft.get("schedules", account, id);
  if (!schedule) throw noSchedule(id);
  return schedule;
}

/** The refusal of an id that no schedule has. */
export const noSchedule = (id: string): Refusal =>
  new Refusal("not-found", `scheduleId: there is no schedule ${JSON.stringify(id.slice(0, 200))}`);

/** What must be seen to fire these schedules: first their groups, then whatever their messages meet. */
export function firingNeeds(draft: Draft, schedules: readonly Schedule[]) {
  const inputs = schedules.flatMap(({ account, messageInput }) =>
    listSendable(draft, account, messageInput).map((one) => ({ account, letter: one })),
  );
  return {
    urlGroups: schedules.flatMap(({ account, messageInput }): Key[] =>
      messageInput.group === null ? [] : [[account, messageInput.group]],
    ),
    ...mergeDestinationNeeds(inputs.map(({ account, letter }) => destinationNeeds(account, [letter.url]))),
    limiters: schedules.flatMap(({ account, messageInput }) => listLimiterKeysFor(account, [messageInput])),
  };
}

/** Messages, and bytes of their bodies, that the schedules of one claim make together: each makes one for every endpoint of its group. */
const maxFired = { messages: 1_000, bytes: memory.batch };

/** Fires the first of these, as many as one claim can bear, and one at least. False: the others are due still. */
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
 * Publishes what a schedule is to publish, once, however late it is and however many times were missed, and sets the
 * time of the next firing after now. One whose group is gone or empty, or has become so large that all copies of the
 * body are more than a request may come to, publishes nothing, and goes on; so does one whose account may publish
 * nothing. Nothing that is wrong with one schedule stops the others.
 */
function fire(draft: Draft, moment: Moment, schedule: Schedule): void {
  const { account: id, messageInput, body } = schedule;
  const account = draft.get("accounts", id);
  if (!account) {
    draft.fault(`schedule ${schedule.id} belongs to account ${id}, which is not there, and is removed`);
    return draft.drop("schedules", id, schedule.id);
  }
  if (schedule.damaged) return pauseDamaged(draft, schedule);
  const skipReason = findSkipReason(account, moment.now);
  if (skipReason !== null) return skipFiring(draft, moment, schedule, skipReason);
  const recipientCount = listRecipients(draft, id, messageInput).length;
  const inputs = listSendable(draft, id, messageInput);
  if (inputs.length < recipientCount)
    draft.fault(`schedule ${schedule.id} of account ${id} is to publish to what is no URL; that is left out`);
  const next = findNextTime(draft, schedule, moment.now);
  const published = inputs.length * body.byteLength > limits.fanOutBytes ? [] : inputs;
  const lastMessages = published.map((one) => accept(draft, moment, account, { ...one, body }).id);
  const { passedOver: _, ...rest } = schedule;
  draft.put("schedules", { ...rest, ...next, lastAt: moment.now, lastMessages });
}

/** Pauses a schedule of which it is not known any more what it publishes, or when. */
function pauseDamaged(draft: Draft, schedule: Schedule): void {
  draft.fault(
    `schedule ${schedule.id} of account ${schedule.account} is damaged in the store, and is paused: make it again, or restore a backup`,
  );
  draft.put("schedules", { ...schedule, paused: true, dueAt: null });
}

/** Why an account does not publish by a schedule now, as it could not by a request. Null: it does. */
const findSkipReason = (account: Account, now: Millis): string | null =>
  account.state === "passive"
    ? "the account was disabled"
    : ((findBudgetRefusal(account, now) ?? findStorageRefusal(account, { continuesRun: false }))?.message ?? null);

/** Sets the next time of a schedule, and publishes nothing. It goes on by itself when there is nothing against it any more. */
export function skipFiring(draft: Draft, moment: Moment, schedule: Schedule, skipReason: string): void {
  const next = findNextTime(draft, schedule, moment.now);
  draft.put("schedules", { ...schedule, ...next, lastAt: moment.now, lastMessages: [], passedOver: skipReason });
}

/** What a URL is may have changed since this one was stored. */
const listSendable = <L extends Omit<MessageInput, "body">>(draft: Draft, account: AccountId, input: L): L[] =>
  listRecipients(draft, account, input).filter(({ url }) => URL.canParse(url));

/** So may what an expression means: zones come and go. */
function findNextTime(draft: Draft, { account, id, cron }: Schedule, now: Millis): Pick<Schedule, "paused" | "dueAt"> {
  try {
    return { paused: false, dueAt: nextCronTime(cron, now) };
  } catch (error) {
    draft.fault(`schedule ${id} of account ${account} is paused, because its times cannot be told any more: ${String(error)}`);
    return { paused: true, dueAt: null };
  }
}
