import { findBudgetRefusal } from "../limits/budget.ts";
import type { Draft, Moment } from "../decision/command.ts";
import { nextCronTime } from "../values/cron.ts";
import { listRecipients } from "./recipients.ts";
import { accept } from "./createMessage.ts";
import { limits, memory } from "../values/limits.ts";
import type { Account } from "../model/account.ts";
import type { AccountId, Millis } from "../values/basics.ts";
import type { MessageInput, StoredMessage } from "../model/message.ts";
import type { Schedule } from "../model/schedule.ts";
import type { Refused } from "../values/errors.ts";
import { findStorageRefusal } from "../limits/storageQuota.ts";

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
  const { passedOver: _, remedy: _remedy, ...rest } = schedule;
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
const findSkipReason = (account: Account, now: Millis): SkipReason | null =>
  account.state === "passive"
    ? { message: "the account was disabled" }
    : (findBudgetRefusal(account, now) ?? findStorageRefusal(account, acceptedContent));

type SkipReason = Pick<Refused, "message" | "remedy">;

/**
 * Sets the next time of a schedule and publishes nothing. The schedule fires again at that time if the reason
 * no longer applies.
 */
export function skipFiring(
  draft: Draft,
  moment: Moment,
  { schedule, skipReason }: { schedule: Schedule; skipReason: SkipReason },
): void {
  const next = findNextTime(draft, schedule, moment.now);
  const { message: passedOver, remedy } = skipReason;
  const { remedy: _, ...rest } = schedule;
  draft.put("schedules", {
    ...rest,
    ...next,
    lastAt: moment.now,
    lastMessages: [],
    passedOver,
    ...(remedy && { remedy }),
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
