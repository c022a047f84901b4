import { budgetBrokenBy } from "../accounts/budget.ts";
import type { Decision, Draft, Key, Moment } from "../decision/command.ts";
import { nextAfter, parseCron } from "../values/cron.ts";
import type { Deduplication } from "../model/deduplication.ts";
import { windowEnd } from "../model/deduplication.ts";
import { Refusal } from "../values/errors.ts";
import { destinationNeeds, listLimiterKeysFor, mergeDestinationNeeds } from "../admission/needs.ts";
import { addressed } from "./urlGroup.ts";
import { accept } from "../sending/createMessage.ts";
import { limits, memory } from "../values/limits.ts";
import type { Account, AccountId, Bytes, Letter, Millis, Schedule } from "../model/message.ts";
import { isName } from "../values/name.ts";
import { needsOfPlace, takePlace } from "../sending/quotas.ts";
import { acting } from "../accounts/plans.ts";
import type { Scope } from "../model/rights.ts";
import { mustHave, scopeBrokenBy } from "../model/rights.ts";
import { sentAwayBy } from "../workflows/sentAway.ts";
import { bytesBrokenBy, sendingLimitBrokenBy } from "./publish.ts";
import { mustHaveStorage, storageQuotaBrokenBy } from "../accounts/storageQuota.ts";

/** What a schedule is to be. `id` null: it gets a new one. */
export type ScheduleInput = {
  account: AccountId;
  id: string | null;
  cron: string;
  letter: Omit<Letter, "body">;
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
  needs: ({ account, id, cron, letter, scope }) => ({
    accounts: [[account]],
    schedules: id === null ? [] : [[account, id]],
    groups: scope && letter.group !== null ? [[account, letter.group]] : [],
    deduplications: letter.deduplication === null ? [] : [[account, deduplicationKey(letter.deduplication, cron)]],
  }),
  further: ({ account, id, cron, letter }, draft) => {
    const older = deduplicationOf(draft, account, letter, cron);
    const isNew = id === null || !draft.get("schedules", account, id);
    const schedules: Key[] = older ? [[account, older.messageId]] : [];
    return { schedules, ...(isNew ? needsOfPlace(draft, account, { name: "schedules" }) : {}) };
  },
  decide: (input, draft, moment) => {
    const { account, cron, body } = input;
    const owner = acting(draft.get("accounts", account));
    checkSchedule(owner, input, moment.now);
    if (input.scope) checkScope(input.scope, input, draft);
    const older = deduplicationOf(draft, account, input.letter, cron);
    if (older && older.expiresAt > moment.now && isAsMade(draft, older)) return { scheduleId: older.messageId, deduplicated: true };
    mustHaveStorage(owner, { goesOn: false });
    if (input.id === null || !draft.get("schedules", account, input.id)) takePlace(draft, owner, { name: "schedules" });
    const id = input.id ?? moment.newId("scd");
    const { deduplicationWindow: _window, ...kept } = input.letter;
    const letter = { ...kept, deduplication: null, scheduleId: id };
    const dueAt = firstTime(draft.get("schedules", account, id), parseCron(cron), moment.now);
    const schedule = { account, id, cron: parseCron(cron), createdAt: moment.now, dueAt, letter, body };
    draft.put("schedules", { ...schedule, paused: false, lastAt: null, lastMessages: [] });
    if (input.letter.deduplication !== null) {
      const key = deduplicationKey(input.letter.deduplication, cron);
      const expiresAt = windowEnd(moment.now, input.letter);
      draft.put("deduplications", { account, key, messageId: id, expiresAt, made: { at: moment.now } });
    }
    return { scheduleId: id, deduplicated: false };
  },
};

/** Messages and schedules of the same key do not stand for each other, nor do schedules that are to fire at other times. */
const deduplicationKey = (key: string, cron: string): string => `schedule ${key} ${parseCron(cron)}`;

/** Whether the schedule is still the one that was made then, and not another that has replaced it since. */
const isAsMade = (draft: Draft, { account, messageId, made }: Deduplication): boolean =>
  draft.get("schedules", account, messageId)?.createdAt === made.at;

const deduplicationOf = (
  draft: Draft,
  account: AccountId,
  { deduplication }: ScheduleInput["letter"],
  cron: string,
): Deduplication | undefined =>
  deduplication === null ? undefined : draft.get("deduplications", account, deduplicationKey(deduplication, cron));

function checkSchedule(account: Account, { id, letter, body }: ScheduleInput, now: Millis): void {
  if (id !== null && !isName(id)) {
    const problem = 'is no id; letters, digits, ".", "_" and "-" can be in it, and it is not "." or ".."';
    throw new Refusal("invalid", `schedule-id: ${JSON.stringify(id.slice(0, 200))} ${problem}`);
  }
  if (letter.notBefore !== null) {
    throw new Refusal(
      "invalid",
      "not-before: a schedule publishes again and again, at the times of its cron; use delay to send later than that",
    );
  }
  const broken = sendingLimitBrokenBy(account, letter, now) ?? bytesBrokenBy(account, body);
  if (broken) throw new Refusal(broken.refused, broken.message);
}

/**
 * A group may have other endpoints whenever the schedule fires, so it must be named by the token itself. Whoever may
 * publish only cannot replace what somebody else has set up.
 */
function checkScope(scope: Scope, { account, id, letter }: ScheduleInput, draft: Draft): void {
  const broken = scopeBrokenBy(scope, letter) ?? sentAwayBy(scope, draft, account, letter);
  if (broken) throw new Refusal(broken.refused, broken.message);
  if (id !== null && draft.get("schedules", account, id)) mustHave(scope, "manage");
}

function firstTime(replaced: Schedule | undefined, cron: string, now: Millis): Millis | null {
  const isOverdue = replaced && replaced.cron === cron && replaced.dueAt !== null && replaced.dueAt <= now;
  // A claim in this batch has seen what the old one needs; the next one will see what the new one does.
  return isOverdue ? now + 1 : nextAfter(cron, now);
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
    const schedule = known(draft, account, id);
    if (!schedule.paused) draft.put("schedules", { ...schedule, paused: true, dueAt: null });
    return { scheduleId: id };
  },
};

/** Lets a paused schedule fire again, from the next time on: not one that it fired at before the clock was put back. */
export const resumeSchedule: Decision<Named, { scheduleId: string }> = {
  needs: deleteSchedule.needs,
  decide: ({ account, id }, draft, moment) => {
    const schedule = known(draft, account, id);
    if (schedule.damaged) {
      const problem = `scheduleId: the schedule ${id} is damaged in the store; make it again with Svc-Schedule-Id, delete it, or restore a backup`;
      throw new Refusal("invalid", problem);
    }
    const dueAt = schedule.paused ? nextAfter(schedule.cron, Math.max(moment.now, schedule.lastAt ?? 0)) : schedule.dueAt;
    if (schedule.paused) draft.put("schedules", { ...schedule, paused: false, dueAt });
    return { scheduleId: id };
  },
};

function known(draft: Draft, account: AccountId, id: string): Schedule {
  const schedule = draft.get("schedules", account, id);
  if (!schedule) throw noSchedule(id);
  return schedule;
}

/** The refusal of an id that no schedule has. */
export const noSchedule = (id: string): Refusal =>
  new Refusal("not-found", `scheduleId: there is no schedule ${JSON.stringify(id.slice(0, 200))}`);

/** What must be seen to fire these schedules: first their groups, then whatever their messages meet. */
export function needsOfFiring(draft: Draft, schedules: readonly Schedule[]) {
  const letters = schedules.flatMap(({ account, letter }) => sendable(draft, account, letter).map((one) => ({ account, letter: one })));
  return {
    groups: schedules.flatMap(({ account, letter }): Key[] => (letter.group === null ? [] : [[account, letter.group]])),
    ...mergeDestinationNeeds(letters.map(({ account, letter }) => destinationNeeds(account, [letter.url]))),
    flows: schedules.flatMap(({ account, letter }) => listLimiterKeysFor(account, [letter])),
  };
}

/** Messages, and bytes of their bodies, that the schedules of one claim make together: each makes one for every endpoint of its group. */
const mostFired = { messages: 1_000, bytes: memory.batch };

/** Fires the first of these, as many as one claim can bear, and one at least. False: the others are due still. */
export function fireFirst(draft: Draft, moment: Moment, schedules: readonly Schedule[]): boolean {
  let [messages, bytes] = [0, 0];
  for (const [at, schedule] of schedules.entries()) {
    const { account, letter, body } = schedule;
    const count = addressed(draft, account, letter).length;
    messages += count;
    bytes += count * body.byteLength;
    if (at > 0 && (messages > mostFired.messages || bytes > mostFired.bytes)) return false;
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
  const { account: id, letter, body } = schedule;
  const account = draft.get("accounts", id);
  if (!account) {
    draft.fault(`schedule ${schedule.id} belongs to account ${id}, which is not there, and is removed`);
    return draft.drop("schedules", id, schedule.id);
  }
  if (schedule.damaged) return stopDamaged(draft, schedule);
  const why = reasonToPassOver(account, moment.now);
  if (why !== null) return passOver(draft, moment, schedule, why);
  const wanted = addressed(draft, id, letter).length;
  const letters = sendable(draft, id, letter);
  if (letters.length < wanted) draft.fault(`schedule ${schedule.id} of account ${id} is to publish to what is no URL; that is left out`);
  const next = nextOrNone(draft, schedule, moment.now);
  const published = letters.length * body.byteLength > limits.fanOutBytes ? [] : letters;
  const lastMessages = published.map((one) => accept(draft, moment, account, { ...one, body }).id);
  const { passedOver: _, ...rest } = schedule;
  draft.put("schedules", { ...rest, ...next, lastAt: moment.now, lastMessages });
}

/** Pauses a schedule of which it is not known any more what it publishes, or when. */
function stopDamaged(draft: Draft, schedule: Schedule): void {
  draft.fault(
    `schedule ${schedule.id} of account ${schedule.account} is damaged in the store, and is paused: make it again, or restore a backup`,
  );
  draft.put("schedules", { ...schedule, paused: true, dueAt: null });
}

/** Why an account does not publish by a schedule now, as it could not by a request. Null: it does. */
const reasonToPassOver = (account: Account, now: Millis): string | null =>
  account.state === "passive"
    ? "the account was disabled"
    : ((budgetBrokenBy(account, now) ?? storageQuotaBrokenBy(account, { goesOn: false }))?.message ?? null);

/** Sets the next time of a schedule, and publishes nothing. It goes on by itself when there is nothing against it any more. */
export function passOver(draft: Draft, moment: Moment, schedule: Schedule, why: string): void {
  const next = nextOrNone(draft, schedule, moment.now);
  draft.put("schedules", { ...schedule, ...next, lastAt: moment.now, lastMessages: [], passedOver: why });
}

/** What a URL is may have changed since this one was stored. */
const sendable = <L extends Omit<Letter, "body">>(draft: Draft, account: AccountId, letter: L): L[] =>
  addressed(draft, account, letter).filter(({ url }) => URL.canParse(url));

/** So may what an expression means: zones come and go. */
function nextOrNone(draft: Draft, { account, id, cron }: Schedule, now: Millis): Pick<Schedule, "paused" | "dueAt"> {
  try {
    return { paused: false, dueAt: nextAfter(cron, now) };
  } catch (error) {
    draft.fault(`schedule ${id} of account ${account} is paused, because its times cannot be told any more: ${String(error)}`);
    return { paused: true, dueAt: null };
  }
}
